"""Communication volume, messages and imbalance, against a literal case and a slow count in plain Python."""
import numpy as np
import pytest
import scipy.sparse as sp
from small_graphs import edges, grid

from hpgcn.errors import DataError
from hpgcn.graph import Graph
from hpgcn.partition import Partition, describe, format_statistics, make_partition, relative, statistics
from hpgcn.partition.methods import random_parts


def slow_statistics(dense, part, k):
    """The same counts from the definition, one net at a time."""
    n = len(dense)
    sends, receives, pairs = [0] * k, [0] * k, set()
    nonzeros, rows = [0] * k, [0] * k
    for i in range(n):
        rows[part[i]] += 1
        nonzeros[part[i]] += sum(1 for j in range(n) if dense[i][j] != 0 or i == j)
    for j in range(n):
        touched = {part[i] for i in range(n) if dense[i][j] != 0 or i == j}
        for reader in touched - {part[j]}:
            sends[part[j]] += 1
            receives[reader] += 1
            pairs.add((part[j], reader))
    messages = [sum(1 for source, _ in pairs if source == p) for p in range(k)]
    return {
        "volume": sum(sends), "volume_max": max(sends), "volume_avg": sum(sends) / k, "ghosts_max": max(receives),
        "messages": len(pairs), "messages_max": max(messages), "messages_avg": len(pairs) / k,
        "replication_factor": 1 + sum(sends) / n,
        "imbalance_nnz": max(nonzeros) / (sum(nonzeros) / k) - 1, "imbalance_rows": max(rows) / (n / k) - 1,
    }


def test_literal():
    # 0 reads 1; 2 reads 1; 3 reads 0 and 1. Part 0 = {0, 1} sends rows 0 and 1 to part 1 = {2, 3}, nothing returns.
    graph = edges(4, [(0, 1), (2, 1), (3, 0), (3, 1)], symmetrize=False)
    assert statistics(graph, np.array([0, 0, 1, 1]), 2) == {
        "volume": 2, "volume_max": 2, "volume_avg": 1.0, "ghosts_max": 2,
        "messages": 1, "messages_max": 1, "messages_avg": 0.5,
        "replication_factor": 1.5, "imbalance_nnz": 0.25, "imbalance_rows": 0.0,  # nonzeros with the diagonal: 3 and 5
    }


def test_direction_matters():
    # vertex 0 is read by three others: one row sent to each part, or three rows received by one part
    readers = edges(4, [(1, 0), (2, 0), (3, 0)], symmetrize=False)
    read = edges(4, [(0, 1), (0, 2), (0, 3)], symmetrize=False)
    part = np.array([0, 1, 1, 1])
    assert statistics(readers, part, 2)["volume"] == 1
    assert statistics(read, part, 2)["volume"] == 3


def test_loops_change_nothing():
    part = np.array([0, 1, 0])
    bare = edges(3, [(0, 1), (1, 2)])
    looped = edges(3, [(0, 1), (1, 2), (0, 0), (1, 1), (2, 2)])
    assert statistics(bare, part, 2) == statistics(looped, part, 2)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("density", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("directed", [False, True])
def test_against_slow_count(k, density, directed):
    rng = np.random.default_rng([k, int(100 * density)])
    matrix = sp.random_array((31, 31), density=density, rng=rng, format="csr")
    graph = Graph.from_scipy(matrix, symmetrize=not directed)
    part = rng.integers(0, k, 31)
    assert statistics(graph, part, k) == pytest.approx(slow_statistics(graph.adjacency.toarray(), part, k), abs=1e-12)


def test_empty_parts_count_as_parts():
    graph = grid(4)
    part = np.repeat([0, 5], 8)
    counted = statistics(graph, part, 8)
    assert counted == pytest.approx(slow_statistics(graph.adjacency.toarray(), part, 8))
    assert counted["volume"] == 8
    assert counted["imbalance_rows"] == 3.0


def test_scipy_matrix_with_explicit_zeros():
    matrix = sp.csr_array((np.array([1.0, 0.0]), np.array([1, 0]), np.array([0, 1, 2])), shape=(2, 2))
    assert statistics(matrix, np.array([0, 1]), 2)["volume"] == 1


def test_more_than_32_bits_of_pairs():
    k = 70_000  # k^2 does not fit 32 bits
    path = edges(k, np.stack([np.arange(k - 1), np.arange(1, k)], 1))
    counted = statistics(path, np.arange(k), k)
    assert (counted["volume"], counted["messages"], counted["messages_max"]) == (2 * (k - 1), 2 * (k - 1), 2)


@pytest.mark.parametrize(("part", "message"), [
    ([0, 1, 0], r"shape \(3,\), expected integers \(4,\)"),
    ([0, 1, 0, 2], r"vertex 3 has part 2, expected 0\.\.1"),
    ([0, -1, 0, 1], r"vertex 1 has part -1, expected 0\.\.1"),
    ([0.0, 1.0, 0.0, 1.0], "dtype float64"),
])
def test_bad_part_vector(part, message):
    with pytest.raises(DataError, match=message):
        statistics(edges(4, [(0, 1)]), np.array(part), 2)


def test_not_square():
    with pytest.raises(DataError, match="square"):
        statistics(sp.csr_array((2, 3)), np.array([0, 1]), 2)


def test_table():
    graph = grid(8)
    this, other = (make_partition(graph, 4, method=method, baseline=True, refine=False)
                   for method in ("block", "hypergraph"))
    lines = format_statistics({"this": this, "other": other}).splitlines()
    assert lines[0].split() == ["this", "/", "random", "other", "/", "random"]
    # two rows of the grid a part: 8 vertices at each of 3 borders, both ways
    chance = np.mean([statistics(graph, random_parts(64, 4, seed), 4)["volume"]
                      for seed in range(3)])
    total = next(line for line in lines if line.startswith("rows sent, total")).split()
    assert total[3:5] == ["48", f"{48 / chance:.3f}"]
    assert relative(this.statistics)["volume"] == pytest.approx(48 / chance)
    engine = next(line for line in lines if "engine's own count" in line).split()
    assert (engine[-2], int(engine[-1])) == ("-", other.statistics["engine_volume"])
    alone = format_statistics({"this": make_partition(graph, 4, method="block")}).splitlines()
    assert alone[0].split() == ["this"]


def test_table_of_a_partition_without_statistics():
    unnamed = Partition.from_parts(np.array([0, 1]), 2)
    assert describe(unnamed).startswith("unnamed, 2 parts")
    assert format_statistics({"this": unnamed}).split() == ["this"]


def test_table_over_a_random_partition_that_sends_nothing():
    this = make_partition(edges(4, []), 2, method="block", baseline=True)
    assert "rows sent, total" in format_statistics({"this": this})
    assert "volume" not in relative(this.statistics)

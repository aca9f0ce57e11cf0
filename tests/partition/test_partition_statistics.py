"""Communication volume, messages and imbalance, against a literal case and a slow count in plain Python."""
import numpy as np
import pytest
import scipy.sparse as sp
from small_graphs import edges, grid

from hpgcn.errors import DataError
from hpgcn.graph import Graph
from hpgcn.partition import Partition, format_statistics, make_partition, statistics


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
        "imbalance_nnz": max(nonzeros) / (sum(nonzeros) / k) - 1, "imbalance_rows": max(rows) / (n / k) - 1,
    }


def test_literal():
    # 0 reads 1; 2 reads 1; 3 reads 0 and 1. Part 0 = {0, 1} sends rows 0 and 1 to part 1 = {2, 3}, nothing returns.
    graph = edges(4, [(0, 1), (2, 1), (3, 0), (3, 1)], symmetrize=False)
    assert statistics(graph, np.array([0, 0, 1, 1]), 2) == {
        "volume": 2, "volume_max": 2, "volume_avg": 1.0, "ghosts_max": 2,
        "messages": 1, "messages_max": 1, "messages_avg": 0.5,
        "imbalance_nnz": 0.25, "imbalance_rows": 0.0,  # nonzeros with the diagonal: 3 and 5
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
    this, random = (make_partition(graph, 4, method=method) for method in ("block", "random"))
    lines = format_statistics(this, random.statistics).splitlines()
    assert lines[0] == "block, 4 parts, seed 0"
    assert lines[1].split() == ["this", "random", "relative"]
    # two rows of the grid a part: 8 vertices at each of 3 borders, both ways
    total = next(line for line in lines if line.startswith("rows sent, total"))
    assert total.split()[3:] == ["48", str(random.statistics["volume"]), f"{48 / random.statistics['volume']:.3f}"]
    assert len({len(line) for line in lines[1:-2]}) == 1  # aligned
    alone = format_statistics(this).splitlines()
    assert alone[1].split() == ["this"]
    assert len(alone) == len(lines)


def test_table_of_a_partition_without_statistics():
    assert format_statistics(Partition.from_parts(np.array([0, 1]), 2)).startswith("unnamed, 2 parts")


def test_table_over_a_random_partition_that_sends_nothing():
    graph = edges(4, [])
    this = make_partition(graph, 2, method="block")
    assert "rows sent, total" in format_statistics(this, this.statistics)

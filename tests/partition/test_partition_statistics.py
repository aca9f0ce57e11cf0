"""Communication volume, messages and imbalance: a case by hand, and a slow direct count."""
import re

import numpy as np
import pytest
import scipy.sparse as sp
from small_graphs import edges, grid

from hpgcn.errors import DataError
from hpgcn.graphs.graph import Graph
from hpgcn.partition import (
    Partition,
    describe,
    format_statistics,
    make_partition,
    quality,
    relative,
    statistics,
)
from hpgcn.partition.methods import random_parts


def slow_statistics(dense, part, k):
    """Return the statistics of a partition, counted directly from the dense matrix."""
    n = len(dense)
    read = (np.asarray(dense) != 0) | np.eye(n, dtype=bool)
    sends = np.zeros((k, k), int)  # rows, by owner and reader
    for j in range(n):
        for reader in {part[i] for i in range(n) if read[i, j]} - {part[j]}:
            sends[part[j], reader] += 1
    nonzeros = np.bincount(part, read.sum(1), k)
    messages = (sends > 0).sum(1)
    return {"volume": sends.sum(), "volume_max": sends.sum(1).max(),
            "volume_avg": sends.sum() / k, "ghosts_max": sends.sum(0).max(),
            "messages": messages.sum(), "messages_max": messages.max(),
            "messages_avg": messages.sum() / k, "replication_factor": 1 + sends.sum() / n,
            **slow_split_shares({(i, j): part[i] for i in range(n) for j in range(n)
                                 if read[i, j]}, n, k),
            "imbalance_nnz": nonzeros.max() / nonzeros.mean() - 1,
            "imbalance_rows": np.bincount(part, minlength=k).max() / (n / k) - 1}


def slow_split_shares(holders, n, k):
    """Return the shares of split vertices, counted from the parts that hold each vertex's edges."""
    of_vertex = [{p for (i, j), p in holders.items() if i != j and v in (i, j)} for v in range(n)]
    split = [len(parts) > 1 for parts in of_vertex]
    shares = [np.mean([split[v] for v in range(n) if p in of_vertex[v]] or [0]) for p in range(k)]
    return {"split_share": np.mean(split), "split_share_avg": np.mean(shares)}


def test_literal():
    # 0 reads 1; 2 reads 1; 3 reads 0 and 1: {0, 1} sends rows 0 and 1 to {2, 3}, nothing returns
    graph = edges(4, [(0, 1), (2, 1), (3, 0), (3, 1)], symmetrize=False)
    assert statistics(graph, np.array([0, 0, 1, 1]), 2) == {
        "volume": 2, "volume_max": 2, "volume_avg": 1.0, "ghosts_max": 2,
        "messages": 1, "messages_max": 1, "messages_avg": 0.5, "replication_factor": 1.5,
        # 0-1 is in part 0, the others in part 1: 0 and 1 are split, of 2 and of 4 vertices
        "split_share": 0.5, "split_share_avg": 0.75,
        "imbalance_nnz": 0.25, "imbalance_rows": 0.0,  # nonzeros with the diagonal: 3 and 5
    }


def test_loops_change_nothing():
    pairs = [(0, 1), (1, 2), (0, 0), (1, 1), (2, 2)]
    bare, looped = (statistics(edges(3, each), np.array([0, 1, 0]), 2)
                    for each in (pairs[:2], pairs))
    assert bare == looped


@pytest.mark.parametrize(("k", "density"), [(1, 0.02), (2, 0.3), (3, 0.02), (7, 0.0), (40, 0.3)])
@pytest.mark.parametrize("directed", [False, True])
def test_against_slow_count(k, density, directed, monkeypatch):
    rng = np.random.default_rng([k, int(100 * density)])
    matrix = sp.random_array((31, 31), density=density, rng=rng, format="csr")
    graph = Graph.from_scipy(matrix, symmetrize=not directed)
    part = rng.integers(0, k, 31)
    expected = slow_statistics(graph.adjacency.toarray(), part, k)
    assert statistics(graph, part, k) == pytest.approx(expected, abs=1e-12)

    # as large graphs are counted
    monkeypatch.setattr(quality, "LARGE", 0)
    assert statistics(graph, part, k) == pytest.approx(expected, abs=1e-12)


def test_empty_parts_count_as_parts():
    counted = statistics(grid(4), np.repeat([0, 5], 8), 8)
    assert counted["volume"] == 8 and counted["imbalance_rows"] == 3.0


def test_scipy_matrix_with_explicit_zeros():
    matrix = sp.csr_array((np.array([1.0, 0.0]), np.array([1, 0]), np.array([0, 1, 2])))
    assert statistics(matrix, np.array([0, 1]), 2)["volume"] == 1


def test_more_than_32_bits_of_pairs():
    k = 70_000  # k^2 does not fit 32 bits
    path = edges(k, np.stack([np.arange(k - 1), np.arange(1, k)], 1))
    counted = statistics(path, np.arange(k), k)
    assert counted["volume"] == counted["messages"] == 2 * (k - 1)
    assert counted["messages_max"] == 2


@pytest.mark.parametrize(("graph", "part", "message"), [
    (edges(4, [(0, 1)]), [0, 1, 0], r"shape \(3,\), expected integers \(4,\)"),
    (edges(4, [(0, 1)]), [0, 1, 0, 2], r"vertex 3 has part 2, expected 0\.\.1"),
    (edges(4, [(0, 1)]), [0, -1, 0, 1], r"vertex 1 has part -1, expected 0\.\.1"),
    (edges(4, [(0, 1)]), [0.0, 1.0, 0.0, 1.0], "dtype float64"),
    (sp.csr_array((2, 3)), [0, 1], "square"),
])
def test_what_does_not_fit_is_refused(graph, part, message):
    with pytest.raises(DataError, match=message):
        statistics(graph, np.array(part), 2)


def test_table():
    graph = grid(8)
    this, other = (make_partition(graph, 4, method=method, baseline=True, refine=False)
                   for method in ("block", "hypergraph"))
    lines = format_statistics({"this": this, "other": other}).splitlines()
    assert re.split("  +", lines[0].strip()) == ["this", "this / random", "other", "other / random"]
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


def test_tables_with_nothing_to_compare():
    unnamed = Partition.from_parts(np.array([0, 1]), 2)
    assert describe(unnamed).startswith("unnamed, 2 parts")
    assert format_statistics({"this": unnamed}).split() == ["this"]
    silent = make_partition(edges(4, []), 2, method="block", baseline=True)
    assert "rows sent, total" in format_statistics({"this": silent})
    assert "volume" not in relative(silent.statistics)

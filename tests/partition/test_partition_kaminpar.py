"""The engine KaMinPar of method graph."""
import io

import numpy as np
import pytest
from arrays import assert_some
from small_graphs import grid

from hpgcn.partition import make_partition
from hpgcn.partition.engines.engine_registry import kaminpar, write_parhip
from hpgcn.partition.rows.partition_model import pattern


def test_equal_calls_give_equal_parts():
    pytest.importorskip("kaminpar")
    made = [make_partition(grid(40), 4, method="graph", engine="kaminpar", seed=seed,
                           threads=threads, refine=False)
            for seed, threads in ((0, 1), (0, 2), (3, 2))]
    np.testing.assert_array_equal(made[0].part, made[1].part)
    assert_some(made[0].part != made[2].part)
    assert made[0].statistics["volume"] < 240  # two straight lines: 160
    assert made[0].engine == "kaminpar" and made[0].engine_version


def test_the_file_of_a_graph():
    file = io.BytesIO()
    write_parhip(file, {"offsets": np.array([0, 1, 3, 4]), "adjacent": np.array([1, 0, 2, 1]),
                        "weights": np.array([5, 6, 7])})
    numbers = np.frombuffer(file.getvalue(), np.uint64)
    assert numbers.tolist() == [1, 3, 4, 56, 64, 80, 88, 1, 0, 2, 1, 5, 6, 7]


def test_costs_of_edges_count():
    """A lattice whose horizontal edges are cheap is cut in vertical lines."""
    pytest.importorskip("kaminpar")
    matrix = pattern(grid(20)).tocoo()
    other = matrix.row != matrix.col
    row, column = matrix.row[other], matrix.col[other]
    costs = np.where(row // 20 == column // 20, 1, 1000)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=400))])
    part, _ = kaminpar({"offsets": offsets, "adjacent": column, "costs": costs,
                        "weights": np.ones(400, np.int64)},
                       {"k": 2, "epsilon": 0.01, "seed": 0, "threads": 1})
    assert costs[part[row] != part[column]].sum() == 2 * 20

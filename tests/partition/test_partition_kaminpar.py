"""The engine KaMinPar of method graph."""
import io

import numpy as np
import pytest
from small_graphs import grid

from hpgcn.partition import make_partition
from hpgcn.partition.engines.engine_registry import write_parhip


def test_equal_calls_give_equal_parts():
    pytest.importorskip("kaminpar")
    made = [make_partition(grid(40), 4, method="graph", engine="kaminpar", seed=seed,
                           threads=threads, refine=False)
            for seed, threads in ((0, 1), (0, 2), (3, 2))]
    np.testing.assert_array_equal(made[0].part, made[1].part)
    assert (made[0].part != made[2].part).any()
    assert made[0].statistics["volume"] < 240  # two straight lines: 160
    assert made[0].engine == "kaminpar" and made[0].engine_version


def test_the_file_of_a_graph():
    file = io.BytesIO()
    write_parhip(file, {"offsets": np.array([0, 1, 3, 4]), "adjacent": np.array([1, 0, 2, 1]),
                        "weights": np.array([5, 6, 7])})
    numbers = np.frombuffer(file.getvalue(), np.uint64)
    assert numbers.tolist() == [1, 3, 4, 56, 64, 80, 88, 1, 0, 2, 1, 5, 6, 7]

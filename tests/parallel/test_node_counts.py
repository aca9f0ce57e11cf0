"""Rows between nodes, against a count by sets of rows."""
import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.graphs.partition import run_offsets
from hpgcn.parallel.pattern_counts import count_parts

LAYOUTS = {"block": [0, 0, 0, 1, 1, 1], "round robin": [0, 1, 2, 0, 1, 2],
           "uneven": [0, 0, 0, 0, 1, 2], "one": [0] * 6, "each": list(range(6))}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_row_crosses_to_a_node_once(layout):
    nodes = np.array(LAYOUTS[layout])
    matrix = sp.random_array((70, 70), density=0.08, format="csr", rng=np.random.default_rng(3))
    owner = nodes[np.repeat(np.arange(6), [10, 0, 21, 14, 15, 10])]  # part 1 is empty

    # (row, reading node) pairs, each once
    readers = np.repeat(owner, np.diff(matrix.indptr))
    to_nodes = {(j, node) for j, node in zip(matrix.indices, readers) if node != owner[j]}
    wanted = np.zeros((nodes.max() + 1,) * 2, int)
    for j, node in to_nodes:
        wanted[node, owner[j]] += 1

    offsets = run_offsets(np.bincount(owner, minlength=len(wanted)))
    order = np.argsort(owner, kind="stable")
    found = count_parts(matrix.indptr, matrix.indices, owner, order, offsets)[2]
    np.testing.assert_array_equal(found, wanted)

"""Rows between nodes, against a count by sets of rows."""
import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.graphs.partition import run_offsets
from hpgcn.parallel.nodes.node_counts import count_node_ghosts

LAYOUTS = {"block": [0, 0, 0, 1, 1, 1], "round robin": [0, 1, 2, 0, 1, 2],
           "uneven": [0, 0, 0, 0, 1, 2], "one": [0] * 6, "each": list(range(6))}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_row_crosses_to_a_node_once(layout):
    nodes = np.array(LAYOUTS[layout])
    matrix = sp.random_array((70, 70), density=0.08, format="csr", rng=np.random.default_rng(3))
    offsets = np.array([0, 10, 10, 31, 45, 60, 70])  # part 1 is empty
    part = np.repeat(np.arange(6), np.diff(offsets))

    # (row, reading node) pairs, each once
    readers = np.repeat(part, np.diff(matrix.indptr))
    to_nodes = {(j, nodes[p]) for j, p in zip(matrix.indices, readers)
                if nodes[p] != nodes[part[j]]}
    wanted = np.zeros((nodes.max() + 1, 6), int)
    for j, node in to_nodes:
        wanted[node, part[j]] += 1

    found = count_node_ghosts(matrix.indptr, matrix.indices, part, offsets, nodes)
    assert found.tolist() == wanted.tolist()


def test_parts_need_not_be_in_order():
    matrix = sp.random_array((50, 50), density=0.1, format="csr", rng=np.random.default_rng(4))
    part = np.random.default_rng(5).integers(0, 4, 50)
    order = np.argsort(part, kind="stable")
    offsets = run_offsets(np.bincount(part, minlength=4))
    nodes = np.array([0, 0, 1, 1])
    moved = matrix[order][:, order]
    assert np.array_equal(
        count_node_ghosts(matrix.indptr, matrix.indices, part, offsets, nodes, order),
        count_node_ghosts(moved.indptr, moved.indices, part[order], offsets, nodes))

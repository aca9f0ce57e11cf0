"""Rows between nodes and within them, against a count by sets of rows."""
import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.graphs.partition import run_offsets
from hpgcn.parallel.nodes.node_counts import (
    NodeVolumes,
    count_node_ghosts,
    least_volumes,
    paired_gateways,
)
from hpgcn.parallel.pattern_counts import count_ghosts

LAYOUTS = {"block": [0, 0, 0, 1, 1, 1], "round robin": [0, 1, 2, 0, 1, 2],
           "uneven": [0, 0, 0, 0, 1, 2], "one": [0] * 6, "each": list(range(6))}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_row_crosses_to_a_node_once(layout):
    nodes = np.array(LAYOUTS[layout])
    matrix = sp.random_array((70, 70), density=0.08, format="csr", rng=np.random.default_rng(3))
    offsets = np.array([0, 10, 10, 31, 45, 60, 70])  # part 1 is empty
    part = np.repeat(np.arange(6), np.diff(offsets))

    # (row, reading node) and (row, reading rank) pairs, each once
    readers = np.repeat(part, np.diff(matrix.indptr))
    to_nodes = {(j, nodes[p]) for j, p in zip(matrix.indices, readers)
                if nodes[p] != nodes[part[j]]}
    to_ranks = {(j, p) for j, p in zip(matrix.indices, readers) if p != part[j]}
    wanted = np.zeros((nodes.max() + 1, 6), int)
    for j, node in to_nodes:
        wanted[node, part[j]] += 1

    found = count_node_ghosts(matrix.indptr, matrix.indices, part, offsets, nodes)
    assert found.tolist() == wanted.tolist()
    ghosts = count_ghosts(matrix.indptr, matrix.indices, offsets)[0]
    assert least_volumes(ghosts, found) == (len(to_nodes), len(to_ranks) - len(to_nodes))

    # hops of every row by the rule of the gateways
    gateways = paired_gateways(nodes)
    between, within = np.zeros((2, 6), int), np.zeros((2, 6), int)
    for j, node in to_nodes:
        between[0, part[j]] += 1
        between[1, gateways[node, part[j]]] += 1
    for j, p in to_ranks:
        source = part[j] if nodes[p] == nodes[part[j]] else gateways[nodes[p], part[j]]
        if source != p:
            within[0, source] += 1
            within[1, p] += 1
    volumes = NodeVolumes.of(ghosts, found, nodes)
    assert [volumes.sent_between.tolist(), volumes.received_between.tolist()] == between.tolist()
    assert [volumes.sent_within.tolist(), volumes.received_within.tolist()] == within.tolist()


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


def test_gateways_are_paired_by_their_number_on_the_node():
    assert paired_gateways([0, 0, 0, 1, 1]).tolist() == [[0, 1, 2, 0, 1], [3, 4, 3, 3, 4]]
    assert paired_gateways([0, 1, 0, 1]).tolist() == [[0, 0, 2, 2], [1, 1, 3, 3]]

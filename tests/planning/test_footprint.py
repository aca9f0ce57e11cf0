"""Memory of ranks: computed by hand for four vertices, and summed over ranks."""
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_all
from graphs import make

from hpgcn.config import Config
from hpgcn.graphs.graph import Graph
from hpgcn.planning.answers.candidates import count
from hpgcn.planning.counts.footprint import ON_GPU
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.strategies import STRATEGIES

STAR = np.zeros((4, 4))
STAR[0] = STAR[:, 0] = 1  # 0 -> all, all -> 0: with loops 4 + 2 + 2 + 2 nonzeros


@pytest.fixture(scope="module")
def path_of_four():
    """Return the path 0-1-2-3; two ranks own two rows each and send one row each way."""
    A = np.diag(np.ones(3), 1)
    return Graph.from_scipy(A, np.ones((4, 3)), [0, 1, 0, 1], ([0], [1], [2]), symmetrize=True)


def footprint_of(inputs, name, shape, offsets=None):
    strategy = STRATEGIES[name]
    if offsets is None:
        offsets = strategy.row_offsets(shape, inputs.pointers)
    return count(inputs.ordered, inputs, strategy, shape, offsets)


def test_by_hand(path_of_four):
    inputs = PlanInput(path_of_four, Config(hidden=2, prune=False))
    footprint = footprint_of(inputs, "p2p", (2,), [0, 2, 4])
    assert {name: size.tolist() for name, size in footprint.parts.items()} == {
        "matrix": [5 * 8 + 2 * 3 * 8] * 2,  # two blocks of 3 row pointers; entries of 4 + 4 bytes
        "features": [2 * 2 * 3 * 4] * 2,  # X and its dropped copy
        "vertices": [2 * (8 + 8 + 3 + 16)] * 2,
        "activations": [2 * (4 * 2 * 4 + 1)] * 2,  # H1, Z, two work arrays, a byte of mask
        "buffers": [2 * 2 * 4] * 2,  # a row out, a row in, of width 2
        "plan": [3 * 8] * 2,  # those two, and the row that the ghost block touches
        "parameters": [6 * 14 * 4] * 2, "reductions": [0, 0]}
    # degrees and a pointer of each row as read; 3 stored entries; 5 with loops, and their pointers;
    # rows beside ghosts
    setup = 2 * (35 + 32) + 3 * 4 + 2 * 3 * 4 + 5 * 34 + 2 * 3 * 8 + (2 + 2) * 100
    assert footprint.setup.tolist() == [setup] * 2
    assert footprint.peak.tolist() == [max(setup, 88 + 48 + 70 + 66 + 16 + 24 + 336)] * 2


@pytest.mark.parametrize("name, shape, offsets, copied", [
    ("1d", (3,), [0, 30, 40, 100], [2 * 70, 1 * 90, 2 * 40]),
    ("1d", (2,), [0, 30, 100], [2 * 70, 2 * 30]),
    ("1.5d", (2, 2), [0, 30, 60, 80, 100], [2 * 40, 2 * 40, 2 * 60, 2 * 60])])
def test_mpi_copies_sums_of_others_rows(name, shape, offsets, copied):
    """The forecast counts MPI's copies of the blocks that a rank reduces for other ranks.

    In a directed graph these are the two tallest blocks, of at most four pieces, copied
    twice. The middle one of three ranks only sends and copies them once.
    """
    n = 100
    ring = sp.csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), (n, n))
    for directed in (True, False):
        graph = Graph.from_scipy(ring, np.ones((n, 3)), np.arange(n) % 4,
                                 ([0], [1], [2]), symmetrize=not directed)
        inputs = PlanInput(graph, Config(hidden=2, prune=False))
        found = footprint_of(inputs, name, shape, offsets)
        width = found.widest
        told = [rows * width * 4 * directed for rows in copied]
        assert found.parts["reductions"].tolist() == told
        large = found.plan.reduced_bytes(1 << 24, 4)
        copies = [1 + (len(copied) != 3 or rank != 1) for rank in range(len(copied))]
        assert large.tolist() == [each * 4 * (4 << 20) * directed for each in copies]


def test_rows_that_are_left_out_by_hand(path_of_four):
    parts = footprint_of(PlanInput(path_of_four, Config(hidden=2)), "p2p", (1,), [0, 4]).parts
    whole = 10 * 8 + 5 * 8
    # rows 0, 1 of 0, 1, 2: 2 + 3 nonzeros, and back 0, 1, 2 of 0, 1; row 0 of 0, 1: 2, and back
    maps = (5 * 8 + 3 * 8) + (5 * 8 + 4 * 8) + (2 * 8 + 2 * 8) + (2 * 8 + 3 * 8)
    assert parts["matrix"] == whole + maps
    # H1 and H W of all rows of an evaluation; in the step a mask of 2 rows.
    # Z of one row, its gradient, and T of one (A first)
    assert parts["activations"] == (4 * 2 + 4 * 2) * 4 + 2 + (1 * 2 + 1 * 2 + 1 * 2) * 4
    assert parts["features"] == (3 + 3 + 4) * 3 * 4  # X, its dropped copy; X again


def test_products_that_are_formed_again_are_not_held():
    config = Config(layers=3, hidden=16, input_dropout=0.0, prune=False)
    inputs = PlanInput(make(directed=True), config, (13, 16, 30, 40))
    kept = footprint_of(inputs, "p2p", (1,), [0, 203])
    formed = replace(kept, spec=replace(kept.spec, drop_AX=True))
    saved = kept.parts["activations"] - formed.parts["activations"]
    # a work array takes A^T G, of 40 columns
    assert saved == 203 * (16 + 30) * 4 - 203 * (40 - 30) * 4


@pytest.mark.parametrize("ranks", [1, 2, 6, 12])
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("directed", [False, True])
def test_ranks_add_up_to_the_graph(name, ranks, directed):
    inputs = PlanInput(make(directed=directed), Config(prune=False))
    footprint = footprint_of(inputs, name, STRATEGIES[name].default_shape(ranks))
    plan = footprint.plan
    assert footprint.rows.size == ranks
    assert footprint.rows.sum() == 203 * plan.layout.columns
    assert len(plan.stored_operands) == 1 + directed
    copies = ranks if name == "mop" else 1
    nonzeros = inputs.ordered.pattern.matrix.nnz
    for operand in plan.stored_operands:
        assert operand.entries.sum() == nonzeros * copies
        # each meets every column once
        assert operand.entries_read.sum() == nonzeros * plan.traffic.slices
    assert_all(footprint.parts["matrix"] > 0)
    assert_all(footprint.setup > footprint.parts["matrix"])
    gpu = footprint.on_gpu
    assert set(gpu) == {*ON_GPU, "total"}
    assert_all(gpu["total"] == sum(gpu[name] for name in ON_GPU if name != "staging"))


def test_blocks_by_hand():
    inputs = PlanInput(Graph.from_scipy(STAR), Config(prune=False), (3, 2))
    # cut after row 1 (6 + 4), columns alike
    plan = footprint_of(inputs, "2d", (2, 2), [0, 2, 4]).plan
    operand = plan.operands[0]
    assert operand.entries.tolist() == [4, 2, 2, 2]
    assert operand.entries_read.tolist() == [6, 6, 4, 4]
    assert operand.pointers.tolist() == [3] * 4 and plan.rows().tolist() == [2, 2, 2, 2]
    assert (plan.layout.columns, plan.traffic.slices) == (2, 2)
    # the other column's block with its pointers, and two rows of a column of H
    expected = [entries * 8 + 3 * 8 + 2 * 4 for entries in (2, 4, 2, 2)]
    assert plan.buffer_bytes(2, 4).tolist() == expected
    plan = footprint_of(inputs, "mop", (2,), [0, 2, 4]).plan
    assert plan.operands[0].entries.tolist() == plan.operands[0].entries_read.tolist() == [10, 10]
    assert (plan.layout.columns, plan.traffic.slices, plan.rows().tolist()) == (1, 2, [2, 2])
    # blocks of the other rank touch row 0, and rows 2 and 3; nothing is added by own blocks
    operand = footprint_of(inputs, "1d", (2,), [0, 2, 4]).plan.operands[0]
    assert operand.entries.tolist() == [6, 4] and operand.index_entries.tolist() == [1, 2]
    assert operand.pointers.tolist() == [6, 6]

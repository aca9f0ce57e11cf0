"""What ranks are said to hold: by hand on four vertices, against the arrays of real runs, and in sum over ranks."""
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from graphs import make
from held import check_held
from test_models_serial import several_labels

import hpgcn
from hpgcn import cost, store
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.cost.memory import footprint, peak, setup
from hpgcn.cost.operands import stored_order, touched_by_part, touched_rows
from hpgcn.forecast.cases import case, count
from hpgcn.forecast.survey import Survey
from hpgcn.graph import Graph
from hpgcn.layout import split
from hpgcn.trainer import Trainer


@pytest.fixture(scope="module")
def path_of_four():
    """The path 0-1-2-3: rows 2 + 2, nonzeros with loops 5 + 5, one row and one message each way."""
    return Graph.from_scipy(np.diag(np.ones(3), 1), np.ones((4, 3)), [0, 1, 0, 1], ([0], [1], [2]), symmetrize=True)


def test_by_hand(path_of_four):
    survey = Survey(path_of_four, Config(hidden=2, prune=False))
    share = count(survey, "p2p", "given", (2,), [0, 2, 4]).share
    assert {name: size.tolist() for name, size in footprint(survey.step, share).items()} == {
        "matrix": [5 * 8 + 2 * 3 * 8] * 2,  # two blocks of 3 row pointers; column numbers and values of 4 bytes
        "features": [2 * 2 * 3 * 4] * 2,  # X and its dropped copy
        "vertices": [2 * (8 + 8 + 3 + 16)] * 2,
        "activations": [2 * (4 * 2 * 4 + 1)] * 2,  # H1, Z, two work arrays, a byte of mask
        "buffers": [2 * 2 * 4] * 2,  # a row out, a row in, of width 2
        "plan": [3 * 8] * 2,  # those two, and the row that the ghost block touches
        "parameters": [6 * 14 * 4] * 2}
    # degrees and a pointer of each row as read; 3 stored entries; 5 with loops and their pointers; rows beside ghosts
    setting_up = 2 * (35 + 32) + 3 * 4 + 2 * 3 * 4 + 5 * 34 + 2 * 3 * 8 + (2 + 2) * 100
    assert setup(survey.step, share).tolist() == [setting_up] * 2
    assert peak(survey.step, share).tolist() == [max(setting_up, 88 + 48 + 70 + 66 + 16 + 24 + 336)] * 2


def test_rows_that_are_left_out_by_hand(path_of_four):
    survey = Survey(path_of_four, Config(hidden=2))
    said = footprint(survey.step, count(survey, "p2p", "given", (1,), [0, 4]).share)
    whole = 10 * 8 + 5 * 8
    # rows 0, 1 of 0, 1, 2: 2 + 3 nonzeros; back, 0, 1, 2 of 0, 1: the same; row 0 of 0, 1: 2; and rows 0, 1 of 0
    assert said["matrix"] == whole + (5 * 8 + 3 * 8) + (5 * 8 + 4 * 8) + (2 * 8 + 2 * 8) + (2 * 8 + 3 * 8)
    # of the training step H1 and its mask of 2 rows, Z of one, T of one (A first); all rows of an evaluation
    assert said["activations"] == (2 * 2 + 1 * 2 + 1 * 2) * 4 + 2 + (4 * 2 + 4 * 2) * 4
    assert said["features"] == (3 + 3 + 4) * 3 * 4  # X, its dropped copy; X again


KINDS = [{}, {"directed": True, "weighted": True}, {"sparse": True}]
SETTINGS = [{}, {"layers": 3}, {"input_dropout": 0.0}, {"dtype": "float64"}, {"layers": 1}, {"layer_norm": True}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("model, hidden", [("gcn", 5), ("sage", 16), ("gin", 5)])
def test_one_rank_holds_what_is_said(tmp_path, model, hidden, kind, settings):
    graph = make(n=400, c=6, degree=1.5, train=8, **kind)
    store.write_graph(tmp_path / "graph.h5", graph)
    config = Config(model=model, hidden=hidden, **settings)
    survey = Survey(tmp_path / "graph.h5", config)
    check_run(hpgcn.load(tmp_path / "graph.h5"), config, survey)


@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_of_several_labels(model):
    graph, config = several_labels(make(), 3), Config(model=model, prune=False)
    check_run(graph, config, Survey(graph, config))


def check_run(source, config, survey):
    trainer = Trainer(source, config, SerialComm(), warm=False)
    for epoch in (1, 2):
        trainer.step(epoch)
        trainer.evaluate()
    check_held(survey.step, case(survey, "p2p", "whole", 1, (1,)).share, trainer, 0)


def test_products_that_are_formed_again_are_not_held():
    survey = Survey(make(directed=True), Config(layers=3, hidden=16, input_dropout=0.0, prune=False), (13, 16, 30, 40))
    share = case(survey, "p2p", "whole", 1, (1,)).share
    lean = replace(survey.step, lean=True)
    kept, formed = (footprint(step, share)["activations"] for step in (survey.step, lean))
    assert kept - formed == 203 * (16 + 30) * 4 - 203 * (40 - 30) * 4  # a work array takes A^T G, of 40, not H, of 30


@pytest.mark.parametrize("train", [8, None])
@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
def test_runs_that_do_not_keep_T(model, train, monkeypatch):
    graph, config = make(n=400, c=40, degree=1.5, train=train), Config(model=model, layers=3, hidden=20)
    survey = Survey(graph, config)
    survey.step = replace(survey.step, lean=True)
    monkeypatch.setattr("hpgcn.trainer.choose_lean", lambda *_: True)
    check_run(graph, config, survey)


@pytest.mark.parametrize("ranks", [1, 2, 6, 12])
@pytest.mark.parametrize("strategy", cost.STRATEGIES[1:])
@pytest.mark.parametrize("directed", [False, True])
def test_shares_add_up_to_the_graph(strategy, ranks, directed):
    survey = Survey(make(directed=directed), Config(prune=False))
    share = case(survey, strategy, "stored", ranks, cost.default_grid(strategy, ranks)).share
    assert share.rows.size == ranks
    assert share.rows.sum() == 203 * share.columns
    nonzeros = survey.whole.pattern.nnz
    for operand in share.whole.held:
        assert operand.entries.sum() == nonzeros * (ranks if strategy == "mop" else 1)
        assert operand.multiplied.sum() == nonzeros * share.slices  # each entry meets every column once
    assert len(share.whole.held) == 1 + directed
    assert (footprint(survey.step, share)["matrix"] > 0).all()
    assert (setup(survey.step, share) > footprint(survey.step, share)["matrix"]).all()


def test_two_dimensions_by_hand():
    # 0 -> all, all -> 0 with loops, 4 vertices: 4 + 2 + 2 + 2 nonzeros, cut after row 1 (6 + 4); columns cut alike
    star = np.zeros((4, 4))
    star[0] = star[:, 0] = 1
    survey = Survey(Graph.from_scipy(star), Config(prune=False), (3, 2))
    share = count(survey, "2d", "stored", (2, 2), [0, 2, 4]).share
    operand = share.whole.forward
    assert operand.entries.tolist() == [4, 2, 2, 2]
    assert operand.multiplied.tolist() == [6, 6, 4, 4]
    assert operand.pointers.tolist() == [3] * 4
    assert share.rows.tolist() == [2, 2, 2, 2]
    assert share.buffers.entries.tolist() == [2, 4, 2, 2]  # the other column's block
    assert share.buffers.sliced.tolist() == [2] * 4
    assert (share.columns, share.slices) == (2, 2)
    mixed = count(survey, "mop", "stored", (2,), [0, 2, 4]).share
    assert mixed.whole.forward.entries.tolist() == mixed.whole.forward.multiplied.tolist() == [10, 10]
    assert (mixed.columns, mixed.slices, mixed.rows.tolist()) == (1, 2, [2, 2])


def test_touched_rows_against_a_dense_matrix():
    A = (np.random.default_rng(0).random((40, 40)) < 0.05).astype(int)
    rows, columns = np.nonzero(A)
    indptr, cuts = np.searchsorted(rows, np.arange(41)), np.array([0, 0, 9, 30, 40])
    expected = [[int(A[a:b, c:d].any(1).sum()) for c, d in pairwise(cuts)] for a, b in pairwise(cuts)]
    assert touched_rows(indptr, columns, cuts, cuts).tolist() == expected
    part = np.random.default_rng(1).integers(0, 3, 40).astype(np.int32)
    pairs = {(int(i), int(part[j])) for i, j in zip(rows, columns) if part[i] != part[j]}
    assert touched_by_part(indptr, columns, part, 3).tolist() == [sum(part[i] == p for i, _ in pairs) for p in range(3)]
    in_order = np.sort(part)
    pairs = {(int(i), int(in_order[j])) for i, j in zip(rows, columns) if in_order[i] != in_order[j]}
    assert touched_by_part(indptr, columns, in_order, 3).tolist() == [sum(in_order[i] == p for i, _ in pairs)
                                                                       for p in range(3)]


def test_blocks_of_1d_by_hand():
    # the star again, rows 0, 1 and 2, 3: the first rank's rows touch both column blocks with row 0, its own with row 1
    indptr, indices = np.array([0, 4, 6, 8, 10]), np.array([0, 1, 2, 3, 0, 1, 0, 2, 0, 3])
    operand = stored_order("1d", (2,), split(4, 2), indptr, indices, np.array([2, 2]))
    assert operand.entries.tolist() == [6, 4]
    assert operand.listed.tolist() == [3, 4]
    assert operand.pointers.tolist() == [6, 6]

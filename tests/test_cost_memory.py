"""What ranks are said to hold: by hand on four vertices, against the arrays of real runs, and in sum over ranks."""
import numpy as np
import pytest
from graphs import make

import hpgcn
from hpgcn import cost, plan, store
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.cost import RankVolumes, Step, shares
from hpgcn.cost.memory import PARTS, footprint, peak, setup
from hpgcn.layout import Grid
from hpgcn.partition import Partition
from hpgcn.partition.model import pattern
from hpgcn.strategies.p2p import PointToPoint
from hpgcn.trainer import Trainer


def path_of_four(step):
    """Two ranks on the path 0-1-2-3: rows 2 + 2, nonzeros with loops 5 + 5, one row and one message each way."""
    two, one = np.array([2, 2]), np.array([1, 1])
    return shares.point_to_point(two, np.array([5, 5]), RankVolumes(one, one, one, one))


def test_by_hand():
    step = Step((3, 2, 2))
    share = path_of_four(step)
    assert {name: size.tolist() for name, size in footprint(step, share).items()} == {
        "matrix": [5 * 8 + 2 * 3 * 8] * 2,  # two blocks of 3 row pointers; column numbers and values of 4 bytes
        "features": [2 * 2 * 3 * 4] * 2,  # X and its dropped copy
        "vertices": [2 * (8 + 8 + 3 + 8)] * 2,
        "activations": [2 * (4 * 2 * 4 + 1)] * 2,  # H1, Z, two work arrays, a byte of mask
        "buffers": [2 * 2 * 4] * 2,  # a row out, a row in, of width 2
        "plan": [4 * 8] * 2,  # those two and at most 2 rows that the ghost block touches
        "parameters": [6 * 14 * 4] * 2}
    assert setup(step, share).tolist() == [2 * 59 + 5 * 52 + 6 * 8 + 2 * 3 * 4] * 2
    assert peak(step, share).tolist() == [88 + 48 + 54 + 66 + 16 + 32 + 336] * 2


def nbytes(*arrays):
    return sum(array.nbytes for array in arrays)


@pytest.mark.parametrize("settings", [{}, {"layers": 3}, {"input_dropout": 0.0}, {"dtype": "float64"}, {"layers": 1}])
@pytest.mark.parametrize("kind", [{}, {"directed": True, "weighted": True}, {"sparse": True}])
def test_one_rank_holds_what_is_said(tmp_path, kind, settings):
    graph = make(c=6, **kind)
    store.write_graph(tmp_path / "graph.h5", graph)
    config = Config(hidden=5, **settings)
    trainer = Trainer(hpgcn.load(tmp_path / "graph.h5"), config, SerialComm(), warm=False)
    for epoch in (1, 2):
        trainer.step(epoch)
        trainer.evaluate()

    sparse = graph.header.sparse_features
    step = Step(trainer.widths, trainer.rows.dtype.itemsize, sparse, constant=config.input_dropout == 0 and not sparse,
                directed=graph.header.directed)
    rows = pattern(graph)
    zero = np.zeros(1, np.int64)
    said = footprint(step, shares.point_to_point(
        np.array([graph.num_rows]), np.array([rows.nnz]), RankVolumes(zero, zero, zero, zero),
        np.array([graph.features.nnz]) if sparse else None))
    assert set(said) == set(PARTS)
    strategy, X, model = trainer.rows.strategy, trainer.rows.X, trainer.model
    matrices = strategy.local + (strategy.local_transposed if step.directed else ())
    assert said["matrix"] == nbytes(*matrices)
    assert said["activations"] == nbytes(*model.buffers.flat.values())
    assert said["plan"] == said["buffers"] == 0
    if sparse:
        once = nbytes(X.indptr, X.indices, X.data, X.transposed_indptr, X.transposed_indices, X.order)
        assert said["features"] == once + 2 * X.data.nbytes
    else:
        assert said["features"] == X.nbytes * (1 if step.constant else 2)
    assert said["parameters"] == 6 * trainer.parameters.flat.nbytes


class Alone(SerialComm):
    """One of several ranks: what others ask of it was found beforehand."""

    def __init__(self, mine, rank, size):
        super().__init__()
        self.mine, self.rank, self.size = mine, rank, size

    def alltoallv(self, arrays):
        return np.split(self.mine.send_rows + self.mine.layout.start, self.mine.send_offsets[1:-1])


@pytest.mark.parametrize("directed", [False, True])
def test_ranks_of_p2p_hold_what_is_said(directed):
    k, graph = 3, make(directed=directed)
    part = np.random.default_rng(1).integers(0, k, graph.num_rows)
    made = Partition.from_parts(part, k)
    graph = graph.permuted(made.perm, made.offsets)
    rows = pattern(graph)
    plans = plan.build_all(rows.indptr, rows.indices, made.offsets)
    volumes = RankVolumes(*(np.array(each) for each in zip(*(
        (one.send_rows.size, one.ghosts.size, one.destinations.size, one.sources.size) for one in plans))))
    step = Step((13, 4, 5), directed=directed)
    entries = np.diff(rows.indptr[made.offsets]).astype(np.int64)
    said = footprint(step, shares.point_to_point(np.diff(made.offsets), entries, volumes))
    for rank, mine in enumerate(plans):
        strategy = PointToPoint(graph, Grid(made.offsets, 1, rank), Alone(mine, rank, k), norm="none", max_width=4)
        *_, touched = zip(*strategy.blocks.values())
        blocks = [array for block in strategy.blocks.values() for array in block[:3]]
        matrix = nbytes(*strategy.local, *blocks)
        if directed:
            matrix += nbytes(*strategy.local_transposed, *strategy.ghost_transposed)
            assert said["matrix"][rank] == pytest.approx(matrix, rel=0.2)  # the transposed ghosts are a single block
        else:
            assert said["matrix"][rank] == matrix
        assert said["buffers"][rank] == nbytes(strategy.exchange.owned, strategy.exchange.ghost)
        listed = nbytes(mine.ghosts, mine.send_rows, *touched)
        assert listed <= said["plan"][rank] <= 1.5 * listed


@pytest.mark.parametrize("ranks", [1, 2, 6, 12])
@pytest.mark.parametrize("strategy", ["1d", "1.5d", "2d", "3d", "mop"])
def test_shares_add_up_to_the_graph(strategy, ranks):
    rows = pattern(make(directed=True))
    n, grid = rows.shape[0], cost.default_grid(strategy, ranks)
    offsets = cost.row_blocks(strategy, grid, rows.indptr)
    share = shares.stored_order(strategy, grid, offsets, rows.indptr, rows.indices)
    assert share.rows.size == ranks
    assert share.rows.sum() == n * share.columns
    assert share.entries.sum() == rows.nnz * (ranks if strategy == "mop" else 1)
    assert share.multiplied.sum() == rows.nnz * share.slices  # each entry meets every column once
    assert (footprint(Step((13, 4, 5)), share)["matrix"] > 0).all()


def test_two_dimensions_by_hand():
    # 0 -> all, all -> 0 with loops, 4 vertices: 4 + 2 + 2 + 2 nonzeros, cut after row 1 (6 + 4); columns cut alike
    indptr, indices = np.array([0, 4, 6, 8, 10]), np.array([0, 1, 2, 3, 0, 1, 0, 2, 0, 3])
    share = shares.stored_order("2d", (2, 2), np.array([0, 2, 4]), indptr, indices)
    assert share.entries.tolist() == [4, 2, 2, 2]
    assert share.multiplied.tolist() == [6, 6, 4, 4]
    assert share.rows.tolist() == [2, 2, 2, 2]
    assert share.moved_entries.tolist() == [8, 8, 4, 4]
    assert (share.columns, share.slices) == (2, 2)
    mixed = shares.stored_order("mop", (2,), np.array([0, 2, 4]), indptr, indices)
    assert mixed.entries.tolist() == mixed.multiplied.tolist() == [10, 10]
    assert (mixed.columns, mixed.slices, mixed.rows.tolist()) == (1, 2, [2, 2])

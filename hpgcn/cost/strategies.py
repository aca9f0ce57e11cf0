"""Bytes and messages of one training step under every strategy, forward and backward, per rank.

Ranks stand in a grid of R big row blocks x L pieces x C column blocks and are numbered in that order: counts are arrays
of that shape. Each strategy has one function for its products with A; `dense` and `weights` serve all.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from hpgcn import layout
from hpgcn.check import index_dtype
from hpgcn.cost.blocks import check_grid, cube
from hpgcn.cost.traffic import Prediction, allreduce, reduce_scatter, replicate
from hpgcn.errors import UsageError
from hpgcn.layout import Stages, split

POINTER_BYTES = 8  # row pointers of a block of A


@dataclass(frozen=True, eq=False)
class RankVolumes:
    """What each rank sends in one exchange of width 1, strategy p2p.

    Attributes
    ----------
    rows, received : (P,) int64
        Rows that each rank sends and receives.
    pairs : (P,) int64
        Messages that each rank sends: ranks that read something of it.
    sources : (P,) int64, optional
        Messages that each rank receives. The backward of a directed graph sends along the swapped lists; without
        this its messages are exact in total alone, `pairs` standing in for the ranks.
    """

    rows: np.ndarray
    received: np.ndarray
    pairs: np.ndarray
    sources: np.ndarray | None = None


def predict(strategy, step, grid, offsets, *, sent=None, nnz_blocks=None, nnz_blocks_transposed=None, stages=1):
    """Count what each rank sends in one training step.

    Parameters
    ----------
    strategy : str
        One of STRATEGIES.
    step : Step
    grid : tuple of int
        As `default_grid`.
    offsets : (B + 1,) int64
        Row blocks, as `row_blocks`; p2p does not read them (None will do).
    sent : RankVolumes
        p2p only.
    nnz_blocks : (R, S) int64
        2d and 3d only: `stage_nonzeros` of the matrix multiplied (A + I).
    nnz_blocks_transposed : (R, S) int64
        2d and 3d only, and only if step.directed: the same of its transpose.
    stages : int
        mop only: batches that each rank's rows travel in.

    Returns
    -------
    Prediction

    Raises
    ------
    UsageError
        The grid does not fit the strategy, the strategy's own counts are missing or of another shape, or stages < 1.
    """
    if stages < 1:
        raise UsageError(f"stages = {stages}: expected at least 1")
    grid = check_grid(strategy, int(np.prod(grid, dtype=object)), grid)
    R, L, C = cube(strategy, grid)
    if strategy == "p2p":
        sent = _check_volumes(sent, R)
        rows = np.zeros((R, 1), np.int64)  # a single column block: nothing else depends on them
        return predict_step(strategy, step, grid, [Map(sent, sent, step.directed)] * len(step.layers),
                            [rows] * len(step.widths))
    rows = _check_offsets(offsets, R * L).reshape(R, L)
    forward = backward = Blocks(rows, rows, C, batches=stages)
    if strategy in ("2d", "3d"):
        cuts = layout.stages(np.asarray(offsets), R, L, C)
        n = int(rows.sum())
        forward = backward = replace(forward, stages=cuts, sparse=block_bytes(
            _check_blocks(nnz_blocks, "nnz_blocks", R, C, cuts), rows, C, step.itemsize, n))
        if step.directed:
            backward = replace(forward, sparse=block_bytes(
                _check_blocks(nnz_blocks_transposed, "nnz_blocks_transposed", R, C, cuts), rows, C, step.itemsize, n))
    adjoint = step.directed and strategy in ADJOINTS
    return predict_step(strategy, step, grid, [Map(forward, backward, adjoint)] * len(step.layers),
                        [rows] * len(step.widths))


def predict_step(strategy, step, grid, maps, rows):
    """Count what each rank sends in one training step whose layers may compute some of the rows alone.

    Parameters
    ----------
    strategy, step, grid
        As `predict`.
    maps : list of L Map
        The products of each layer; None for a first layer that multiplies by neither A nor A^T.
    rows : list of L + 1 (R, L) int64
        Rows of each piece at each level: level l is what layer l reads, and layer l - 1 computes.

    Returns
    -------
    Prediction
    """
    prediction = Prediction(strategy, grid)
    for phase in ("forward", "backward"):
        for product in getattr(step, phase):
            for counts in product_counts(strategy, maps[product.layer], product, step.itemsize, phase == "backward"):
                prediction.add("aggregation", phase, counts)
    R, L, C = cube(strategy, grid)
    for phase, counts in dense(rows, C, step):
        prediction.add("dense", phase, counts)
    for counts in weights(R * L, C, step):
        prediction.add("weights", "backward", counts)
    return prediction


def product_counts(strategy, of, product, itemsize, backward):
    """What each rank sends in one product: yields (bytes, messages) of each call, arrays in the shape of the grid.

    Parameters
    ----------
    strategy : str
    of : Map
    product : hpgcn.cost.step.Product
    itemsize : int
    backward : bool
    """
    yield from PRODUCTS[strategy](of.backward if backward else of.forward, product, itemsize, backward and of.adjoint)


@dataclass(frozen=True, eq=False)
class Blocks:
    """What a product with A depends on, under all strategies but p2p.

    Attributes
    ----------
    rows : (R, L) int64
        Rows of H in each piece of each big block.
    rows_out : (R, L) int64
        Rows of the result.
    columns : int
        C.
    stages : Stages
        2d and 3d: intervals of the rows of H.
    sparse : (R, S) int64
        2d and 3d: bytes of the blocks of A, by big row block and stage.
    batches : int
        mop: pieces that the rows of each rank travel in.
    """

    rows: np.ndarray
    rows_out: np.ndarray
    columns: int
    stages: Stages | None = None
    sparse: np.ndarray | None = None
    batches: int = 1


@dataclass(frozen=True, eq=False)
class Map:
    """What a product with A and one with A^T depend on.

    Attributes
    ----------
    forward, backward : Blocks, or RankVolumes (p2p)
    adjoint : bool
        The backward returns partial sums along the ways of forward, which `backward` then is.
    """

    forward: Blocks | RankVolumes
    backward: Blocks | RankVolumes
    adjoint: bool = False


ADJOINTS = ("p2p", "1d", "1.5d")  # strategies that keep no A^T: if A is not symmetric they return partial sums


def point_to_point(volumes, product, itemsize, adjoint):
    """p2p: rows to those who read them; the adjoint returns partial sums along the swapped lists."""
    sent, pairs = (volumes.received, volumes.sources) if adjoint else (volumes.rows, volumes.pairs)
    yield sent * (product.width * itemsize), volumes.pairs if pairs is None else pairs


def one_d(blocks, product, itemsize, adjoint):
    """1d: every rank broadcasts its rows; the adjoint reduces partial sums to every rank."""
    own = blocks.rows * (product.width * itemsize)
    yield reduce_scatter(own, 0) if adjoint else replicate(own, 0)


def one_and_a_half_d(blocks, product, itemsize, adjoint):
    """1.5d: allgather over the replicas, broadcasts (adjoint: reduces) in each replica's stages, reduce_scatter.

    Big block k travels among the ranks of replica j(k); the P / c blocks are split evenly among the c replicas.
    """
    own, result = (rows * (product.width * itemsize) for rows in (blocks.rows, blocks.rows_out))
    groups, replicas = own.shape
    replica = np.repeat(np.arange(replicas), np.diff(split(groups, replicas)))
    whole = np.where(replica[:, None] == np.arange(replicas), own.sum(1, keepdims=True), 0)
    yield replicate(result if adjoint else own, 1)
    yield reduce_scatter(whole, 0) if adjoint else replicate(whole, 0)
    yield reduce_scatter(own if adjoint else result, 1)


def summa(blocks, product, itemsize, adjoint):
    """2d, 3d: a stage broadcasts A along rows and H along columns; layers add up in a reduce_scatter."""
    (R, L), C, cuts = blocks.rows.shape, blocks.columns, blocks.stages
    width = np.diff(split(product.width, C))
    sparse = blocks.sparse.T
    yield tuple(_gathered(counts * (C - 1), (cuts.piece, cuts.column), (L, C, R)).transpose(2, 0, 1)
                for counts in (sparse, sparse > 0))
    tall = np.diff(cuts.offsets)[:, None] * width * itemsize
    yield tuple(_gathered(counts * (R - 1), (cuts.row, cuts.piece), (R, L, C)) for counts in (tall, tall > 0))
    yield reduce_scatter(blocks.rows_out[..., None] * width * itemsize, 1)


def mixture(blocks, product, itemsize, adjoint):
    """mop: all-to-all from rows to columns and back, a message for each batch; before it the bits of a mask, in one."""
    width = np.diff(split(product.width, blocks.rows.size))
    others = ~np.eye(blocks.rows.size, dtype=bool)
    for rows, axis in ((blocks.rows, 1), (blocks.rows_out, 0)):
        moved = rows * width * itemsize * others
        yield moved.sum(axis), (np.minimum(rows, blocks.batches) * (moved > 0)).sum(axis)
    if product.masked:
        bits = blocks.rows_out * -(-width // 8) * others
        yield bits.sum(1), np.count_nonzero(bits, axis=1)


PRODUCTS = {"p2p": point_to_point, "1d": one_d, "1.5d": one_and_a_half_d, "2d": summa, "3d": summa, "mop": mixture}


def dense(rows, columns, step):
    """Products with W, softmax and norms where C column blocks share the rows: (phase, (bytes, messages)) of each call.

    Forward, reduce_scatter of partial products. Backward, allgather of the gradients that W and its own gradient need.
    Both, allreduce of the sums over the columns of a row that softmax and layer norm take.
    """
    shared = [np.broadcast_to(level[..., None], (*level.shape, columns)) for level in rows]
    for phase, products, call in (("forward", step.linear, reduce_scatter), ("backward", step.gathered, replicate)):
        for level, width in products:
            yield phase, call(shared[level] * np.diff(split(width, columns)) * step.itemsize, 2)
    for phase, level, size in step.row_sums:
        yield phase, allreduce(shared[level] * size, 2)


def weights(row_blocks, columns, step):
    """Gradients of all parameters: an allreduce over each column of ranks, then an allgather along their rows."""
    size = sum(np.diff(split(shape[0], columns)) * math.prod(shape[1:]) for shape in step.parameters.values())
    size = np.broadcast_to(size * step.itemsize, (row_blocks, columns))
    return allreduce(size, 0), replicate(size, 1)


def p2p_step(volume, pairs, step, ranks):
    """Traffic of one training step over all ranks, strategy p2p, from totals alone.

    Parameters
    ----------
    volume : int
        Rows sent in one exchange, over all ranks (connectivity-1 of the partition).
    pairs : int
        Non-empty (source, destination) pairs of one exchange.
    step : Step
    ranks : int
        P.
    """
    first = np.arange(ranks) == 0  # whose share is whose makes no difference to the totals
    sent = RankVolumes(volume * first, volume * first, pairs * first)
    return predict("p2p", step, (ranks,), None, sent=sent).traffic()


def _gathered(counts, places, shape):
    """Sum rows of counts, one a stage, at the places of the ranks that send them."""
    found = np.zeros(shape, np.int64)
    np.add.at(found, places, counts)
    return found


def block_bytes(nonzeros, rows, columns, itemsize, n):
    """Bytes of the blocks of A: row pointers, values, column numbers in one message; an empty block is not sent.

    Parameters
    ----------
    nonzeros : (R, S) int64
    rows : (R, L) int64
        Rows of A in each piece of each big block.
    columns : int
        C; with one column block A stays where it is.
    itemsize : int
    n : int
        Columns of A.
    """
    if columns == 1:
        return np.zeros(np.shape(nonzeros), np.int64)
    pointers = (rows.sum(1, keepdims=True) + 1) * POINTER_BYTES
    nonzeros = np.asarray(nonzeros, np.int64)
    return np.where(nonzeros > 0, pointers + nonzeros * (itemsize + index_dtype(n).itemsize), 0)


def _check_blocks(nonzeros, name, row_blocks, columns, cuts):
    shape = row_blocks, cuts.row.size
    if nonzeros is None and columns == 1:
        return np.zeros(shape, np.int64)
    if nonzeros is None or np.shape(nonzeros) != shape:
        found = "nothing" if nonzeros is None else f"shape {np.shape(nonzeros)}"
        raise UsageError(f"{name}: {found} given, expected the nonzeros of {shape[0]} x {shape[1]} blocks")
    return nonzeros


def _check_offsets(offsets, blocks):
    offsets = np.asarray([] if offsets is None else offsets)
    if offsets.size != blocks + 1 or offsets[0] != 0 or np.any(np.diff(offsets) < 0):
        raise UsageError(f"offsets of {offsets.size} numbers given, expected {blocks + 1}, rising from 0: "
                         f"one row block for each of {blocks}")
    return np.diff(offsets).astype(np.int64)


def _check_volumes(sent, ranks):
    sizes = [] if sent is None else [np.size(each) for each in (sent.rows, sent.received, sent.pairs)]
    if set(sizes) != {ranks}:
        raise UsageError(f"p2p on {ranks} ranks: expected the volumes of {ranks} ranks, found {sizes or 'none'}")
    return sent

"""The arrays that a trainer holds, summed up and held against what hpgcn.cost.memory says of its rank."""
from pathlib import Path

import numpy as np

from hpgcn.cost.memory import PARTS, footprint, owned
from hpgcn.cost.work import kept_arrays
from hpgcn.dense import SparseRows
from hpgcn.strategies.mop import MixtureOfParallelism
from hpgcn.strategies.p2p import PointToPoint
from hpgcn.strategies.summa import Summa


def distinct(arrays):
    """Bytes of arrays, each once."""
    return sum({id(array): array.nbytes for array in arrays}.values())


def of_strategy(strategy):
    """(arrays of the matrix, row numbers) of one map."""
    if isinstance(strategy, PointToPoint):
        blocks, listed = [], []
        for product in {strategy.product, strategy.product_back}:
            blocks += product.local
            for block in product.blocks.values():
                blocks += block[:3]
                listed.append(block[3])
            if not strategy.symmetric:
                blocks += [*product.local_transposed, *product.ghost_transposed]
            listed += [product.plan.ghosts, product.plan.send_rows]
        return blocks, listed
    if isinstance(strategy, Summa):
        return [message for blocks in {strategy.A, strategy.A_transposed} for message in blocks.messages.values()], []
    if isinstance(strategy, MixtureOfParallelism):
        return [array for operand in (strategy.operand, strategy.operand_back) for array in operand.matrix], []
    products = {strategy.product, strategy.reverse} - {None}
    blocks = [block for product in products for block in [*product.blocks, *(product.transposed or [])]]
    return [array for block in blocks for array in block[:3]], [block[3] for block in blocks]


def features(X):
    """Arrays of dense or sparse features."""
    if isinstance(X, tuple):
        return [array for each in X for array in features(each)]
    if isinstance(X, SparseRows):
        own = [X.indptr, X.indices, X.data, X.transposed_indptr, X.transposed_indices, X.order]
        return own + [array for _, part in X.parts.values() for array in features(part)]
    return [X]


def check_held(step, share, trainer, rank):
    """Hold every part of the footprint of a rank against the arrays of its trainer."""
    said = {name: int(sizes[rank]) for name, sizes in footprint(step, share).items()}
    assert tuple(said) == PARTS
    rows, flat = trainer.rows, dict(trainer.buffers.flat)
    X = [trainer.training.X, trainer.evaluation.X]
    dropped = flat.pop("X", np.empty(0)).nbytes
    if step.sparse_features:
        dropped += 2 * X[0].data.nbytes
    kept = kept_arrays(step, share.train, share.evaluated, owned(share))
    kept, held = {name: int(sizes[rank]) for name, sizes in kept.items()}, {k: each.nbytes for k, each in flat.items()}
    np.testing.assert_equal(*({name: each.get(name, 0) for name in kept | held} for each in (kept, held)))
    found = {"activations": distinct(flat.values()) + distinct(rows.columns.buffers.values())}
    found["features"] = distinct([array for each in X for array in features(each)]) + dropped
    maps = {id(each): each for reach in (rows.train, rows.evaluated) for each in reach.maps if each is not None}
    maps[id(rows.strategy)] = rows.strategy
    matrices, listed = zip(*map(of_strategy, maps.values()))
    found["matrix"] = distinct([array for each in matrices for array in each])
    found["plan"] = distinct([array for each in listed for array in each])
    if isinstance(rows.strategy, PointToPoint):
        exchange = rows.strategy.product.exchange
        found["buffers"] = exchange.owned.nbytes + exchange.ghost.nbytes
    else:
        found["buffers"] = rows.strategy.buffer_bytes
    found["parameters"] = 6 * trainer.parameters.flat.nbytes
    if step.sparse_features and share.columns > 1:  # a column block is taken to have an even share of the entries
        assert abs(said["features"] / found.pop("features") - 1) < 0.3
    np.testing.assert_equal({name: said[name] for name in found}, found)


def highest_resident():
    """Peak resident set since the last call, bytes."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    Path("/proc/self/clear_refs").write_text("5")
    return int(status["VmHWM"].split()[0]) * 1024

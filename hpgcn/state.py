"""What a run needs to go on after an epoch: taken from a trainer, and put back into one. Equal on all ranks."""
from __future__ import annotations

import hashlib
import logging
import zlib
from dataclasses import asdict, dataclass

import numpy as np

from hpgcn.errors import InternalError
from hpgcn.model import Parameters
from hpgcn.rundir import versions

log = logging.getLogger("hpgcn")
EXACT = ("ranks", "strategy", "grid", "threads", "device", "memory", "versions", "layout_sha256")  # decide on the bits


@dataclass(eq=False)
class State:
    """What a run needs to go on after an epoch.

    Attributes
    ----------
    epoch : int
    config : dict
        The settings of the run that wrote it.
    metrics : dict
        The epoch's line of metrics.jsonl.
    best_epoch : int
        0 before the first evaluation.
    best_metrics : dict
        That epoch's line.
    arrays : dict of ndarray
        weights/NAME, best/NAME (the best epoch's) and optimizer/KIND/NAME, as hpgcn.model.Parameters names them.
    told : dict
        Everything else: graph_sha256 (of the file trained on), source_sha256 (of the one that was partitioned into it,
        or its own), content_sha256 (`StoredGraph.checksum` when it was opened; not in states of older versions),
        max_sent_bytes (of a rank in an epoch), and what EXACT names.
    """

    epoch: int
    config: dict
    metrics: dict
    best_epoch: int
    best_metrics: dict
    arrays: dict
    told: dict


def capture(trainer, best, metrics):
    """Return the State after an epoch; every rank of the trainer calls this together.

    Raises
    ------
    InternalError
        On all ranks: the weights of some rank differ from those of rank 0.
    """
    flats = {"weights": trainer.parameters.flat,
             **{f"optimizer/{name}": flat for name, flat in trainer.optimizer.state().items()}}
    agree(trainer.comm, {kind: trainer.comm.device.get(flat) for kind, flat in flats.items()})
    if best.epoch:
        flats["best"] = best.weights
    arrays = {f"{kind}/{name}": array for kind, flat in flats.items() for name, array in trainer.named(flat).items()}
    told = {**_circumstances(trainer), "max_sent_bytes": trainer.max_sent}
    return State(metrics["epoch"], asdict(trainer.config), metrics, best.epoch, best.metrics, arrays, told)


def restore(trainer, state, best):
    """Put a trainer and its Best where they were after an epoch; every rank calls this together.

    Raises
    ------
    DataError
        The checkpoint holds other arrays than the model has.
    """
    def flat(kind):
        arrays = {name.removeprefix(f"{kind}/"): array for name, array in state.arrays.items()
                  if name.startswith(f"{kind}/")}
        parameters, _ = Parameters.stored(arrays, config.dtype, config.layers, config.architecture, config.layer_norm,
                                          f"checkpoint of epoch {state.epoch}: {kind}")
        return trainer.comm.device.put(parameters.flat)

    config = trainer.config
    trainer.parameters.flat[:] = flat("weights")
    trainer.optimizer.restore(state.epoch, {name: flat(f"optimizer/{name}") for name in trainer.optimizer.state()})
    if state.best_epoch:
        best.offer(state.best_epoch, state.best_metrics, flat("best"))
    trainer.max_sent = state.told["max_sent_bytes"]
    now = _circumstances(trainer)
    other = [name for name in EXACT if now[name] != state.told.get(name)]
    changed = ", ".join("partition" if name == "layout_sha256" else name for name in other
                        if name != "layout_sha256" or len(other) == 1)
    log.info("%s: going on after epoch %d%s", config.out, state.epoch,
             f" with another {changed}: equal to rounding" if other else "")


def agree(comm, flats):
    """Refuse to go on unless all ranks hold the same bits.

    Parameters
    ----------
    flats : dict of ndarray

    Raises
    ------
    InternalError
        On all ranks, naming those that differ from rank 0 and in what.
    """
    mine = {name: zlib.crc32(np.ascontiguousarray(flat)) for name, flat in flats.items()}
    first, *others = comm.allgather(mine)
    wrong = [f"rank {comm.ranks[rank]} ({', '.join(name for name in mine if other[name] != first[name])})"
             for rank, other in enumerate(others, 1) if other != first]
    if wrong:
        error = InternalError(f"no checkpoint: {', '.join(wrong)} differ from rank {comm.ranks[0]}, "
                              "expected the same bits on every rank")
        error.collective = True
        raise error


def _circumstances(trainer):
    """What EXACT names, of this run; every rank calls this together."""
    rows, config = trainer.rows, trainer.config
    owned = trainer.comm.allgather(zlib.crc32(rows.vertex))
    layout = [config.strategy, rows.axes, config.stages, owned]
    return {"ranks": trainer.comm.size, "strategy": config.strategy, "grid": "x".join(map(str, rows.axes)),
            "threads": trainer.threads, "device": rows.devices, "memory": config.memory, "versions": versions(),
            "layout_sha256": hashlib.sha256(repr(layout).encode()).hexdigest()}

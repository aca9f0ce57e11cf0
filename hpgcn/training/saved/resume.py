"""Resume a run: read its newest checkpoint, and set a Trainer to that state."""
from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.errors import ConfigError, DataError, agreed, setting
from hpgcn.kernels.host.accesses import accessed
from hpgcn.model.embedding import NAME as EMBEDDING
from hpgcn.training.files.records import read_summary
from hpgcn.training.files.result import read_result
from hpgcn.training.saved.checkpoint_state import (
    BITWISE_FIELDS,
    bitwise_fields,
    describe_differences,
)
from hpgcn.training.saved.learned_rows import check_learned, scatter_rows
from hpgcn.training.steps.loop_state import LATER_SUMS, SUMS, EpochSums
from hpgcn.training.steps.stopping import is_finished

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.config import Config
    from hpgcn.training.saved.checkpoint import Checkpoints
    from hpgcn.training.saved.checkpoint_state import CheckpointState
    from hpgcn.training.trainer import Trainer

log = logging.getLogger("hpgcn")


def load_resume_state(checkpoints: Checkpoints, config: Config,
                      comm: SerialComm) -> tuple:
    """Read the newest checkpoint of a run directory; all ranks call this together.

    Return the newest CheckpointState, None if the run starts at epoch 1; and the
    Result, None unless the run is finished. Errors on all ranks are those of
    `Checkpoints.load` and `Checkpoints.check`. A ConfigError is raised if the run has
    done more epochs than requested. The same if it is finished, has no checkpoint, and
    more epochs are requested.
    """
    saved = summary = None

    # read the checkpoint or the result on rank 0
    with comm.collective_errors():
        if comm.rank == 0:
            saved = checkpoints.load()
            if saved is not None:
                checkpoints.check(saved, config)
                unknown = saved.epoch == config.epochs and not saved.best_epoch
                if saved.epoch > config.epochs or unknown:
                    least = "above" if unknown else "of at least"
                    raise ConfigError(f"{config.out}: has a checkpoint after epoch {saved.epoch}, "
                                      f"but {setting('epochs', config.epochs)}; expected a number "
                                      f"{least} {saved.epoch}")
            done = _finished_summary(config.out, config.epochs, config.patience, saved)
            summary = done and read_result(config, done)

    common = saved  # arrays of single ranks stay on rank 0 until their ranks are known
    if saved is not None:
        arrays = {name: array for name, array in saved.arrays.items()
                  if name.rpartition("/")[2] not in ("lasting", EMBEDDING)}
        common = replace(saved, arrays=arrays)

    common, summary = comm.bcast((common, summary))
    return saved or common, summary


def _finished_summary(out: str, epochs: int, patience: int,
                      saved: CheckpointState | None) -> dict | None:
    """Return the summary of a run if it is finished; None if epochs remain."""
    summary = read_summary(out)
    if summary is not None:
        if is_finished(summary["epochs"], summary["best_epoch"], epochs=epochs,
                       patience=patience):
            log.info("%s: finished after epoch %d, nothing to do", out, summary["epochs"])
            return summary
        if saved is None:
            raise ConfigError(f"{out}: finished after epoch {summary['epochs']} and has no "
                              "checkpoint to continue from: start a new run with another "
                              f"{setting('out')}, or {setting('overwrite', True)}")
    elif saved is None:
        log.info("%s: no checkpoint, starting at epoch 1", out)
    return None


def restore(trainer: Trainer, saved: CheckpointState, history: list[dict]) -> None:
    """Set the arrays and the LoopState of a Trainer from a CheckpointState.

    All ranks call this together. `history` has the metrics of earlier epochs.
    """
    comm, state, out = trainer.comm, trainer.state, trainer.config.out

    def flat(kind: str) -> np.ndarray:
        found = saved.parameters(kind)[0]
        if trainer.plan.spec.embedding:
            rows = None
            with comm.collective_errors():
                if comm.rank == 0:
                    rows = check_learned(saved.of(kind), trainer.plan.spec.embedding,
                                         f"{out}: checkpoint: {kind}",
                                         trainer.plan.header.num_nodes)
            found = found.with_rows(scatter_rows(trainer.shard, rows))
        return comm.device.put(found.flat)

    # the loop
    state.epoch = saved.epoch
    state.steps = saved.steps
    state.history = history
    state.max_sent_bytes = saved.provenance["max_sent_bytes"]
    under_way = saved.provenance.get("under_way")
    if under_way:
        state.sums = EpochSums(**{name: under_way[name] for name in (*SUMS, *LATER_SUMS)
                                  if name in under_way})
        state.sums.parts |= under_way.get("parts", {})
    if saved.best_epoch:
        state.best.update_if_better(saved.best_epoch, saved.best_metrics, flat("best"),
                                    trainer.run_info.metric)

    # the parameters, and the moments of the optimizer
    weights = flat("weights")
    accessed((weights,), (trainer.parameters.flat,))
    trainer.parameters.flat[:] = weights
    moments = {name: flat(f"optimizer/{name}") for name in trainer.optimizer.MOMENTS}
    trainer.optimizer.restore(state.steps, moments)

    # the arrays of a strategy that depend on the partition
    now = bitwise_fields(trainer)
    other = [name for name in BITWISE_FIELDS if now[name] != saved.provenance[name]]
    if trainer.shard.strategy.num_monitored_steps and {"ranks", "layout_sha256"} & {*other}:
        raise agreed(ConfigError(
            f"{out}: {trainer.run_info.strategy} depends on the partition: continue with the "
            f"{saved.provenance['ranks']} ranks and the partition of the run"))
    _restore_persistent_arrays(trainer, saved.arrays.get("lasting"))

    # log where the run continues
    where = f"epoch {state.epoch}"
    if state.within_epoch:
        where = f"step {state.sums.steps} of epoch {state.epoch + 1}"
    log.info("%s: continuing after %s%s", out, where,
             f" with {describe_differences(other)}: results are equal up to "
             "rounding" if other else "")


def _restore_persistent_arrays(trainer: Trainer, lasting: np.ndarray | None) -> None:
    """Fill the arrays that a strategy stores between steps.

    Their content is `lasting` on rank 0, or None.
    """
    comm, shard = trainer.comm, trainer.shard
    arrays = shard.persistent_arrays()
    own_numbers = np.empty(sum(array.size for array in arrays), shard.spec.dtype)
    size = int(comm.sum([own_numbers.size])[0])

    with comm.collective_errors():
        found = 0 if lasting is None else lasting.size
        if comm.rank == 0 and found != size:
            raise DataError(f"{trainer.config.out}: the checkpoint holds {found} numbers of "
                            f"earlier steps, expected {size}")

    # each rank takes its part, in the order of arrays
    if size:
        comm.scatter_rows(lasting, own_numbers)
    first = 0
    for array in arrays:
        part = own_numbers[first:first + array.size].reshape(array.shape)
        accessed((), (array,))
        array[...] = comm.device.put(part)
        first += array.size

    shard.resume_at_step(trainer.state.steps)

"""Collect the state of a run from a Trainer for a checkpoint, and check it after reading."""
from __future__ import annotations

import hashlib
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.config import Config
from hpgcn.errors import DataError, InternalError, agreed
from hpgcn.graphs.validation import check_finite
from hpgcn.model import Parameters, find_model, find_widths
from hpgcn.store import Field, check_fields, parse_json
from hpgcn.strategies import read_options
from hpgcn.training.files.records import COUNT, FROM_ONE, MOST, TEXT, check_metrics
from hpgcn.training.files.run_directory import stored_config, versions
from hpgcn.training.saved.learned_rows import check_learned
from hpgcn.training.steps.loop_state import LATER_SUMS, SUMMED_PARTS, SUMS
from hpgcn.training.steps.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.training.trainer import Trainer

BITWISE_FIELDS = (  # decide on the bits
    "ranks", "strategy", "grid", "threads", "device", "memory", "versions", "layout_sha256")
# attributes of state.h5 that are JSON
OBJECTS = ("metrics", "best_metrics", "versions", "under_way")
ATTRIBUTES = {
    "epoch": COUNT, "best_epoch": COUNT, "metrics": Field(dict), "best_metrics": Field(dict),
    "max_sent_bytes": Field(float, 0, MOST), "source_sha256": TEXT, "graph_sha256": TEXT,
    "ranks": FROM_ONE, "strategy": TEXT, "grid": TEXT, "threads": FROM_ONE, "device": TEXT,
    "memory": TEXT, "versions": Field(dict), "layout_sha256": TEXT}
NAMES = {  # names of fields in messages
    "ranks": "another number of ranks", "threads": "another number of threads",
    "memory": "another memory limit", "versions": "other versions",
    "layout_sha256": "another partition"}


@dataclass(eq=False)
class CheckpointState:
    """The state from which a run can resume after a step.

    `arrays` are weights/NAME, best/NAME (the best epoch's) and optimizer/KIND/NAME,
    with the names of hpgcn.model.Parameters. Those of rank 0 have learned rows, (n, d) in
    ORIGINAL order, under the name `embedding`. Rank 0 also has `lasting`, (size,), for a
    strategy whose steps read earlier ones: `Strategy.persistent_arrays` of all ranks in
    order. `provenance` is everything else:

    - graph_sha256: of the training file;
    - source_sha256: of the file that was partitioned into it, or its own;
    - content_sha256: `StoredGraph.checksum` when it was opened; not in states of older versions;
    - max_sent_bytes: of a rank in an epoch;
    - steps: training steps taken; not in states of older versions, where it equals the epochs;
    - under_way: the EpochSums of an incomplete epoch, a dict; missing otherwise;
    - the fields of BITWISE_FIELDS.
    """

    epoch: int  # the last one that is complete, 0 for none
    config: dict  # the settings of the run that wrote it
    metrics: dict  # the epoch's line of metrics.jsonl
    best_epoch: int  # 0 before the first evaluation
    best_metrics: dict  # that epoch's line
    arrays: dict
    provenance: dict

    @property
    def steps(self) -> int:
        """Number of training steps taken."""
        return self.provenance.get("steps", self.epoch)

    @property
    def kinds(self) -> list[str]:
        """Groups of stored arrays: weights, optimizer/KIND, and best.

        The last one exists after the first evaluation.
        """
        moments = OPTIMIZERS[self.config["optimizer"]].MOMENTS
        best = ["best"] if self.best_epoch else []
        return ["weights", *(f"optimizer/{name}" for name in moments), *best]

    def of(self, kind: str) -> dict[str, np.ndarray]:
        """Return the arrays of one of `kinds`, by the names of the parameters."""
        return {name.removeprefix(f"{kind}/"): array for name, array in self.arrays.items()
                if name.startswith(f"{kind}/")}

    def parameters(self, kind: str) -> tuple[Parameters, list]:
        """Return the arrays of one of `kinds` as Parameters, and the widths.

        Raise a DataError as Parameters.stored.
        """
        options = Config(**self.config)
        name = f"checkpoint of epoch {self.epoch}: {kind}"
        parameters, spec = Parameters.stored(self.of(kind), options, name)
        return parameters, list(spec.widths)


def capture(trainer: Trainer) -> CheckpointState:
    """Return the CheckpointState of a Trainer after a step.

    All ranks call this together. An InternalError on all ranks as `agree`.
    """
    comm, state, shard = trainer.comm, trainer.state, trainer.shard

    # arrays of all ranks alike
    flats = {"weights": trainer.parameters.flat,
             **{f"optimizer/{name}": flat for name, flat in trainer.optimizer.moments.items()}}
    shared = slice(trainer.parameters.shared.size)
    agree(comm, {kind: comm.device.get(flat[shared]) for kind, flat in flats.items()})
    if state.best.epoch:
        flats["best"] = state.best.weights
    arrays = {f"{kind}/{name}": array for kind, flat in flats.items()
              for name, array in trainer.arrays_by_name(flat).items()}

    # arrays that a strategy keeps between steps, of all ranks in turn
    lasting = [comm.device.get(array).ravel() for array in shard.persistent_arrays()]
    lasting = np.concatenate([np.empty(0, shard.spec.dtype), *lasting])
    if comm.sum([lasting.size])[0]:
        arrays["lasting"] = comm.gather_rows(lasting)

    # everything else
    provenance = {**bitwise_fields(trainer), "max_sent_bytes": state.max_sent_bytes,
                  "steps": state.steps}
    if state.within_epoch:
        provenance["under_way"] = asdict(state.sums)
    return CheckpointState(state.epoch, asdict(trainer.config), state.last_metrics,
                           state.best.epoch, state.best.metrics, arrays, provenance)


def parse(path: Path, arrays: dict[str, np.ndarray],
          attributes: dict[str, Any]) -> tuple[CheckpointState, list]:
    """Validate the result of store.read_state.

    Return a CheckpointState and the model's widths. Everything is checked, so that a
    run can resume from the state. Raise a DataError if an attribute is missing, of
    another type or out of range. The same if an array is missing, unexpected, of
    another shape or dtype, or not finite.

    Everything is checked, so that a run can resume from the state. DataError if an
    attribute is missing, of another type or out of range. The same if an array is
    missing, unexpected, of another shape or dtype, or not finite.
    """
    # texts of JSON become objects
    values = dict(attributes)
    for name in OBJECTS:
        if isinstance(values.get(name), str):
            values[name] = parse_json(values[name].encode(), f"{path}: {name}")

    # check the kind and range of each field
    within = "under_way" in values
    fields = ATTRIBUTES if within else ATTRIBUTES | {"epoch": FROM_ONE}
    check_fields(values, fields, path)
    check_fields(values, {"steps": FROM_ONE, "under_way": Field(dict)}, path, whole=within)
    if within:
        check_fields(values["under_way"], SUMS, f"{path}: under_way")
        later = LATER_SUMS | {"parts": Field(dict)}
        check_fields(values["under_way"], later, f"{path}: under_way", whole=False)
        parts = values["under_way"].get("parts", {})
        check_fields(parts, SUMMED_PARTS, f"{path}: under_way: parts", whole=False)

    # separate the settings from the state
    config = asdict(stored_config(path, values.pop("config_toml")))
    state = CheckpointState(config=config, arrays=arrays, provenance=values, **{
        name: values.pop(name) for name in ("epoch", "metrics", "best_epoch", "best_metrics")})

    # metrics must be of the epochs that the state names
    for name, metrics, epoch in (("metrics", state.metrics, state.epoch),
                                 ("best_metrics", state.best_metrics, state.best_epoch)):
        if epoch:
            check_metrics(metrics, f"{path}: {name}")
        if metrics.get("epoch", 0) != epoch or epoch > state.epoch:
            raise DataError(f"{path}: {name} is of epoch {metrics.get('epoch', 0)}, "
                            f"expected {epoch}")
    return state, _check_arrays(path, state)


def _check_arrays(path: Path, state: CheckpointState) -> list[int]:
    """Raise DataError for arrays that do not fit the model; return its widths."""
    # refuse arrays of unknown names
    options = Config(**state.config)
    known = {f"{kind}/{name}" for kind in state.kinds for name in state.of(kind)} | {"lasting"}
    unknown = state.arrays.keys() - known
    if unknown:
        raise DataError(f"{path}: array {min(unknown)} is unknown, "
                        f"expected {', '.join(state.kinds)}")

    # refuse wrong types and numbers that are not finite
    for name, array in state.arrays.items():
        where = f"{path}: {name}"
        if array.dtype != options.number_dtype:
            raise DataError(f"{where} has dtype {array.dtype}, expected {options.number_dtype}")
        check_finite(array, where)
        if name.startswith("optimizer/variance/") and (array < 0).any():
            raise DataError(f"{where} is negative at {int(array.argmin())}")

    # all kinds have the widths of the model
    first = None
    for kind in state.kinds:
        try:
            widths = state.parameters(kind)[1]
        except DataError as error:
            raise DataError(f"{path}: {error}") from error
        check_learned(state.of(kind), options.embedding, f"{path}: {kind}")
        first = first or widths
        expected = list(find_widths(options, find_model(options), first[0], first[-1]))
        if widths != expected:
            raise DataError(f"{path}: {kind} has widths {widths}, expected {expected}")
    return first


def describe_differences(names: list[str]) -> str:
    """Return a phrase for fields that differ: "another number of ranks and another grid".

    A different layout is mentioned only if all other fields are equal, because they
    would explain it.
    """
    words = [NAMES.get(name, f"another {name}") for name in names
             if name != "layout_sha256" or len(names) == 1]
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def checksum(array: Any) -> int:
    """Return the CRC-32 of the bytes of an array."""
    contiguous: Any = np.ascontiguousarray(array)
    return zlib.crc32(contiguous)


def agree(comm: SerialComm, flats: dict[str, Any]) -> None:
    """Raise InternalError unless the arrays in `flats` have the same bits on all ranks.

    The error, on all ranks, names the ranks and arrays that differ from rank 0.
    """
    checksums = {name: checksum(flat) for name, flat in flats.items()}
    first, *others = comm.allgather(checksums)
    wrong = []
    for rank, other in enumerate(others, 1):
        if other != first:
            names = ", ".join(name for name in checksums if other[name] != first[name])
            wrong.append(f"rank {comm.ranks[rank]} ({names})")
    if wrong:
        raise agreed(InternalError(f"no checkpoint: {', '.join(wrong)} differ from rank "
                                   f"{comm.ranks[0]}, expected the same bits on every rank"))


def bitwise_fields(trainer: Trainer) -> dict[str, Any]:
    """Return the BITWISE_FIELDS of this run, which decide on the bits of its result.

    All ranks call this.
    """
    info, config = trainer.run_info, trainer.config
    owned = trainer.comm.allgather(checksum(trainer.shard.vertex))
    shape = trainer.plan.grid_shape
    options = read_options(config)
    layout = [options.strategy, shape, options.pipeline_batches, owned]
    return {"ranks": info.ranks, "strategy": info.strategy, "grid": info.grid,
            "threads": info.threads, "device": info.device,
            "memory": "" if config.scratch else config.memory,  # files change no result
            "versions": versions(),
            "layout_sha256": hashlib.sha256(repr(layout).encode()).hexdigest()}

"""Checkpoints of a run, the newest two of which remain.

They are folders RUN/checkpoints/step-00000120 with state.h5 and manifest.json. Only
rank 0 writes them, because all ranks have the same state. A checkpoint is written into
a temporary folder, synchronized to disk and renamed, so it appears whole or not at all.
Its manifest has the SHA-256 of state.h5. A run resumed with the same ranks, partition,
threads and versions gives the bits of an undisturbed one. With others it is equal to
rounding.
"""
from __future__ import annotations

import json
import logging
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hpgcn import store
from hpgcn.config import SETTINGS, Config, settings_of_run
from hpgcn.errors import COMMAND_LINE, ConfigError, DataError, HpgcnError, StorageError, setting
from hpgcn.graphs.graph_source import DIGESTS
from hpgcn.runtime import faults
from hpgcn.runtime.signals import INTERRUPTED
from hpgcn.training.saved.checkpoint_state import OBJECTS, capture, parse
from hpgcn.training.steps.stopping import make_stop_error

if TYPE_CHECKING:
    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.training.files.run_directory import RunDirectory
    from hpgcn.training.saved.checkpoint_state import CheckpointState
    from hpgcn.training.trainer import Trainer

log = logging.getLogger("hpgcn")
KEPT = 2
NAME, LEFT = re.compile(r"step-\d{8,}"), re.compile(r"\.step-\d{8,}\.(tmp|old)")


class Checkpoints:
    """The checkpoints in a run directory, managed by rank 0.

    The run trains on `source`.
    """

    def __init__(self, run: str, source: GraphSource) -> None:
        self.path = Path(run) / "checkpoints"
        self.source = source
        self._digests = None
        self._kept = []  # names

    def load(self) -> CheckpointState | None:
        """Return the newest readable CheckpointState, or None without a checkpoint.

        Raise a StorageError if there are checkpoints, but none can be read.
        """
        # list the checkpoints
        try:
            entries = [entry for entry in self.path.iterdir() if NAME.fullmatch(entry.name)]
        except (FileNotFoundError, NotADirectoryError):
            entries = []
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be read: {error.strerror}") from error

        # take the newest that can be read
        failures = []
        for folder in sorted(entries, key=lambda entry: -int(entry.name.removeprefix("step-"))):
            try:
                state, widths = read_checkpoint(folder)
                self._check_widths(folder, state, widths)
            except HpgcnError as error:
                failures.append(str(error))
                continue
            for failure in failures:
                log.warning("falling back to %s: %s", folder.name, failure)
            self._kept = [folder.name]
            return state

        if failures:
            raise StorageError(f"{self.path}: none of {len(failures)} checkpoints can be read: "
                               f"{'; '.join(failures)}")
        return None

    def _check_widths(self, folder: Path, state: CheckpointState, widths: list[int]) -> None:
        """Raise DataError if weights do not fit the features or classes of the graph."""
        header = self.source.header
        features, *_, classes = widths
        features -= state.config["embedding"]
        outputs = header.num_outputs
        if state.config["task"] == "links":
            outputs = state.config["output_width"]
        same = (features, classes) == (header.num_features, outputs)
        if not same and self._same_data(state):
            raise DataError(f"{folder / 'state.h5'}: weights are for {features} features and "
                            f"{classes} classes, expected {header.num_features} and "
                            f"{header.num_outputs}")

    def write(self, state: CheckpointState) -> None:
        """Write a CheckpointState, then delete older and incomplete ones.

        Killed runs leave incomplete checkpoints. After a StorageError the earlier
        checkpoints still exist.
        """
        name = f"step-{state.steps:08d}"
        with store.writing(self.path / name):
            faults.point("checkpoint.begin")
            with store.replacing_folder(self.path / name) as folder:
                self._fill(folder, state)
            self._kept = [*self._kept, name][-KEPT:]
            self._prune()
            faults.point("checkpoint.end")

    def _fill(self, folder: Path, state: CheckpointState) -> None:
        values = {**state.provenance, **self.digests(), "metrics": state.metrics,
                "best_epoch": state.best_epoch, "best_metrics": state.best_metrics}
        attributes = {name: json.dumps(value) if name in OBJECTS else value
                      for name, value in values.items()}
        path = folder / "state.h5"
        store.write_state(path, state.arrays, epoch=state.epoch, attributes=attributes,
                          config_toml=Config(**state.config).to_toml())
        faults.point("checkpoint.written")
        files = {path.name: {"bytes": path.stat().st_size, "sha256": store.file_sha256(path)}}
        manifest = {"format": "hpgcn-checkpoint", "epoch": state.epoch, "files": files}
        store.atomic_write(folder / "manifest.json", json.dumps(manifest, indent=1) + "\n")
        faults.point("checkpoint.manifest")

    def keep(self, trainer: Trainer, record: RunDirectory | None, *, ended: bool = False) -> None:
        """Write a checkpoint after a training step if it is time for one.

        All ranks of a Trainer call this. `ended` is true if the run ends with this
        epoch. After the checkpoint for SIGUSR1, a StoppedError is raised on all ranks.
        After SIGINT it is a CancelledError, and the best model so far is written. Other
        errors, on all ranks, are those of `write` and
        `hpgcn.training.saved.checkpoint_state.capture`.
        """
        comm, config, state = trainer.comm, trainer.config, trainer.state

        # decide the same on all ranks
        stop = 0 if ended else state.pending_signal  # all ranks have the same
        due = config.checkpoint_every and (
            ended or state.steps % config.checkpoint_every == 0)
        best_epoch = state.best.epoch or state.epoch

        # write it
        if stop or due:
            with comm.clock.span("checkpoint", state.epoch):
                captured = capture(trainer)
                best = {}
                if stop == INTERRUPTED:
                    flat = state.best.weights if state.best.epoch else trainer.parameters.flat
                    best = trainer.arrays_by_name(flat)
                with comm.collective_errors():
                    if comm.rank == 0:
                        record.synchronize()
                        self.write(captured)
                        if stop == INTERRUPTED:
                            record.keep_model(best, best_epoch, **trainer.model_attributes())

        # end the run, if a signal requested it
        if stop:
            step = f"epoch {state.epoch}"
            if state.within_epoch:
                step = f"step {state.sums.steps} of epoch {state.epoch + 1}"
            where = f"after {step}, with a checkpoint"
            if stop == INTERRUPTED:
                where += f"; model.h5 has the weights of epoch {best_epoch}"
            raise make_stop_error(stop, where, config.graph, config.out, comm)

    def _prune(self) -> None:
        """Delete all checkpoints except those that this run last read or wrote.

        Checkpoints newer than these are damaged.
        """
        for entry in sorted(self.path.iterdir()):
            if LEFT.fullmatch(entry.name):
                shutil.rmtree(entry, ignore_errors=True)
            elif NAME.fullmatch(entry.name) and entry.name not in self._kept:
                store.discard(entry)

    def digests(self) -> dict[str, str]:
        """Return the digests that identify the data, a dict under DIGESTS: see CheckpointState."""
        if self._digests is None:
            self._digests = self.source.digests()
        return self._digests

    def _same_data(self, state: CheckpointState) -> bool:
        """Return whether a state was trained on the same graph."""
        if state.provenance.get("content_sha256") == self.source.checksum():
            # no need to read it all
            self._digests = {name: state.provenance[name] for name in DIGESTS}
            return True
        return state.provenance["source_sha256"] == self.digests()["source_sha256"]

    def check(self, state: CheckpointState, config: Config) -> None:
        """Raise ConfigError if a checkpoint was written with other settings or other data."""
        before = Config().replace(**state.config)
        for name in state.config:
            was = getattr(before, name)
            now = getattr(config, name)
            if was != now and not SETTINGS[name].metadata["resumable"]:
                way = f"continue without {setting(name)}"
                if not COMMAND_LINE.get():  # a Config has a value for each
                    way = f"continue with {setting(name, was)}"
                if settings_of_run(self.path.parent, {}).get(name) == now:
                    way = "undo the change in config.toml"
                raise ConfigError(f"{self.path.parent}: {name} is {now!r}, but the run was started "
                                  f"with {was!r}; {way}, or start a new run with another "
                                  f"{setting('out')}")

        if not self._same_data(state):
            found = self.digests()["source_sha256"]
            expected = state.provenance["source_sha256"]
            raise ConfigError(f"{self.path.parent}: was trained on other data than "
                              f"{self.source.where}: the graph has SHA-256 {found[:16]}..., "
                              f"expected {expected[:16]}...{self._other_column()}")

    def _other_column(self) -> str:
        """Return a clause on the first column of features that has another name; or ""."""
        with suppress(HpgcnError):
            trained = store.read_model(self.path.parent / "model.h5")[1].get("feature_names")
            for k, (was, now) in enumerate(zip(trained or (), self.source.feature_names or ())):
                if was != now:
                    return f"; its feature {k} is {now!r:.80}, that of the run {was!r:.80}"
        return ""


def read_checkpoint(folder: Path) -> tuple[CheckpointState, list]:
    """Read a checkpoint; return its CheckpointState and the widths of its model.

    Raise InputNotFoundError, DataError or StorageError if it is damaged, or not a
    checkpoint.
    """
    path = folder / "state.h5"
    manifest = store.read_json(folder / "manifest.json")
    try:
        expected = manifest["files"][path.name]["sha256"]
    except (LookupError, TypeError) as error:
        raise DataError(f"{folder / 'manifest.json'}: files.{path.name}.sha256 is "
                        "missing") from error
    checksum = store.file_sha256(path)
    if checksum != expected:
        raise StorageError(f"{path}: SHA-256 is {checksum[:16]}..., but manifest.json says "
                           f"{str(expected)[:16]}...: the file is damaged")
    return parse(path, *store.read_state(path))

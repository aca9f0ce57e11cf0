"""Host memory below a GPU, with homes of blocks, and a scratch folder below it."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from hpgcn.runtime.gpu.file_homes import FileHomes
from hpgcn.runtime.gpu.homes import Home, PinnedHomes

if TYPE_CHECKING:
    from hpgcn.runtime.device import Cuda


class ScratchSpace(NamedTuple):
    """A folder for homes of the first `in_files` ranks, and for large arrays of the host.

    `pool` are the bytes of pinned memory through which contents of these homes pass.
    """

    folder: str
    in_files: int
    pool: int


class HostMemory:
    """Homes of the blocks of `ranks` ranks; without a ScratchSpace all are pinned."""

    def __init__(self, gpu: Cuda, ranks: int, scratch: ScratchSpace | None) -> None:
        self.scratch = scratch
        self.ranks = ranks
        self.pinned = PinnedHomes(gpu)
        self.files = self.arrays = self.residency = None
        if scratch is not None:
            # late, because they import Numba
            from hpgcn.runtime.disk.residency import Residency
            from hpgcn.runtime.disk.scratch_folder import scratch_files

            self.arrays = scratch_files(scratch.folder)
            self.files = FileHomes(scratch.folder, scratch.pool, gpu)
            self.residency = Residency(ranks, ranks, scratch.folder, tuple)

    def home(self, rank: int, nbytes: int) -> Home:
        """Return a home for a block of a rank."""
        if self.scratch is not None and rank < self.scratch.in_files:
            return self.files.take(nbytes)
        return self.pinned.take(nbytes)

    def home_of_message(self, source: int, *targets: int, nbytes: int) -> Home:
        """Return a home for a message between ranks.

        It is pinned if several ranks take it, or the next one, or one whose arrays have
        pinned homes.
        """
        in_files = 0 if self.scratch is None or len(targets) > 1 else self.scratch.in_files
        if targets[0] < in_files and targets[0] != (source + 1) % self.ranks:
            return self.files.take(nbytes)
        return self.pinned.take(nbytes)

    @property
    def nbytes(self) -> int:
        """Bytes of pinned memory."""
        return self.pinned.nbytes + (self.files.nbytes if self.files else 0)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Context manager: large arrays of the host that this thread allocates are files."""
        if self.arrays is None:
            yield
            return
        from hpgcn.runtime.disk.scratch_folder import scratch_errors

        with self.arrays.use(), scratch_errors(self.scratch.folder, self.arrays):
            yield

    def switch(self, leaving: int, entering: int) -> None:
        """Let arrays of the host leave memory, after a turn of rank `leaving`."""
        if self.residency is not None:
            self.residency.switch(leaving, entering)

    def take_events(self, rank: int) -> list[tuple]:
        """Return events of the disk for the timeline of a rank: (name, begin, end) each."""
        return [] if self.residency is None else self.residency.take_events(rank)

    def told(self) -> dict[str, Any]:
        """Return pinned bytes, bytes of the disk and seconds of waits, by names of summary.json."""
        found: dict[str, Any] = {"pinned_bytes": self.nbytes}
        for kind in ("read", "write") if self.files else ():
            found[f"disk_{kind}_bytes"] = self.files.moved[kind]
            found[f"waited_to_{kind}_s"] = sum(
                each.waited[kind] for each in (self.files, self.residency.disk))
        return found

    def close(self) -> None:
        """Wait for the disk, and let go of the files."""
        if self.residency is not None:
            self.residency.close()
            self.files.close()

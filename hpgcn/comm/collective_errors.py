"""Errors that all ranks raise together, and the end of all ranks.

The module also checks that settings are equal on all ranks, lengthens timeouts, and
closes objects on all ranks together.
"""
from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from hpgcn.errors import ConfigError, HpgcnError, InternalError, StoppedError, agreed
from hpgcn.runtime.streams import wait_for_reader

if TYPE_CHECKING:
    import types


class CollectiveErrors:
    """Base class of communicators: collective errors over their `max` and `allgather`."""

    @contextmanager
    def collective_errors(self) -> Iterator[None]:
        """Context manager: raise the lowest rank's error, if there is one, on all ranks."""
        error = None
        try:
            yield
        except StoppedError:
            raise  # a rank that timed out would not take part in what follows
        except HpgcnError as caught:
            error = caught
            if self.size == 1:
                agreed(error)
                raise
        except Exception as caught:
            if self.size == 1:
                raise
            traceback.print_exc()
            error = InternalError(f"{type(caught).__name__}: {' '.join(str(caught).split())}")

        # the error of the lowest rank is raised on all of them
        if self.max([error is not None])[0]:
            failures = self.allgather(None if error is None else (type(error), str(error)))
            errors = [(rank, *failure) for rank, failure in enumerate(failures)
                      if failure is not None]
            rank, kind, text = errors[0]
            if len(errors) < self.size:
                text += f" (on rank {rank} of {self.size})"
            raise agreed(kind(text)) from error

    @contextmanager
    def extended_timeout(self, seconds: float) -> Iterator[None]:
        """Context manager: extend the timeout by `seconds`, while a rank works without messages."""
        before = self.timeout
        self.timeout += seconds
        try:
            yield
        finally:
            self.timeout = before

    def assert_same(self, thing: dict[str, Any], what: str) -> None:
        """Raise ConfigError on all ranks if values differ; name the rank and, in dicts, the key."""
        first, *others = self.allgather(thing)
        for rank, other in enumerate(others, 1):
            if other != first:
                raise agreed(ConfigError(
                    f"rank {self.ranks[rank]} was started with another {what} than rank "
                    f"{self.ranks[0]}{difference(other, first)}"))


def difference(one: dict[str, str], other: dict[str, str]) -> str:
    """Describe the first entry by which two dicts differ; "" for other types."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return ""
    key = next(key for key in [*one, *other]
               if key not in one or key not in other or one[key] != other[key])
    return f": {key} is {one.get(key)!r}, not {other.get(key)!r}"


class CollectiveClose:
    """A context manager that calls `close` unless this rank alone failed.

    A subclass has `close`, which all ranks call together, and their communicator
    `comm`.

    A subclass has `close`, which all ranks call together, and their communicator
    `comm`.
    """

    comm: Any

    def close(self) -> None:
        """Free the MPI objects; all ranks call this together, with no message under way."""
        raise NotImplementedError

    def closes(self, error: BaseException | None) -> bool:
        return error is None or self.comm.size == 1 or getattr(error, "collective", False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: types.TracebackType | None) -> None:
        if self.closes(error):
            self.close()


def abort_on_exception() -> None:
    """Let an uncaught exception end all ranks, which would wait for this one."""
    if getattr(sys.excepthook, "ends_all_ranks", False):
        return
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        from mpi4py import MPI

        if MPI.Is_finalized():
            before(kind, error, trace)
            return
        world = MPI.COMM_WORLD
        text = f"rank {world.Get_rank()} of {world.Get_size()} failed:\n"
        plain = before is sys.__excepthook__
        if plain:  # in one piece: launchers cut off what is still on its way when all end
            text += "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(text)
        if not plain:
            before(kind, error, trace)
        sys.stderr.flush()
        wait_for_reader()
        world.Abort(error.code if isinstance(error, HpgcnError) else HpgcnError.code)

    hook.ends_all_ranks = True
    sys.excepthook = hook

"""What ranks agree upon: errors that all raise together, settings that are the same everywhere, patience."""
from __future__ import annotations

import traceback
from contextlib import contextmanager

from hpgcn.errors import ConfigError, HpgcnError, InternalError, StoppedError


class Agreement:
    """Part of every communicator; needs its `rank`, `size`, `ranks`, `timeout`, `max` and `allgather`."""

    @contextmanager
    def together(self):
        """Errors raised within, on any rank, are raised on all ranks as the lowest such rank's error."""
        error = None
        try:
            yield
        except StoppedError:
            raise  # whoever did not come will not come to an agreement either
        except HpgcnError as caught:
            error = caught
            if self.size == 1:
                error.collective = True
                raise
        except Exception as caught:
            if self.size == 1:
                raise
            traceback.print_exc()
            error = InternalError(f"{type(caught).__name__}: {' '.join(str(caught).split())}")
        if self.max([error is not None])[0]:
            errors = self.allgather(None if error is None else (type(error), str(error)))
            rank, (kind, text) = next((rank, found) for rank, found in enumerate(errors) if found is not None)
            everywhere = sum(found is not None for found in errors) == self.size
            agreed = kind(text if everywhere else f"{text} (on rank {rank} of {self.size})")
            agreed.collective = True
            raise agreed from error

    @contextmanager
    def patient(self, seconds):
        """Within, waits may take so much longer: a rank does work that no message interrupts, and the others wait."""
        before, self.timeout = self.timeout, self.timeout + seconds
        try:
            yield
        finally:
            self.timeout = before

    def same(self, thing, what):
        """Refuse to go on unless all ranks hold an equal value; of dicts, the first entry that differs is named.

        Raises
        ------
        ConfigError
            On all ranks, naming the first rank that differs from rank 0.
        """
        first, *others = self.allgather(thing)
        for rank, other in enumerate(others, 1):
            if other != first:
                error = ConfigError(f"rank {self.ranks[rank]} was started with another {what} "
                                    f"than rank {self.ranks[0]}{difference(other, first)}")
                error.collective = True
                raise error


def difference(one, other):
    """In words, the first entry by which two dicts differ; empty for anything else."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return ""
    key = next(key for key in [*one, *other] if key not in one or key not in other or one[key] != other[key])
    return f": {key} is {one.get(key)!r}, not {other.get(key)!r}"

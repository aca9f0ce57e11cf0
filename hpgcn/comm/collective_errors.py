"""What ranks agree upon: errors that all raise together, settings that are the same, patience."""

import traceback
from contextlib import contextmanager

from hpgcn.errors import ConfigError, HpgcnError, InternalError, StoppedError, agreed


class CollectiveErrors:
    """The part of every communicator that agrees, by its `max` and `allgather`."""

    @contextmanager
    def collective_errors(self):
        """Raise errors of any rank within on all ranks, as the lowest such rank's error."""
        error = None
        try:
            yield
        except StoppedError:
            raise  # whoever did not come will not come to an agreement either
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
        if self.max([error is not None])[0]:
            answers = self.allgather(None if error is None else (type(error), str(error)))
            errors = [(rank, *answer) for rank, answer in enumerate(answers) if answer is not None]
            rank, kind, text = errors[0]
            if len(errors) < self.size:
                text += f" (on rank {rank} of {self.size})"
            raise agreed(kind(text)) from error

    @contextmanager
    def extended_timeout(self, seconds):
        """Let waits take so much longer: a rank does work that no message interrupts."""
        before = self.timeout
        self.timeout += seconds
        try:
            yield
        finally:
            self.timeout = before

    def assert_same(self, thing, what):
        """Refuse values that differ: a ConfigError on all ranks names rank, and entry of dicts."""
        first, *others = self.allgather(thing)
        for rank, other in enumerate(others, 1):
            if other != first:
                raise agreed(ConfigError(
                    f"rank {self.ranks[rank]} was started with another {what} than rank "
                    f"{self.ranks[0]}{difference(other, first)}"))


def difference(one, other):
    """Say by which entry two dicts differ first; nothing of anything else."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return ""
    key = next(key for key in [*one, *other]
               if key not in one or key not in other or one[key] != other[key])
    return f": {key} is {one.get(key)!r}, not {other.get(key)!r}"

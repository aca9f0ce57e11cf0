"""Objects that all ranks close together, at the end of a `with`."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import types


class CollectiveClose:
    """A context manager that calls `close` at its end, unless an error occurs on this
    rank only.

    A subclass has `close`, which all ranks call together, and their communicator
    `comm`.
    """

    comm: Any

    def close(self) -> None:
        """Free the MPI objects; all ranks call this together, with no message under way."""
        raise NotImplementedError

    def closes(self, error: BaseException | None) -> bool:
        """Return whether the end of a `with` calls `close`: not after an error of this
        rank only.
        """
        return error is None or self.comm.size == 1 or getattr(error, "collective", False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: types.TracebackType | None) -> None:
        if self.closes(error):
            self.close()

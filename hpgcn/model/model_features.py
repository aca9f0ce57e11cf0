"""Input features of a model, dense or sparse, and their product with A.

The product is stored if it is computed once.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn import kernels
from hpgcn.parallel.csr import Csr

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.parallel.workspace import Workspace
    from hpgcn.runtime.device import Host


class Features:
    """Input features X, (m, f_j) of this rank, and A X.

    X is an array or a Csr, or None if only A X is read.
    """

    def __init__(self, X: Array, AX: Array | None = None) -> None:
        self.X = X
        self.AX = AX

    @property
    def sparse(self) -> bool:
        return isinstance(self.X, Csr)

    def arrays(self) -> list:
        """Return X and A X, a list without missing ones."""
        return [each for each in (self.X, self.AX) if each is not None]

    def dense_arrays(self) -> list[Array]:
        """Return the arrays of X and A X, in an order: of a Csr, those of its transpose as well."""
        parts = [each.stored_arrays() if isinstance(each, Csr) else (each,)
                 for each in self.arrays()]
        return [array for part in parts for array in part]

    def select(self, rows: np.ndarray | None, device: Host) -> Features:
        """Return the features of some rows, in the memory of `device`.

        `rows`, (r,), increase; None stands for all.
        """
        return Features(*(select_rows(each, rows, device) for each in (self.X, self.AX)))

    def dropped(self, vertex: Array, workspace: Workspace, **key: Any) -> Array:
        """Return X after dropout.

        The draws are keyed by `key`: seed, epoch, layer, p, first. A dense result is
        the work array "X". In sparse features stored entries are set to 0 by the same
        keyed mask as in dense ones.
        """
        X = self.X
        if self.sparse:
            ops = kernels.backend(X.data)
            return X.with_data(ops.dropout_csr(X.indptr, X.indices, X.data, vertex, **key))
        return kernels.backend(X).dropout(X, vertex, out=workspace.buffer("X", *X.shape), **key)


def select_rows(X: Any, rows: np.ndarray | None, device: Host) -> Any:
    """Return some rows of an array, of a Csr or of None, in the memory of `device`."""
    if isinstance(X, Csr):
        if rows is not None:
            X = X.take_rows(rows)
            X.edges = None  # the numbers of the entries are not used
        X = X.on(device)
        X.ordered_transpose()  # the gradient of W needs it in every step
        return X
    if X is None or rows is None:
        return device.put(X)
    X = device.take(X, rows)
    return device.put(X) if isinstance(X, np.ndarray) else X  # it was on the device

"""The adjacency among named matrices in a file."""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.raw_graph import Raw
from hpgcn.datasets.source import need, truncate
from hpgcn.errors import DataError

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source

NAMES = ("A", "network", "adj", "adjacency", "net", "adj_matrix", "adjacency_matrix", "adj_mat",
         "Problem")  # names of the matrix
EDGES = re.compile("edges?_?(list|index)?", re.IGNORECASE)  # names of lists of edges


def find_name(found: Iterable[str], names: Sequence, but: str | None = None) -> str | None:
    """Return the first of `names` in `found`, in any case and as spelled there, or None."""
    for name in names:
        same = [key for key in found if key.lower() == name.lower() and key != but]
        if same:
            return name if name in same else same[0]
    return None


def square(shapes: dict[str, tuple]) -> list[str]:
    """Return the names of square matrices of more than one row that are no lists of edges."""
    return [name for name, shape in shapes.items()
            if len(shape) == 2 and shape[0] == shape[1] > 1 and not EDGES.fullmatch(name)]


def choose_matrix(shapes: dict[str, tuple], choice: str | None, where: Source) -> str | None:
    """Return the name of the adjacency, or None if no matrix is square.

    It is `choice` (--matrix), else a known name, else the only square matrix. `shapes`
    has the shapes of all arrays.
    """
    if choice is not None:
        name = find_name(shapes, [choice])
        if name is None:
            raise DataError(f"{where}: no matrix is called {truncate(choice, 40)!r} (--matrix), "
                            f"expected one of: {listed_shapes(shapes)}")
        return name
    name = find_name(shapes, NAMES)
    if name is not None:
        return name
    matrices = square(shapes)
    if len(matrices) > 1:
        raise DataError(f"{where}: {len(matrices)} square matrices, {truncate(', '.join(matrices))}"
                        f": name the adjacency, as in --matrix {truncate(matrices[0], 40)}")
    return matrices[0] if matrices else None


def listed_shapes(shapes: dict[str, tuple]) -> str:
    """Return names of arrays with their shapes, for errors."""
    return truncate(", ".join(f"{name} {shape}" for name, shape in shapes.items())) or "nothing"


def from_matrix(matrix: np.ndarray | sp.sparray, memory: int, where: str) -> Raw:
    """Return the Raw of a square matrix, dense or sparse; A[u, v]: u aggregates v."""
    n = matrix.shape[0]
    if matrix.shape != (n, n):
        raise DataError(f"{where} has shape {matrix.shape}, expected a square matrix")
    need(64 * n, memory, f"{where}: {n} vertices")
    matrix = sp.coo_array(matrix)
    need(64 * matrix.nnz, memory, f"{where}: {n} vertices and {matrix.nnz} entries")
    return Raw(n, *matrix.coords, matrix.data)


def other_matrices(shapes: dict[str, tuple], name: str) -> list[str]:
    """Return the names of the other matrices of the size of the matrix called `name`."""
    return [other for other in square(shapes) if other != name and shapes[other] == shapes[name]]

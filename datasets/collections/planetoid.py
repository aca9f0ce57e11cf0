"""Reader of Planetoid sets, which unpickles only known types.

A set has the files ind.NAME.x, y, tx, ty, allx, ally, graph and test.index. Most of
them are pickles, and a pickle names functions to call. Only the names that NumPy
arrays, SciPy CSR matrices and a dict of lists need are allowed. Each name stands for a
small class below that keeps its arguments.
"""
from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.raw_graph import Raw
from hpgcn.datasets.readers.numpy_files import COMPRESSED, sparse_matrix
from hpgcn.datasets.source import need, open_all, refused, truncate
from hpgcn.datasets.text.lines import Grammar, read_columns
from hpgcn.datasets.text.parse import U
from hpgcn.errors import DataError
from hpgcn.graphs.validation import first_true

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source

PARTS = ("allx", "ally", "graph", "test.index", "tx", "ty", "x", "y")  # sorted by name
FILE = re.compile(r"ind\.(.+)\.(allx|ally|graph|test\.index|tx|ty|x|y)")
NUM_VAL = 500
EDGE_BYTES = 64  # peak memory per neighbor
OBJECT_BYTES = 96  # most memory of objects per byte of a pickle


def belongs(path: Path) -> bool:
    """Return whether `path` has the name of one of a Planetoid set's eight files."""
    return FILE.fullmatch(path.name) is not None


def graph_name(path: Path) -> str:
    """Return NAME of a file called ind.NAME.PART."""
    match = FILE.fullmatch(path.name)
    return match[1] if match else path.stem


def read(source: Source, memory: int) -> Raw:
    """Read the Planetoid set that the file `source` belongs to.

    Set `source.files` to all eight files.

    The first len(y) vertices are for training, the next 500 for validation, those in
    test.index for testing. Vertices that test.index leaves out keep their edges,
    without label and features. Edges are symmetrized.
    """
    match = FILE.fullmatch(source.path.name)
    if not match:
        raise DataError(f"{source}: expected a name like ind.NAME.graph")

    # a set is eight files beside each other
    source.files = open_all(source.path.parent / f"ind.{match[1]}.{part}" for part in PARTS)
    files = dict(zip(PARTS, source.files))
    packed = next((file for file in source.files if file.packing), None)
    if packed is not None:
        raise DataError(f"{packed}: compressed, expected a plain file: unpack it with "
                        f"{packed.packing.command}")
    need(4 * sum(file.size for file in source.files), memory, source)

    # refuse features and classes of different sizes
    allx, tx, x = (_features(files[part], memory) for part in ("allx", "tx", "x"))
    ally, ty, y = (_classes(files[part], X.shape[0], memory)
                   for part, X in (("ally", allx), ("ty", tx), ("y", x)))
    for part, width in (("tx", tx.shape[1]), ("x", x.shape[1])):
        if width != allx.shape[1]:
            raise DataError(f"{files[part]}: {width} features, but {allx.shape[1]} in "
                            f"{files['allx'].path.name}")
    if y.size > ally.size:
        raise DataError(f"{files['y']}: {y.size} train vertices, but {ally.size} in "
                        f"{files['ally'].path.name}")

    # the graph may have vertices that no other file lists
    graph = _load(files["graph"], memory)
    test = _test_index(files["test.index"], ally.size, ty.size, memory)
    listed = len(graph) if isinstance(graph, dict) else 0
    n = max(ally.size, int(test.max(initial=-1)) + 1, listed)
    need(64 * n, memory, f"{files['test.index']}: {n} vertices")
    rows, columns = _edges(graph, n, files["graph"], memory)

    # assign labels and masks by vertex numbers
    labels = np.full(n, -1, np.int64)
    labels[:ally.size] = ally
    labels[test] = ty
    vertices = np.arange(n)
    masks = {"train": vertices < y.size,
             "val": (vertices >= y.size) & (vertices < min(y.size + NUM_VAL, ally.size)),
             "test": np.isin(vertices, test)}
    masks = {key: mask & (labels >= 0) for key, mask in masks.items()}
    return Raw(n, rows, columns, None, _stack(allx, tx, test, n), labels, masks, "planetoid",
               undirected=True, symmetrize=True, row_normalize=True)


def _stack(allx: sp.csr_array, tx: sp.csr_array, test: np.ndarray, n: int) -> sp.csr_array:
    """Return the features of all vertices as CSR, (n, f).

    Rows of allx come first, those of tx go to the vertices `test`. Other rows are
    empty.
    """
    parts = sp.coo_array(sp.vstack([allx, tx]))
    row_of = np.concatenate([np.arange(allx.shape[0]), test])
    rows, columns = parts.coords
    return sp.csr_array((parts.data, (row_of[rows], columns)), shape=(n, allx.shape[1]))


def _matrix(file: Source, memory: int) -> Any:
    """Return the matrix in a pickle as an array or a csr_array; None for another object."""
    pickled = _load(file, memory)
    return pickled.array(file) if isinstance(pickled, (_Array, _Csr)) else None


def _features(file: Source, memory: int) -> sp.csr_array:
    matrix = _matrix(file, memory)
    if matrix is None or matrix.ndim != 2:
        raise DataError(f"{file}: expected a matrix of features")
    return sp.csr_array(matrix)


def _classes(file: Source, rows: int, memory: int) -> np.ndarray:
    """Return the class of each row of a one-hot matrix in a file, -1 for an empty row."""
    # refuse other shapes and types
    matrix = _matrix(file, memory)
    shape = (0,) if matrix is None else matrix.shape
    need(9 * math.prod(shape), memory, f"{file}: labels of shape {shape}")
    if len(shape) != 2 or shape[0] != rows:
        raise DataError(f"{file}: labels have shape {shape}, expected ({rows}, classes)")
    matrix = matrix.toarray() if sp.issparse(matrix) else matrix

    counts = np.count_nonzero(matrix, axis=1)
    if (row := first_true(counts > 1)) is not None:
        raise DataError(f"{file}: row {row} has {counts[row]} classes, expected at most one")
    if not shape[1]:
        return np.full(rows, -1, np.int64)
    return np.where(counts > 0, np.argmax(matrix != 0, axis=1), -1)


def _test_index(file: Source, low: int, count: int, memory: int) -> np.ndarray:
    """Return the test vertices in a file of one vertex a line.

    The file must have `count` lines, each with a vertex of at least `low`.
    """
    grammar = Grammar((U,), low=low, names=("vertex", "", ""), comments=False)
    test = read_columns(file, grammar, memory)[0]
    if test.size != count:
        raise DataError(f"{file}: {test.size} lines, but ty has {count} rows")
    order = np.argsort(test, kind="stable")
    if (again := first_true(np.diff(test[order]) == 0)) is not None:
        k = order[again + 1]
        raise DataError(f"{file}: vertex {test[k]} is listed twice, the second time as number "
                        f"{k + 1}")
    return test


def _edges(graph: Any, n: int, file: Source, memory: int) -> tuple:
    if not isinstance(graph, dict) or not all(type(row) is list for row in graph.values()):
        raise DataError(f"{file}: expected a dict of lists of neighbors")

    counts = [len(row) for row in graph.values()]
    size = EDGE_BYTES * sum(counts)  # a pickle may refer to one list many times
    need(size, memory, f"{file}: {sum(counts)} edges")
    numbers = list(chain(graph, chain.from_iterable(graph.values())))
    if not all(type(number) is int for number in numbers):
        raise DataError(f"{file}: expected vertex numbers, all of them integers")

    try:
        numbers = np.array(numbers, np.int64)
    except OverflowError as error:
        raise DataError(f"{file}: a vertex number does not fit into 64 bits") from error

    rows = np.repeat(numbers[:len(graph)], counts)
    if (k := first_true((numbers < 0) | (numbers >= n))) is not None:
        neighbor = f"{rows[k - len(graph)]} has the neighbor " if k >= len(graph) else ""
        raise DataError(f"{file}: vertex {neighbor}{numbers[k]}, expected 0..{n - 1}")

    return rows, numbers[len(graph):]


class _Dtype:
    """Stand-in for numpy.dtype in a pickle: keeps the type code and the byte order."""

    def __init__(self, code: str, *_: object) -> None:
        self.code = code
        self.order: Any = "="

    def __setstate__(self, state: tuple) -> None:
        self.order = state[1]

    def dtype(self) -> np.dtype:
        order: Any = self.order if self.order in ("<", ">") else "="
        return np.dtype(self.code).newbyteorder(order)


class _Array:
    """Stand-in for the array that numpy's _reconstruct returns.

    The pickle sets its content later.
    """

    def __init__(self, *_: object) -> None:
        self.state = None

    def __setstate__(self, state: tuple) -> None:
        self.state = state

    def array(self, where: Source) -> np.ndarray:
        try:
            _, shape, dtype, fortran, raw = self.state
            dtype = dtype.dtype()
            if dtype.kind not in "fiub":
                raise TypeError(f"dtype {dtype}, expected numbers")
            raw = raw.encode("latin1") if isinstance(raw, str) else raw
            return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")
        except (TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{where}: broken array ({truncate(error)})") from error


class _Csr:
    """Stand-in for scipy's csr_matrix in a pickle, whose attributes `array` checks."""

    def array(self, where: Source) -> Any:
        state = vars(self)
        shape = state.get("_shape", state.get("shape"))
        arrays = [state.get(key) for key in COMPRESSED]
        pair = isinstance(shape, tuple) and [type(size) for size in shape] == [int, int]
        whole = all(isinstance(array, _Array) for array in arrays)
        if not pair or min(shape) < 0 or not whole:
            raise DataError(f"{where}: broken CSR matrix of shape {truncate(shape)}")
        return sparse_matrix(*(array.array(where) for array in arrays), shape, str(where))


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r}, expected latin1")
    return text.encode("latin1")


ALLOWED = {
    "numpy.ndarray": object,  # pickles pass it to _reconstruct
    "numpy.core.multiarray._reconstruct": _Array, "numpy._core.multiarray._reconstruct": _Array,
    "scipy.sparse.csr.csr_matrix": _Csr, "scipy.sparse._csr.csr_matrix": _Csr,
    "numpy.dtype": _Dtype, "_codecs.encode": _encode, "collections.defaultdict": defaultdict,
    "__builtin__.list": list, "builtins.list": list}


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, where: Source) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self.where = where

    def find_class(self, module: str, name: str) -> Any:
        wanted = f"{module}.{name}"
        if wanted not in ALLOWED:
            raise DataError(f"{self.where}: forbidden global {truncate(wanted)}")
        return ALLOWED[wanted]


def _load(file: Source, memory: int) -> Any:
    """Unpickle a file of at most `memory` bytes; allow only the names in ALLOWED."""
    with file.open() as stream:
        data = stream.read()
    with refused(file, "broken pickle"):
        for count, (opcode, argument, at) in enumerate(pickletools.genops(data), 1):
            need(OBJECT_BYTES * count, memory, file)
            if opcode.name.endswith("PUT") and argument > len(data):  # a huge allocation
                raise DataError(f"{file}: broken pickle (memo {argument} at byte {at})")
        return _Unpickler(data, file).load()

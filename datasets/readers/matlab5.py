"""Parser of matrices in MATLAB 5 to 7 files, after The MathWorks' "MAT-File Format".

SciPy's reader is not used, because some broken files end its process (SIGSEGV).
"""
from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.readers.numpy_files import sparse_matrix
from hpgcn.datasets.source import need, truncate
from hpgcn.errors import DataError

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source

HEADER = 128  # bytes of the header
MATRIX, COMPRESSED = 14, 15
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8",
         13: "u8"}
STRUCT, SPARSE = 2, 5  # classes of arrays
NUMERIC = range(6, 16)
COMPLEX = 0x0800
MOST_FIELDS = 1000


class BrokenError(Exception):
    """Error for bytes that do not follow the MATLAB format."""


class Elements:
    """Reader of the elements in a buffer of bytes, one after another."""

    def __init__(self, data: bytes | memoryview, order: str) -> None:
        self.data = memoryview(data)
        self.order = order
        self.at = 0

    def next(self) -> tuple[int, memoryview]:
        """Return the type number and the bytes of the next element."""
        head = self.data[self.at:self.at + 8]
        if len(head) < 8:
            raise BrokenError("ends within an element")
        kind, size = np.frombuffer(head, f"{self.order}u4").tolist()
        start = self.at + 8

        if kind >> 16:  # a small element lies within its tag
            kind, size = kind & 0xFFFF, kind >> 16
            start = self.at + 4
            if size > 4:
                raise BrokenError(f"a small element has {size} bytes")

        stop = start + size
        if stop > len(self.data):
            raise BrokenError(f"an element has {size} bytes, but {len(self.data) - start} remain")
        self.at = stop if kind == COMPRESSED else -(-max(stop, self.at + 8) // 8) * 8
        return kind, self.data[start:stop]

    def numbers(self) -> np.ndarray:
        kind, data = self.next()
        if kind not in TYPES:
            raise BrokenError(f"elements of type {kind}, expected numbers")
        dtype = np.dtype(self.order + TYPES[kind])
        if len(data) % dtype.itemsize:
            raise BrokenError(f"{len(data)} bytes are not a whole number of {dtype.name}")
        array = np.frombuffer(data, dtype)
        return array.astype(dtype.newbyteorder("="))


class Matrix:
    """A variable of a MATLAB file: name, shape, kind (its class), bytes of its content."""

    def __init__(self, data: memoryview, order: str) -> None:
        self.elements = Elements(data, order)
        flags = self.elements.numbers()
        if flags.size != 2:
            raise BrokenError("array flags are missing")
        self.kind = int(flags[0]) & 0xFF
        self.complex = bool(int(flags[0]) & COMPLEX)
        self.shape = tuple(self.elements.numbers().tolist())
        if len(self.shape) < 2 or min(self.shape) < 0:
            raise BrokenError(f"shape {self.shape}")
        self.name = bytes(self.elements.next()[1]).decode("latin1")

    def field(self, name: str, where: str) -> Matrix:
        """Return the field `name` of a struct of shape (1, 1), as a Matrix.

        DataError if it is missing.
        """
        if self.kind != STRUCT or self.shape != (1, 1):
            raise DataError(f"{where}: expected a struct")
        length = self.elements.numbers()
        names = bytes(self.elements.next()[1])
        width = int(length[0]) if length.size == 1 else 0
        if width < 1 or len(names) % width or len(names) > width * MOST_FIELDS:
            raise BrokenError("invalid field names")
        for start in range(0, len(names), width):
            kind, data = self.elements.next()
            if names[start:start + width].rstrip(b"\0") == name.encode() and kind == MATRIX:
                return Matrix(data, self.elements.order)
        raise DataError(f"{where}: field {name} is missing")

    def read(self, where: str) -> Any:
        """Return the matrix of numbers (r, c) as an ndarray or a csr_array.

        Raise DataError for other content.
        """
        if self.complex or len(self.shape) != 2 or not (
                self.kind == SPARSE or self.kind in NUMERIC):
            kind = "complex numbers" if self.complex else f"class {self.kind}"
            raise DataError(f"{where}: {kind} of shape {self.shape}, expected a matrix of numbers")

        rows, columns = self.shape
        if self.kind == SPARSE:
            indices, indptr, data = (self.elements.numbers() for _ in range(3))
            if indptr.size != columns + 1:
                raise BrokenError(f"{indptr.size} column pointers, expected {columns + 1}")
            nnz = int(indptr[-1])
            if not 0 <= nnz <= min(indices.size, data.size):
                raise BrokenError(f"{nnz} entries are declared, but {min(indices.size, data.size)} "
                                  "are stored")
            return sparse_matrix(data[:nnz], indices[:nnz], indptr, self.shape, where,
                                 transposed=True)

        data = self.elements.numbers()
        if data.size != rows * columns:
            raise BrokenError(f"{data.size} numbers do not fit shape {self.shape}")
        return data.reshape(self.shape, order="F")


def variables(source: Source, memory: int) -> dict[str, Matrix]:
    """Return all variables in a file, a dict from name to Matrix, in `memory` bytes."""
    with source.open() as stream:
        data = stream.read(memory + 1)
    need(len(data), memory, source)

    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        raise DataError(f"{source}: no header of MATLAB 5 to 7: convert a MATLAB 4 file with "
                        "scipy.io.savemat('graph.mat', scipy.io.loadmat(FILE))")

    # collect matrices by name; decompress within the remaining memory
    matrices = {}
    elements = Elements(data, order)
    elements.at = HEADER
    left = memory - len(data)
    try:
        while elements.at < len(data):
            kind, body = elements.next()
            if kind == COMPRESSED:
                body, left = _unpacked(body, left, memory, source)
                kind, body = Elements(body, order).next()
            if kind == MATRIX:
                matrix = Matrix(body, order)
                matrices[matrix.name] = matrix
    except (BrokenError, zlib.error) as error:
        raise DataError(f"{source}: broken MATLAB data ({truncate(error)})") from error

    return matrices


def _unpacked(body: memoryview, left: int, memory: int, where: Source) -> tuple[bytes, int]:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(body, max(1, left + 1))
    if len(data) > left:
        need(memory + 1, memory, where)
    if not unpacker.eof:
        raise BrokenError("compressed data ends early")
    return data, left - len(data)

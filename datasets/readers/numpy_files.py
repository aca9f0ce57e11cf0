"""Readers of .npy and .npz files that check each array's size before they allocate it."""
from __future__ import annotations

import copy
import math
import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets import unsupported_formats
from hpgcn.datasets.source import need, refused, truncate
from hpgcn.errors import DataError
from hpgcn.graphs.validation import check_csr_arrays, check_range

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source

END_RECORD = 22  # bytes of the record that ends a zip, before its comment
HEADER_LIMIT = 10_000  # bytes, as in NumPy
COMPRESSED = ("data", "indices", "indptr")
SPARSE = {"csr": COMPRESSED, "csc": COMPRESSED, "coo": ("data", "row", "col")}


def read_npy(stream: BinaryIO, size: int, where: object, memory: int,
             kinds: str = "fiub") -> tuple[np.ndarray, list]:
    """Read an array of numbers in .npy format from a file of `size` bytes.

    It may allocate `memory` bytes, and accepts the dtype `kinds`. Return the array, in
    native byte order and C order, and notes on what was cast or copied. DataError for
    another format, another dtype, a shape that does not match the size, or too little
    memory.
    """
    # validate the header before anything is allocated
    shape, fortran, dtype, offset = _read_header(stream, where)
    if dtype.hasobject or dtype.kind not in kinds:
        expected = {"fiub": "numbers", "SU": "text"}.get(kinds, "numbers or text")
        objects = " (a pickle, which is never executed)" if dtype.hasobject else ""
        if dtype.hasobject and "U" in kinds:
            expected += ": save array.astype(str)"
        raise DataError(f"{where}: dtype {truncate(dtype)}{objects}, expected {expected}")
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes != size - offset or min(shape, default=0) < 0:
        raise DataError(f"{where}: shape {shape} of {dtype} takes {nbytes} bytes, but the file has "
                        f"{size - offset}")

    # read the numbers
    need(nbytes, memory, where)
    with refused(where), warnings.catch_warnings(action="ignore"):  # see _read_header
        stream.seek(0)
        array = np.lib.format.read_array(stream, allow_pickle=False, max_header_size=HEADER_LIMIT)
        if stream.read(1):  # also makes zipfile check the CRC
            raise DataError(f"{where}: has more than the declared {nbytes} bytes of data")

    # convert to native numbers in C order
    notes = []
    if fortran and len(shape) > 1:
        notes.append(f"{where}: copied from Fortran order")
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="))
        notes.append(f"{where}: byte order of {dtype.str} swapped")
    if dtype.kind == "f" and dtype.itemsize < 4:
        array = array.astype(np.float32)
        notes.append(f"{where}: cast from {dtype.name} to float32")
    return np.ascontiguousarray(array).reshape(shape), notes


def _read_header(stream: BinaryIO, where: object) -> tuple[tuple, bool, np.dtype, int]:
    """Return a .npy header: (shape, whether in Fortran order, dtype, bytes before the data)."""
    with refused(where, "not an array in .npy format"):
        version = np.lib.format.read_magic(stream)
        reader = np.lib.format.read_array_header_2_0
        if version == (1, 0):
            reader = np.lib.format.read_array_header_1_0
        with warnings.catch_warnings(action="ignore"):  # headers written by Python 2
            return *reader(stream, HEADER_LIMIT), stream.tell()


class Archive:
    """Arrays of an .npz file, each read from the file when its name is requested.

    All arrays together may take `memory` bytes, a single one half of them. Raises
    DataError for a file that is not a valid zip, and for two members of one name, with
    or without .npy.
    """

    def __init__(self, source: Source, memory: int) -> None:
        self.source = source
        self.memory = memory
        self.memory_left = memory
        self.notes = []  # notes on casts and copies
        self.members = {}

        # list the members; refuse repeated names
        with source.open() as stream, refused(source), zipfile.ZipFile(stream) as archive:
            infos = archive.infolist()
            for info in infos:
                name = info.filename.removesuffix(".npy")
                if name in self.members:
                    raise DataError(f"{source}: two members are called {truncate(name)!r}, "
                                    "expected one of each name")
                self.members[name] = info

            # compare the number of members with the record at the end
            stream.seek(-END_RECORD - len(archive.comment), os.SEEK_END)
            stated = int.from_bytes(stream.read(END_RECORD)[10:12], "little")
            if stated not in (len(infos), 0xFFFF):  # 0xFFFF stands for more
                raise DataError(f"{source}: broken data ({len(infos)} members, {stated} declared)")

            for info in infos:  # a damaged name would look like a missing array
                archive.open(info).close()

        self.unread = list(self.members)  # names of members not read yet

    def __contains__(self, key: str) -> bool:
        return key in self.members

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __getitem__(self, key: str) -> np.ndarray:
        """Return the array called `key`, of numbers or text."""
        return self.read(key, "fiubSU")

    @contextmanager
    def _open(self, key: str, member: zipfile.ZipInfo) -> Iterator[tuple]:
        where = f"{self.source} {key}"
        with self.source.open() as stream, refused(where), zipfile.ZipFile(stream) as archive, \
                archive.open(member) as content:
            yield content, where

    def read(self, key: str, kinds: str = "fiub") -> np.ndarray:
        """Return the array called `key`; `kinds` are dtype kinds, as for `read_npy`."""
        info = self.members[key]
        need(info.file_size, min(self.memory // 2, self.memory_left), f"{self.source} {key}")
        self.memory_left -= info.file_size
        self.unread.remove(key)
        longer = copy.copy(info)
        longer.file_size += 1  # zipfile stops at the declared size, which hides further bytes
        with self._open(key, longer) as (content, where):
            array, notes = read_npy(content, info.file_size, where, self.memory, kinds)
        self.notes += notes
        return array

    def header(self, key: str) -> tuple[tuple, np.dtype]:
        """Return the shape and the dtype of the array called `key`, from its header."""
        with self._open(key, self.members[key]) as (content, where):
            shape, _, dtype, _ = _read_header(content, where)
            return shape, dtype

    def dtype(self, key: str) -> np.dtype:
        return self.header(key)[1]

    def unread_notes(self) -> list[str]:
        """Return notes that name the arrays that were not read."""
        objects = self.objects()
        others = [key for key in self.unread if key not in objects]
        notes = [f"arrays not read: {truncate(', '.join(others))}"] if others else []
        if objects:
            notes.append("arrays of Python objects are neither read nor executed: "
                         f"{truncate(', '.join(objects))}")
        return notes

    def objects(self) -> list:
        """Return the names of the arrays of Python objects that were not read."""
        return [key for key, (_, dtype) in self._unread_headers() if dtype.hasobject]

    def unread_shapes(self) -> dict[str, tuple]:
        """Return the shapes of the numeric arrays that were not read, by name."""
        return {key: shape for key, (shape, dtype) in self._unread_headers()
                if not dtype.hasobject}

    def _unread_headers(self) -> Iterator[tuple[str, tuple]]:
        for key in self.unread:
            with suppress(DataError):  # not an array
                yield key, self.header(key)

    def first(self, *keys: str, kinds: str = "fiub") -> np.ndarray | None:
        """Return the array of the first key that the archive has, or None."""
        return next((self.read(key, kinds) for key in keys if key in self), None)

    def require(self, *keys: str) -> None:
        """Raise DataError if the archive lacks one of these arrays."""
        for key in keys:
            if key not in self:
                raise DataError(f"{self.source}: no array {key}, expected {', '.join(keys)}")

    def read_shape(self, key: str) -> tuple[int, int]:
        """Return a matrix shape, a tuple of int, from an array of two numbers."""
        shape = self.read(key)
        if (shape.shape != (2,) or shape.dtype.kind not in "iu" or int(shape.min()) < 0
                or int(shape.max()) > np.iinfo(np.int64).max):
            raise DataError(f"{self.source} {key}: {shape.tolist()}, expected the numbers of rows "
                            "and columns")
        return int(shape[0]), int(shape[1])

    def csr_prefix(self, *prefixes: str) -> str | None:
        """Return the first of `prefixes` of the names of a CSR matrix's arrays, or None."""
        return next((prefix for prefix in prefixes
                     if any(prefix + key in self for key in COMPRESSED)), None)

    def read_csr(self, prefix: str) -> sp.csr_array:
        """Return the CSR matrix in the arrays PREFIXindices, indptr and shape.

        Without PREFIXdata its values are 1.
        """
        keys = [prefix + key for key in (*COMPRESSED, "shape")]
        self.require(*keys[1:])
        shape = self.read_shape(keys[3])
        indices = self.read(keys[1])
        indptr = self.read(keys[2])
        data = self.read(keys[0]) if keys[0] in self else None
        return sparse_matrix(data, indices, indptr, shape, f"{self.source} {prefix[:-1]}")

    @property
    def is_sparse(self) -> bool:
        """Whether the archive has the keys of scipy.sparse.save_npz, maybe without `format`."""
        return "shape" in self and ("format" in self or self._layout is not None)

    @property
    def _layout(self) -> str | None:
        """The word of SPARSE whose arrays the archive has, or None."""
        return next((layout for layout in ("csr", "coo")
                     if all(key in self for key in SPARSE[layout])), None)

    def read_sparse(self) -> sp.csr_array:
        """Return the matrix that scipy.sparse.save_npz wrote, as scipy.sparse.csr_array."""
        where = str(self.source)
        layout = self._layout

        if "format" in self:
            with refused(f"{where} format"):
                layout = self.read("format", "SU").astype(str).item()
        if layout not in SPARSE:
            raise DataError(f"{where} format: {layout[:40]!r}, expected csr, csc or coo")

        self.require(*SPARSE[layout])
        shape = self.read_shape("shape")
        data, first, second = (self.read(key) for key in SPARSE[layout])
        if layout != "coo":
            return sparse_matrix(data, first, second, shape, where, transposed=layout == "csc")

        for key, numbers, stop in (("row", first, shape[0]), ("col", second, shape[1])):
            if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or numbers.shape != data.shape:
                raise DataError(f"{where} {key}: dtype {numbers.dtype} and shape {numbers.shape}, "
                                f"expected integers {data.shape}")
            check_range(numbers, stop, f"{where} {key}")

        need(64 * shape[0], self.memory, f"{where} shape: {shape[0]} rows")
        return sp.csr_array((data, (_signed(first), _signed(second))), shape=shape)


def read_matrix(source: Source, memory: int) -> tuple[Any, list[str]]:
    """Read a matrix of features from .npy or .npz; return it and a list of notes.

    An .npz has one dense array, or the arrays of SciPy's save_npz.
    """
    if source.magic[:2] != b"PK":
        return read_array(source, memory)
    unsupported_formats.refuse_array(source)
    archive = Archive(source, memory)
    if archive.is_sparse:
        return archive.read_sparse(), archive.notes
    if len(archive.members) != 1:
        names = truncate(", ".join(archive)) or "none"
        raise DataError(f"{source}: arrays {names}, expected one dense array or a matrix written "
                        "by scipy.sparse.save_npz")
    return archive.read(*archive), archive.notes


def read_array(source: Source, memory: int, kinds: str = "fiub") -> tuple[np.ndarray, list]:
    """Read a .npy file with the dtype `kinds`; return the array and a list of notes."""
    with source.open() as stream:
        if source.packing:
            raise DataError(f"{source}: compressed, expected a plain .npy file: unpack it with "
                            f"{source.packing.command}")
        if source.magic[:6] != b"\x93NUMPY":
            unsupported_formats.refuse_array(source)
            raise DataError(f"{source}: an .npz, expected an array in .npy format: write it with "
                            "numpy.save")
        return read_npy(stream, source.size, source, memory, kinds)


def sparse_matrix(data: np.ndarray | None, indices: np.ndarray, indptr: np.ndarray,
                  shape: tuple[int, int], where: str, *, transposed: bool = False) -> sp.csr_array:
    """Check the arrays of a CSR matrix, or CSC if `transposed`, and return it as CSR.

    Without data (None) all values are 1.
    """
    check_csr_arrays(indptr, indices, shape[::-1] if transposed else shape, where)
    if data is None:
        data = np.ones(indices.shape, np.float32)
    if data.shape != indices.shape:
        raise DataError(f"{where} data: shape {data.shape}, expected {indices.shape}")
    kind = sp.csc_array if transposed else sp.csr_array
    return sp.csr_array(kind((data, _signed(indices), _signed(indptr)), shape=shape))


def _signed(numbers: np.ndarray) -> np.ndarray:
    """Return integers below 2^63 with a dtype for SciPy's indices: uint64 becomes int64."""
    return numbers.astype(np.int64) if numbers.dtype == np.uint64 else numbers

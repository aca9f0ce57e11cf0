"""NumPy arrays out of .npy and .npz files, with every declared size checked before it is allocated."""
from __future__ import annotations

import copy
import errno
import math
import os
import warnings
import zipfile
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp

from hpgcn.check import check_csr_arrays, check_range
from hpgcn.datasets import foreign
from hpgcn.datasets.source import need, shown
from hpgcn.errors import DataError

END_RECORD = 22  # bytes at the end of a zip, its comment aside
HEADER_LIMIT = 10_000  # bytes; NumPy's own limit


def read_npy(stream, size, where, memory, kinds="fiub"):
    """Read one array in .npy format.

    Parameters
    ----------
    stream : binary file
    size : int
        Bytes of the stream as declared by its container.
    where : str
        File and member, for errors.
    memory : int
        Bytes that may be allocated.
    kinds : str
        Kinds of dtype allowed (bool, integers and floats by default).

    Returns
    -------
    ndarray in native byte order, C order; list of notes on what was cast or copied.

    Raises
    ------
    DataError
        Not .npy; object, string or structured dtype; a shape that does not match the size; more than `memory`.
    """
    shape, fortran, dtype, offset = _read_header(stream, where)
    if dtype.hasobject or dtype.kind not in kinds:
        raise DataError(f"{where}: dtype {dtype}, expected " + ("numbers" if kinds == "fiub" else "text"))
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes != size - offset or min(shape, default=0) < 0:
        raise DataError(f"{where}: shape {shape} of {dtype} takes {nbytes} bytes, but {size - offset} are there")
    need(nbytes, memory, where)
    with refused(where):
        array = np.empty(math.prod(shape), dtype)
        _fill(stream, memoryview(array).cast("B") if nbytes else memoryview(b""), where)
    notes = []
    if fortran and len(shape) > 1:
        array = array.reshape(shape[::-1]).T
        notes.append(f"{where}: copied from Fortran order")
    array = array.reshape(shape)
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="))
        notes.append(f"{where}: byte order of {dtype.str} swapped")
    if dtype.kind == "f" and dtype.itemsize < 4:
        array = array.astype(np.float32)
        notes.append(f"{where}: cast from {dtype.name} to float32")
    return np.ascontiguousarray(array).reshape(shape), notes


def _read_header(stream, where):
    """Return (shape, whether in Fortran order, dtype, bytes before the data)."""
    try:
        version = np.lib.format.read_magic(stream)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        with warnings.catch_warnings(action="ignore"):  # headers written by Python 2
            return *reader(stream, HEADER_LIMIT), stream.tell()
    except Exception as error:  # the header is parsed as Python: what it raises has no common base
        reason = shown(str(error) or type(error).__name__)
        raise DataError(f"{where}: not an array in .npy format ({reason})") from error


def _fill(stream, target, where):
    done = 0
    while done < target.nbytes:
        block = stream.read(min(target.nbytes - done, 1 << 22))
        if not block:
            raise DataError(f"{where}: {done} bytes of data, expected {target.nbytes}")
        target[done:done + len(block)] = block
        done += len(block)
    if stream.read(1):  # also makes zipfile check the CRC
        raise DataError(f"{where}: more than the declared {target.nbytes} bytes of data")


@contextmanager
def refused(where):
    """Turn what a library raises on broken data into one line."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # zipfile and its decompressors raise whatever the bytes lead them to
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # the disk's, no seek past the end
            raise
        raise DataError(f"{where}: broken data ({shown(str(error) or type(error).__name__)})") from error


class Archive:
    """Arrays of an .npz file, read by name; of another member of the zip no more than its header is looked at.

    Parameters
    ----------
    source : Source
    memory : int
        Bytes for all arrays together; one member may take half of them.

    Raises
    ------
    DataError
        No zip, or a broken one; two members of one name, with or without .npy.

    Attributes
    ----------
    keys, unread : list of str
        Names of all members, and of those that were never read.
    notes : list of str
        What was cast or copied.
    """

    def __init__(self, source, memory):
        self.source, self.memory, self.left = source, memory, memory
        self.notes = []
        with source.open() as stream, refused(source), zipfile.ZipFile(stream) as archive:
            members = {}
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if name in members:
                    raise DataError(f"{source}: two members are called {shown(name)!r}, expected one of each name")
                members[name] = info
            stream.seek(-END_RECORD - len(archive.comment), os.SEEK_END)
            stated = int.from_bytes(stream.read(END_RECORD)[10:12], "little")
            if stated not in (len(archive.infolist()), 0xFFFF):  # 0xFFFF: too many for this field
                raise DataError(f"{source}: broken data ({len(archive.infolist())} members, {stated} stated)")
            for info in archive.infolist():  # a damaged name must not pass for an array that is not there
                archive.open(info).close()
        self.members = members
        self.keys = list(members)
        self.unread = list(members)

    def __contains__(self, key):
        return key in self.members

    def read(self, key, kinds="fiub"):
        """Return the array of that name.

        Raises
        ------
        DataError
            As `read_npy`, or the member declares or inflates to more than allowed.
        """
        where, info = f"{self.source} {key}", self.members[key]
        need(info.file_size, min(self.memory // 2, self.left), where)
        self.left -= info.file_size
        self.unread.remove(key)
        longer = copy.copy(info)
        longer.file_size += 1  # zipfile stops at the declared size: let it go on, to see whether there is more
        with self.source.open() as stream, refused(where), zipfile.ZipFile(stream) as archive, \
                archive.open(longer) as member:
            array, notes = read_npy(member, info.file_size, where, self.memory, kinds)
        self.notes += notes
        return array

    def shape(self, key):
        """Return the shape of the array of that name, which is not read.

        Raises
        ------
        DataError
            Not .npy.
        """
        where = f"{self.source} {key}"
        with self.source.open() as stream, refused(where), zipfile.ZipFile(stream) as archive, \
                archive.open(self.members[key]) as member:
            return _read_header(member, where)[0]

    def first(self, *keys):
        """Return (key, array) of the first name that is there, or (None, None)."""
        for key in keys:
            if key in self:
                return key, self.read(key)
        return None, None


def read_matrix(source, memory):
    """Read features: a dense .npy, an .npz with one dense array, or an .npz written by scipy.sparse.save_npz.

    Returns
    -------
    (n, f) ndarray or scipy.sparse.csr_array, list of notes

    Raises
    ------
    DataError
        Neither of them, or broken.
    """
    if source.magic[:2] != b"PK":
        return read_array(source, memory)
    foreign.refuse_array(source)
    archive = Archive(source, memory)
    if is_sparse(archive):
        return read_sparse(archive), archive.notes
    if len(archive.keys) != 1:
        raise DataError(f"{source}: arrays {shown(', '.join(archive.keys)) or 'none'}, expected one dense array or a "
                        "matrix written by scipy.sparse.save_npz")
    return archive.read(archive.keys[0]), archive.notes


def read_array(source, memory):
    """Read a .npy file; return the array and a list of notes."""
    with source.open() as stream:
        if source.is_gzip:
            raise DataError(f"{source}: compressed, expected a plain .npy file")
        if source.magic[:6] != b"\x93NUMPY":
            foreign.refuse_array(source)
            raise DataError(f"{source}: an .npz, expected an array in .npy format: numpy.save writes one")
        return read_npy(stream, source.size, source, memory)


def is_sparse(archive):
    """Whether scipy.sparse.save_npz wrote an Archive."""
    return "format" in archive and "shape" in archive


def read_sparse(archive):
    """Return the matrix that scipy.sparse.save_npz wrote, as scipy.sparse.csr_array."""
    with refused(f"{archive.source} format"):
        layout = archive.read("format", "SU").astype(str).item()
    compressed = ("data", "indices", "indptr")
    required = {"csr": compressed, "csc": compressed, "coo": ("data", "row", "col")}
    if layout not in required:
        raise DataError(f"{archive.source} format: {layout[:40]!r}, expected csr, csc or coo")
    for key in required[layout]:
        if key not in archive:
            raise DataError(f"{archive.source}: no array {key}, expected {', '.join(required[layout])}")
    shape = read_shape(archive, "shape")
    data, first, second = (archive.read(key) for key in required[layout])
    where = str(archive.source)
    if layout == "coo":
        for key, numbers, stop in (("row", first, shape[0]), ("col", second, shape[1])):
            if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or numbers.shape != data.shape:
                raise DataError(f"{where} {key}: dtype {numbers.dtype} and shape {numbers.shape}, expected integers "
                                f"{data.shape}")
            check_range(numbers, stop, f"{where} {key}")
        need(64 * shape[0], archive.memory, f"{where} shape: {shape[0]} rows")
        return sp.csr_array((data, (signed(first), signed(second))), shape=shape)
    return sparse_matrix(data, first, second, shape, where, transposed=layout == "csc")


def sparse_matrix(data, indices, indptr, shape, where, *, transposed=False):
    """Check the arrays of a CSR (or CSC: transposed) matrix and make it.

    Raises
    ------
    DataError
        As `check_csr_arrays`, or not one number per entry.
    """
    check_csr_arrays(indptr, indices, shape[::-1] if transposed else shape, where)
    indptr, indices = signed(indptr), signed(indices)
    if data.shape != indices.shape:
        raise DataError(f"{where} data: shape {data.shape}, expected {indices.shape}")
    kind = sp.csc_array if transposed else sp.csr_array
    matrix = kind((data, indices, indptr), shape=shape)
    return matrix.tocsr() if transposed else matrix


def signed(numbers):
    """Integers below 2^63 in a dtype that NumPy and SciPy count with: int64 for uint64."""
    return numbers.astype(np.int64) if numbers.dtype == np.uint64 else numbers


def read_shape(archive, key):
    """Return two numbers as a tuple of int."""
    shape = archive.read(key)
    if (shape.shape != (2,) or shape.dtype.kind not in "iu" or int(shape.min()) < 0
            or int(shape.max()) > np.iinfo(np.int64).max):
        raise DataError(f"{archive.source} {key}: {shape.tolist()}, expected two numbers of rows and columns")
    return int(shape[0]), int(shape[1])

"""Part vectors on disk: text with one part per line (METIS's .part.k), or .npy."""
import math
import os
import re
import warnings
from pathlib import Path

import numpy as np

from hpgcn.errors import DataError
from hpgcn.graphs.partition import check_parts
from hpgcn.runtime.atomic import atomic_write
from hpgcn.runtime.files import changed, reading, refuse_replaced


def read_parts(path, n, k=None):
    """Read the part of each vertex.

    Parameters
    ----------
    path : path
        An array of integers (n,) if it ends in .npy; else text, one integer per line,
        line i + 1 for vertex i.
    n : int
        Number of vertices.
    k : int, optional
        Number of parts; by default any up to n, so one more than the largest part in
        the file.

    Returns
    -------
    (n,) int32

    Raises
    ------
    InputNotFoundError
        The file cannot be opened.
    DataError
        Not n integers, a part outside 0..k-1, or k > n. The error names a line of text,
        or a vertex of an array. Or the file changed while it was read.
    """
    path = Path(path)
    if k is not None and not 1 <= k <= n:
        raise DataError(f"{path}: {k} parts requested for {n} vertices, expected 1..{n}")

    # read
    limit = n if k is None else k
    is_text = path.suffix != ".npy"
    with reading(path) as file:
        opened = os.fstat(file.fileno())
        part = _read_text(path, file) if is_text else _read_array(path, file)
        refuse_replaced(path, opened)

        # validate; a text is named by its lines
        if part.shape != (n,):
            size = f"{part.size} lines" if is_text else f"shape {part.shape}"
            raise DataError(f"{path}: {size}, expected {n} parts, one per vertex")
        outside = np.flatnonzero((part < 0) | (part >= limit)) if is_text else ()
        if len(outside):
            line = [number for number, _ in _filled_lines(file)][outside[0]]
            raise DataError(f"{path}: line {line} has part {part[outside[0]]}, "
                            f"expected 0..{limit - 1}")
        return check_parts(part, limit, n=n, where=str(path))


def write_parts(path, part, *, overwrite=False):
    """Write the part of each vertex, in the format of `read_parts`.

    Raises
    ------
    DataError
        Not a vector of integers from 0.
    OutputError
        The file exists and `overwrite` is False, or its folder takes no files.
    StorageError
        Writing failed.
    """
    part = check_parts(part, np.iinfo(np.int32).max)

    def write(file):
        if Path(path).suffix == ".npy":
            np.save(file, part, allow_pickle=False)
        else:
            file.write("".join(f"{p}\n" for p in part.tolist()).encode())

    atomic_write(path, write, overwrite=overwrite)


def _read_array(path, file):
    if file.read(2) == b"PK":
        raise DataError(f"{path}: an archive, expected an .npy file with one array")
    file.seek(0)
    try:
        if np.lib.format.read_magic(file) == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    except Exception as error:  # parsing the header as Python may raise any exception
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: not an .npy file of numbers: {reason}") from error
    if dtype.hasobject or dtype.itemsize == 0:
        raise DataError(f"{path}: not an .npy file of numbers: its dtype is {dtype}")

    size = math.prod(shape)
    left = os.fstat(file.fileno()).st_size - file.tell()
    if not 0 <= size * dtype.itemsize <= left:  # checked before the allocation
        raise DataError(f"{path}: shape {shape} of {dtype} takes {size * dtype.itemsize} bytes, "
                        f"but the file has {left}")
    part = np.fromfile(file, dtype, size)
    if part.size != size:
        raise changed(path)
    return part.reshape(shape)


def _read_text(path, file):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # "1.0" for an integer
        warnings.filterwarnings("ignore", ".*input contained no data")
        try:
            table = np.loadtxt(_text(file), np.int64, comments=None, ndmin=2)
        except (ValueError, DeprecationWarning) as error:
            raise DataError(_first_bad_line(path, file) or f"{path}: {error}") from error
    if table.size and table.shape[1] != 1:
        raise DataError(_first_bad_line(path, file))
    return table.ravel()


def _first_bad_line(path, file):
    """Return the error message of the first line that is not one integer."""
    for number, line in _filled_lines(file):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", line):
            excerpt = line if len(line) <= 40 else line[:37] + "..."
            return f"{path}: line {number} is {excerpt!r}, expected one integer"
    return None


def _filled_lines(file):
    """Yield number, from 1, and text of each line that is not blank."""
    for number, line in enumerate(_text(file, errors="replace"), 1):
        if line.strip():
            yield number, line.strip()


def _text(file, errors="strict"):
    """Return the lines of an open binary file, from its beginning; the file stays open."""
    file.seek(0)
    return open(file.fileno(), encoding="utf-8-sig", errors=errors, closefd=False)

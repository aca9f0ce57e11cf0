"""Part vectors on disk: text with one part per line (METIS's .part.k), or .npy."""
from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import numpy as np

from hpgcn.errors import DataError, InputNotFoundError, OutputError, StorageError
from hpgcn.partition.partition import check_parts


def read_parts(path, n, k=None):
    """Read the part of each vertex.

    Parameters
    ----------
    path : path
        An array of integers (n,) if it ends in .npy; else text, one integer per line, line i + 1 for vertex i.
    n : int
        Number of vertices.
    k : int, optional
        Number of parts; by default any up to n, so one more than the largest part in the file.

    Returns
    -------
    (n,) int32

    Raises
    ------
    InputNotFoundError
        The file cannot be opened.
    DataError
        Not n integers, a part outside 0..k-1, or k > n. Text is named by line, an array by vertex.
    """
    path = Path(path)
    if k is not None and not 1 <= k <= n:
        raise DataError(f"{path}: {k} parts asked of {n} vertices, expected 1..{n}")
    text = path.suffix != ".npy"
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise DataError(f"{path}: is a special file, expected a part vector")
        part = _read_text(path) if text else _read_array(path)
    except (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError) as error:
        raise InputNotFoundError(f"{path}: {error.strerror}") from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}") from error
    if part.shape != (n,):
        found = f"{part.size} lines" if text else f"shape {part.shape}"
        raise DataError(f"{path}: {found}, expected {n} parts, one per vertex")
    limit = n if k is None else k
    if text and part.dtype.kind in "ui":
        outside = np.flatnonzero((part < 0) | (part >= limit))
        if outside.size:
            line = _line_of(path, outside[0])
            raise DataError(f"{path}: line {line} has part {part[outside[0]]}, expected 0..{limit - 1}")
    return check_parts(part, limit, n=n, where=str(path))


def write_parts(path, part, *, overwrite=False):
    """Write the part of each vertex, as `read_parts` takes it.

    Raises
    ------
    DataError
        Not a vector of integers from 0.
    OutputError
        The file exists and `overwrite` is False, or its folder takes no files.
    StorageError
        Writing failed.
    """
    path = Path(path)
    part = check_parts(part, np.iinfo(np.int32).max)
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists: choose another name or --overwrite")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        file = open(temporary, "wb")  # noqa: SIM115
    except OSError as error:
        raise OutputError(f"{path}: cannot be created: {error.strerror}") from error
    try:
        with file:
            if path.suffix == ".npy":
                np.save(file, part, allow_pickle=False)
            else:
                file.write("".join(f"{p}\n" for p in part.tolist()).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _read_array(path):
    try:
        # mapped: a header that promises more than the file holds is refused before anything is allocated
        part = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # the header is parsed as Python: what it raises has no common base
        raise DataError(f"{path}: not an .npy file of numbers: {' '.join(str(error).split())}") from error
    if not isinstance(part, np.ndarray):
        raise DataError(f"{path}: an archive, expected an .npy file with one array")
    return part


def _read_text(path):
    with open(path, encoding="utf-8-sig") as file, warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # "1.0" for an integer
        warnings.filterwarnings("ignore", ".*input contained no data")
        try:
            table = np.loadtxt(file, np.int64, comments=None, ndmin=2)
        except (ValueError, DeprecationWarning) as error:
            raise DataError(_first_bad_line(path) or f"{path}: {error}") from error
    if table.size and table.shape[1] != 1:
        raise DataError(_first_bad_line(path))
    return table.ravel()


def _first_bad_line(path):
    """The error about the first line that is not one integer."""
    for number, line in _filled_lines(path):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", line):
            found = line if len(line) <= 40 else line[:37] + "..."
            return f"{path}: line {number} is {found!r}, expected one integer"
    return None


def _line_of(path, vertex):
    """Number of the line, from 1, that holds a vertex: blank lines hold none."""
    return next(number for index, (number, _) in enumerate(_filled_lines(path)) if index == vertex)


def _filled_lines(path):
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line.strip()

"""Check the headers of an HDF5 file, its datasets and attributes before data is read."""
from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpgcn.errors import DataError
from hpgcn.runtime.files import regular, unreadable

SIGNATURE = b"\x89HDF\r\n\x1a\n"
SUPERBLOCK_BYTES = 48
MAX_ATTRIBUTE_BYTES = 1 << 20
MAX_ATTRIBUTES = 4096
GZIP_RATIO = 1032  # bytes that one byte of deflate can stand for at most
FILTERS = {  # part of HDF5 itself, and without need of another library
    h5py.h5z.FILTER_DEFLATE: "gzip",
    h5py.h5z.FILTER_SHUFFLE: "shuffle",
    h5py.h5z.FILTER_FLETCHER32: "fletcher32"}
NUMBERS = (h5py.h5t.INTEGER, h5py.h5t.FLOAT)
TEXTUAL = ("/original_ids", "/vertex_ids", "/id", "/class_names", "/feature_names",
           "/target_names")  # datasets that may be text


def check_superblock(path: Path | str) -> os.stat_result:
    """Refuse a file that is not HDF5, is truncated, or lacks checksums; return its os.stat."""
    try:
        with open(path, "rb", opener=regular) as file:
            status = os.fstat(file.fileno())
            head = file.read(SUPERBLOCK_BYTES)
    except DataError:
        raise
    except IsADirectoryError as error:
        raise DataError(f"{path}: is a folder, expected an HDF5 file") from error
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error

    # refuse other files, and versions without checksums
    if not head:
        raise DataError(f"{path}: is empty (0 bytes), expected an HDF5 file")
    if head[:8] != SIGNATURE:
        raise DataError(f"{path}: is not an HDF5 file; `hpgcn convert` converts a graph of another "
                        "format")
    if len(head) >= 9 and head[8] not in (2, 3):
        raise DataError(f"{path}: HDF5 superblock version {head[8]}, expected 2 or 3 (checksummed "
                        "headers)")

    # refuse a file that was cut off
    whole = len(head) == SUPERBLOCK_BYTES
    end = int.from_bytes(head[28:36], "little")
    if not whole or end > status.st_size:
        expected = f" of {end}" if whole else ""
        raise DataError(f"{path}: is truncated: {status.st_size} bytes{expected}")

    if head[9:11] != b"\x08\x08" or head[12:20] != bytes(8):
        raise DataError(f"{path}: HDF5 superblock has unusual offsets, expected 8-byte ones from 0")
    return status


def raw_attributes(item: Any) -> dict[str, Any]:
    """Return all attributes of an object, by name.

    Text is bytes; numbers are an ndarray of at most one dimension.
    """
    names = list(item.attrs)
    if len(names) > MAX_ATTRIBUTES:
        raise DataError(f"{len(names)} attributes, expected at most {MAX_ATTRIBUTES}")
    return {name: _raw_attribute(name, item.attrs.get_id(name)) for name in names}


def _raw_attribute(name: str, attribute: Any) -> bytes | np.ndarray:
    kind = attribute.get_type()
    shape = attribute.shape
    size = kind.get_size()
    if shape is None or len(shape) > 1 or size * math.prod(shape) > MAX_ATTRIBUTE_BYTES:
        raise DataError(f"attribute {name} has shape {shape} of {size} bytes each, expected one "
                        f"dimension and {MAX_ATTRIBUTE_BYTES} bytes at most")
    is_text = kind.get_class() == h5py.h5t.STRING and shape == ()
    if not is_text and kind.get_class() not in NUMBERS:
        raise DataError(f"attribute {name} is neither a number nor text")

    array = np.empty(shape, attribute.dtype)
    if array.size:
        attribute.read(array)
    if not is_text:
        return array
    text = array[()]
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")


def plain(value: Any) -> float | list[int] | str:
    """Return a raw attribute as int, float, str or list; DataError if text is not UTF-8."""
    if not isinstance(value, bytes):
        return value.tolist()
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"text is not UTF-8 ({error.reason} at byte {error.start})") from error


@dataclass(frozen=True)
class Entry:
    """Properties of a dataset that passed all checks."""

    shape: tuple[int, ...]
    dtype: np.dtype
    stored: int  # bytes on disk
    filters: tuple[str, ...]
    chunk_bytes: int  # bytes of one chunk when read; 0 without chunks
    address: int  # identifies the dataset, which may have several names
    offset: int | None  # position of its bytes, if the file has them as memory does

    @property
    def rows(self) -> int:
        """Number of rows: the length of axis 0, or 1 for a scalar."""
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape[1:])

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes


def inspect(item: h5py.h5d.DatasetID, file_size: int, *, textual: bool = False) -> Entry:
    """Check an open dataset (h5py.h5d.DatasetID) in a file of `file_size` bytes.

    Return its Entry. The dataset has numbers or, with `textual`, maybe text of a fixed
    length.
    """
    # refuse types other than numbers and text, and data outside the file
    kind = item.get_type()
    plist = item.get_create_plist()
    is_text = kind.get_class() == h5py.h5t.STRING and not kind.is_variable_str()
    if kind.get_class() not in NUMBERS and not (textual and is_text):
        raise DataError(f"has {type(kind).__name__[4:-2].lower()} elements, expected numbers")
    if plist.get_external_count():
        raise DataError("is stored in external files, which is not allowed")
    layout = plist.get_layout()
    if layout not in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED):
        raise DataError("is a virtual dataset, which is not allowed")
    if item.shape is None:
        raise DataError("has no shape (null dataspace), expected an array")

    # refuse unknown filters, because they could expand to a huge array
    codes = [plist.get_filter(k)[0] for k in range(plist.get_nfilters())]
    if not set(codes) <= set(FILTERS) or len(set(codes)) != len(codes):
        known = ", ".join(f"{code} ({name})" for code, name in FILTERS.items())
        raise DataError(f"has filters {codes}, expected at most one of each of {known}")

    # refuse sizes that the file cannot hold
    stored = item.get_storage_size()
    claimed = kind.get_size() * math.prod(item.shape)
    ratio = GZIP_RATIO if h5py.h5z.FILTER_DEFLATE in codes else 1
    if stored > file_size or claimed > stored * ratio:
        raise DataError(f"claims {claimed} bytes in shape {item.shape}, but has {stored} of the "
                        f"file's {file_size}")

    chunk = 0
    if layout == h5py.h5d.CHUNKED:
        chunk = kind.get_size() * math.prod(plist.get_chunk())
    filters = tuple(FILTERS[code] for code in codes)
    return Entry(item.shape, item.dtype, stored, filters, chunk, address(item),
                 _offset(item, layout, claimed, file_size))


def _offset(item: h5py.h5d.DatasetID, layout: int, nbytes: int, file_size: int) -> int | None:
    """Return where a dataset lies in its file like an array in memory, or None."""
    if layout != h5py.h5d.CONTIGUOUS or item.get_type() != h5py.h5t.py_create(item.dtype):
        return None
    offset = item.get_offset()  # None before any data is written
    return offset if offset is not None and offset + nbytes <= file_size else None


def address(item: Any) -> int:
    """Return the file address of an open object's header, the same for all its names."""
    return h5py.h5o.get_info(item).addr

"""What one dataset claims to be, checked against the file before its data is read."""
from __future__ import annotations

import math
from dataclasses import dataclass

import h5py
import numpy as np

from hpgcn.errors import DataError

GZIP_RATIO = 1032  # deflate can say no more than this many bytes with one
FILTERS = {  # those that HDF5 itself brings along and that need no further library
    h5py.h5z.FILTER_DEFLATE: "gzip", h5py.h5z.FILTER_SHUFFLE: "shuffle", h5py.h5z.FILTER_FLETCHER32: "fletcher32"}
REFUSED_TYPES = {
    h5py.h5t.STRING: "text", h5py.h5t.BITFIELD: "bitfield", h5py.h5t.OPAQUE: "opaque", h5py.h5t.COMPOUND: "compound",
    h5py.h5t.REFERENCE: "reference", h5py.h5t.ENUM: "enumeration", h5py.h5t.VLEN: "variable-length",
    h5py.h5t.ARRAY: "array"}


@dataclass(frozen=True)
class Entry:
    """A dataset that passed all checks: shape, dtype, bytes on disk, filters, bytes of one chunk, place in the file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    stored: int
    filters: tuple[str, ...] = ()
    chunk_bytes: int = 0
    address: int = 0

    @property
    def rows(self):
        """Length of axis 0; 1 for a scalar."""
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self):
        """Bytes of one row."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    @property
    def nbytes(self):
        """Bytes when read."""
        return self.rows * self.row_bytes


def inspect(item, file_size):
    """Describe an open dataset, or refuse it.

    Parameters
    ----------
    item : h5py.h5d.DatasetID
    file_size : int
        Bytes.

    Returns
    -------
    Entry

    Raises
    ------
    DataError
        Elements that are not numbers, external or virtual storage, filters that HDF5 does not bring along, or a
        shape that the file cannot hold. The caller adds the names of file and dataset.
    """
    kind, plist = item.get_type(), item.get_create_plist()
    if kind.get_class() not in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        raise DataError(f"has {REFUSED_TYPES.get(kind.get_class(), 'unknown')} elements, expected numbers")
    if plist.get_external_count():
        raise DataError("is stored in external files, which is refused")
    layout = plist.get_layout()
    if layout not in (h5py.h5d.COMPACT, h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED):
        raise DataError("is a virtual dataset, which is refused")
    if item.shape is None:
        raise DataError("has no shape (null dataspace), expected an array")
    codes = [plist.get_filter(k)[0] for k in range(plist.get_nfilters())]
    if not set(codes) <= set(FILTERS) or len(set(codes)) != len(codes):
        known = ", ".join(f"{code} ({name})" for code, name in FILTERS.items())
        raise DataError(f"has filters {codes}, expected at most one of each of {known}")
    element, stored = kind.get_size(), item.get_storage_size()
    claimed = element * math.prod(item.shape)
    if stored > file_size or claimed > stored * (GZIP_RATIO if h5py.h5z.FILTER_DEFLATE in codes else 1):
        raise DataError(f"claims {claimed} bytes in shape {item.shape}, but has {stored} of the file's {file_size}")
    chunk = element * math.prod(plist.get_chunk()) if layout == h5py.h5d.CHUNKED else 0
    return Entry(item.shape, item.dtype, stored, tuple(FILTERS[code] for code in codes), chunk, address(item))


def address(item):
    """Where the header of an open object lies in the file: the same for all its names."""
    return h5py.h5o.get_info(item).addr

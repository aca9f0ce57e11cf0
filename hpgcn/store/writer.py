"""Write HDF5 files completely or not at all, with checksums of headers and mebibytes."""
from __future__ import annotations

import datetime
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from hpgcn import __version__
from hpgcn.errors import StorageError, UsageError
from hpgcn.runtime.atomic import refuse_existing, replacing, synchronize, writing
from hpgcn.runtime.disk.mapped_pages import leave_memory
from hpgcn.runtime.disk.page_cache import DiskFile, is_bypassed
from hpgcn.store import manifest
from hpgcn.store.objects import raw_attributes

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.store.manifest import BlockChecksums

FORMAT_VERSION = "1.0"
LIBVER = ("v110", "v110")  # gives each header and chunk index a checksum
WRITE_BYTES = 16 << 20
GZIP_LEVEL = 4
COMPRESSION = ("none", "gzip")


@contextmanager
def create(path: Path | str, file_format: str, *, overwrite: bool = False, compress: str = "none",
           scratch: Path | None = None, follow: bool = True) -> Iterator[Writer]:
    """Context manager: yield a Writer of a new file, which appears at `path` on success.

    `file_format` is the root attribute `format`, `compress` one of COMPRESSION;
    `overwrite` and `follow` as in `replacing`. `scratch` is a folder for the unfinished
    file, on the same file system; default that of `path`.
    """
    if compress not in COMPRESSION:
        raise UsageError(f"compress = {compress!r}: expected one of {', '.join(COMPRESSION)}")
    place = replacing(path, overwrite, follow)
    if scratch:
        place = _moved(path, overwrite, scratch)

    # create an empty file; its errors count as errors of writing
    with place as temporary:
        with writing(path):
            sink = _Sink(temporary, "r+")

        # let the caller's block write, then add checksums and compare them
        try:
            with h5py.File(sink, "w", libver=LIBVER) as file:
                writer = Writer(file, sink, path, compress)
                now = datetime.datetime.now(datetime.UTC)
                writer.attributes("/", {
                    "format": file_format, "format_version": FORMAT_VERSION,
                    "creator": f"hpgcn {__version__}",
                    "created_utc": now.isoformat(timespec="seconds")})
                yield writer
                writer.finish()
            writer.check()
        finally:
            with writing(path):
                sink.close()


@contextmanager
def _moved(path: Path | str, overwrite: bool, scratch: Path) -> Iterator[Path]:
    """Replace a file like `replacing`, but with its temporary file in the folder `scratch`."""
    finished = Path(scratch) / "finished"
    target = refuse_existing(path, overwrite)
    with replacing(finished) as temporary:
        yield temporary
    refuse_existing(path, overwrite)  # another process may have been faster
    with writing(path):
        os.replace(finished, target)
        synchronize(target.parent)


class _Sink(DiskFile):
    """A file that hides failed writes from HDF5, which can crash after one.

    `failure` stores the first error, which the Writer raises later; further writes are
    ignored.
    """

    failure = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while len(rest) and self.failure is None:
                rest = rest[super().write(rest):]
        except BaseException as error:  # even KeyboardInterrupt must not pass through HDF5
            self.failure = error
        return size

    def truncate(self, size: int | None = None) -> int:
        try:
            if self.failure is None:
                return super().truncate(size)
        except OSError as error:
            self.failure = error
        return size


class Writer:
    """Writes datasets with checksums, attributes and hard links to a new file."""

    def __init__(self, file: h5py.File, sink: _Sink, path: Path | str, compress: str) -> None:
        self.file = file
        self.sink = sink
        self.path = path
        self.compress = compress
        self.checksums = {}

    def check(self) -> None:
        """Raise an error if writing has failed since the last check."""
        failure = self.sink.failure
        if isinstance(failure, OSError):
            raise StorageError(f"{self.path}: writing failed: {failure.strerror}") from failure
        if failure is not None:
            raise failure

    def attributes(self, group: str, values: dict[str, Any]) -> None:
        """Set attributes of a group: bool, int, float, str, 1-d numbers; None is left out."""
        target = self.file.require_group(group)
        for name, value in values.items():
            if isinstance(value, str):  # fixed length, so that a checksum covers it
                text = value.encode("utf-8", "replace")
                dtype = h5py.string_dtype("utf-8", max(1, len(text)))
                target.attrs.create(name, np.bytes_(text), dtype=dtype)
            elif value is not None:
                target.attrs.create(name, _number(name, value))
        self.check()

    def dataset(self, name: str, source: Any) -> None:
        """Write an array, 16 MiB at a time.

        It is an ndarray, or an object with `shape`, `dtype` and [start:stop]. Text (an
        ndarray of NumPy's kind U) is written as UTF-8 of a fixed length.
        """
        if source.dtype.kind == "U":
            source = np.char.encode(source, "utf-8")
        shape = tuple(source.shape)
        dtype = np.dtype(source.dtype).newbyteorder("<")
        checksums = manifest.BlockChecksums()
        if shape:
            self._pieces(name, source, shape, dtype, checksums)
        else:
            array = np.ascontiguousarray(source, dtype)
            self.file.create_dataset(name, data=array.reshape(()))
            checksums.update(array)
        self.checksums[name] = (dtype, shape, checksums.result())
        self.check()

    def _pieces(self, name: str, source: Any, shape: tuple, dtype: DTypeLike,
                checksums: BlockChecksums) -> None:
        row_bytes = dtype.itemsize * math.prod(shape[1:])
        rows = max(1, min(shape[0], manifest.BLOCK // max(1, row_bytes)))
        packed = self.compress == "gzip" and shape[0] * row_bytes > 0
        options = {}
        if packed:
            options = {"chunks": (rows, *shape[1:]), "compression": "gzip", "shuffle": True}
        kind = dtype if dtype.kind != "S" else h5py.string_dtype("utf-8", dtype.itemsize)
        target = self.file.create_dataset(name, shape, kind, **options)

        step = rows if packed else max(1, WRITE_BYTES // max(1, row_bytes))
        for start in range(0, shape[0], step):
            block = np.ascontiguousarray(source[start:start + step], dtype)
            checksums.update(block)
            if packed:
                _write_chunk(target, start, block, rows)
            elif block.size:
                target[start:start + len(block)] = block.view(kind)
            if is_bypassed():  # if it is a part of an array in a file
                leave_memory(block)
            self.check()

    def link(self, name: str, existing: str) -> None:
        """Give an existing dataset a second name (a hard link without a copy)."""
        self.file[name] = self.file[existing]

    def finish(self) -> None:
        """Write the manifest, then mark the file as complete."""
        self.file.require_group(manifest.GROUP)
        for name, (dtype, shape, checksums) in self.checksums.items():
            entry = self.file.create_dataset(f"{manifest.GROUP}/{name}", data=checksums)
            entry.attrs["dtype"] = np.bytes_(dtype.str)
            entry.attrs["shape"] = np.array(shape, np.int64)
        attributes = {"/": raw_attributes(self.file)}
        self.file.visititems(
            lambda name, item: attributes.update({f"/{name}": raw_attributes(item)}))
        crc = np.uint32(manifest.attributes_crc(attributes))
        self.file[manifest.GROUP].attrs[manifest.ATTRIBUTES] = crc
        self.file.flush()
        self.check()
        self.file.attrs[manifest.COMPLETE] = np.int64(1)


def _write_chunk(target: h5py.Dataset, start: int, block: np.ndarray, rows: int) -> None:
    """Compress a chunk like HDF5's filters and write it directly.

    HDF5's chunk cache is not used: see _Sink.
    """
    if len(block) < rows:
        padding = np.zeros((rows - len(block), *block.shape[1:]), block.dtype)
        block = np.concatenate([block, padding])
    shuffled = block.reshape(-1).view(np.uint8).reshape(-1, block.dtype.itemsize).T.tobytes()
    place = (start,) + (0,) * (block.ndim - 1)
    target.id.write_direct_chunk(place, zlib.compress(shuffled, GZIP_LEVEL))


def _number(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    kind = array.dtype.kind
    if kind not in "biuf":
        raise TypeError(f"attribute {name!r} is {value!r}, expected a number, text or a list of "
                        "numbers")
    if array.ndim > 1:
        raise TypeError(f"attribute {name!r} has shape {array.shape}, expected one dimension")
    if kind == "b":
        return array.astype(np.uint8)
    if kind == "f":
        return array.astype(np.float64)
    return array.astype(np.int64) if np.can_cast(array.dtype, np.int64) else array

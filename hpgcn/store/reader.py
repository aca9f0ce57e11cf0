"""Read untrusted HDF5 files; headers are validated before any data is read."""
from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from hpgcn.errors import DataError, HpgcnError, StorageError, UsageError, printable, setting
from hpgcn.runtime import files
from hpgcn.runtime.disk.page_cache import (
    STEP,
    bypassed,
    drop_pages,
    is_bypassed,
    read_exactly,
    read_nothing_ahead,
)
from hpgcn.runtime.machine import memory_budget
from hpgcn.store import manifest
from hpgcn.store.objects import (
    TEXTUAL,
    address,
    check_superblock,
    inspect,
    plain,
    raw_attributes,
)
from hpgcn.store.writer import FORMAT_VERSION

if TYPE_CHECKING:
    from hpgcn.store.objects import Entry

MAX_OBJECTS = 100_000
MAX_DEPTH = 16
REFUSED_LINKS = {h5py.ExternalLink: "an external link", h5py.SoftLink: "a soft link"}
RAISED_BY_H5PY = (OSError, RuntimeError, LookupError, ValueError, TypeError, ArithmeticError,
                  AttributeError, SystemError, NotImplementedError)
CHECKSUMS = f"/{manifest.GROUP}/"


class Reader:
    """An open HDF5 file whose links, types, filters, sizes and attributes are checked.

    Its root attribute `format` must be one of `formats`. With `verify` checksums are
    compared, of every block that is read and of the attributes. At most `memory` bytes
    are read at once, by default 80% of the available memory / ranks on this machine.
    """

    def __init__(self, path: str | os.PathLike[str], formats: tuple[str, ...], *,
                 verify: bool = True, memory: int | None = None) -> None:
        self.path = os.fspath(path)
        self.verify = verify
        self.bypass = is_bypassed()
        self.memory = memory_budget() if memory is None else memory
        self.opened = check_superblock(self.path)

        with self._refusing("the file"):
            self.file = h5py.File(self.path, "r", driver="sec2", locking=False)
        try:
            if self.bypass:
                read_nothing_ahead(self._handle)
            self.refuse_rewritten()  # the file is opened twice: detect a change in between
            with self._refusing("/"):
                self._raw = {"/": raw_attributes(self.file)}
            self.format = self._check_format(formats)
            self.entries = {}  # path -> Entry, with hard links, without the manifest
            self._checksums = {}  # path of a dataset -> Entry of its checksums
            self._checked = {}  # path of a dataset -> checksums that were read, (blocks,) uint32
            self._walk()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.file and self.bypass:
            drop_pages(self._handle)
        self.file.close()

    @property
    def _handle(self) -> int:
        """Descriptor of the open file; its path may lead to another file by now."""
        return self.file.id.get_vfd_handle()

    def refuse_rewritten(self) -> None:
        """Raise DataError if the open file was written to after it was opened."""
        files.refuse_rewritten(self.path, self._handle, self.opened)

    def sha256(self) -> str:
        """Return the SHA-256 of the open file; DataError if it was written to since."""
        digest = hashlib.sha256()
        with self._refusing("the file", data=True), bypassed(self.bypass):
            files.add_to(digest, self.path, self._handle, self.opened)
        return digest.hexdigest()

    def attributes(self, group: str = "/") -> dict[str, Any]:
        """Return the attributes of a group as int, float, str or list of numbers, by name."""
        with self._refusing(group):
            return {name: plain(value) for name, value in self._raw.get(group, {}).items()}

    def field(self, name: str, kind: type, group: str = "/") -> Any:
        """Return an attribute of type `kind`; DataError for another type or a negative integer."""
        value = self.attributes(group).get(name)
        where = f"{group}: attribute {name}"
        if value is None:
            raise self.error(f"{where} is missing")
        if not isinstance(value, kind) or (kind is int and value < 0):
            expected = "an integer >= 0" if kind is int else kind.__name__
            raise self.error(f"{where} is {value!r}, expected {expected}")
        return value

    def expect(self, name: str, shape: tuple, *dtypes: Any) -> Entry:
        """Return the Entry of a dataset after checking shape and dtype.

        None in a shape means any length.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise self.error(f"dataset {name} is missing")
        if entry.dtype not in [np.dtype(dtype) for dtype in dtypes]:
            stored = entry.dtype.name + ("" if entry.dtype.isnative else " (big-endian)")
            expected = " or ".join(np.dtype(dtype).name for dtype in dtypes)
            raise self.error(f"{name} has dtype {stored}, expected {expected}")
        lengths = zip(shape, entry.shape)
        if len(entry.shape) != len(shape) or any(want not in (None, is_) for want, is_ in lengths):
            expected = ", ".join("any" if length is None else str(length) for length in shape)
            raise self.error(f"{name} has shape {entry.shape}, expected ({expected})")
        return entry

    def error(self, problem: str) -> DataError:
        return DataError(f"{self.path}: {problem}")

    def reserve(self, nbytes: int, what: str) -> None:
        """Raise DataError if reading `nbytes` at once exceeds the memory budget."""
        if nbytes > self.memory:
            raise self.error(f"{what} needs {nbytes} bytes of memory, but the limit is "
                             f"{self.memory}; {setting('memory')} sets it")

    def read(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return rows [start, stop) of a dataset, C-contiguous, after comparing their checksums.

        Text is of NumPy's kind U, of the same width whichever rows are read.
        """
        array = self._verified(name, start, stop)
        if array.dtype.kind != "S":
            return array
        self.reserve(4 * array.nbytes, f"text of {name}")
        try:
            return np.char.decode(array, "utf-8").astype(f"U{array.itemsize}")
        except UnicodeDecodeError as error:
            raise self.error(f"{name}: text is not UTF-8 ({error.reason})") from error

    def _verified(self, name: str, start: int, stop: int | None) -> np.ndarray:
        entry = self.entries[name]
        stop = entry.rows if stop is None else stop
        nbytes = (stop - start) * entry.row_bytes
        self.reserve(nbytes, f"{name}[{start}:{stop}]")
        if nbytes == 0 or not self.verify:
            return self._read(name, entry, start, stop)

        # extend the rows to whole blocks, because each block has one checksum
        checksums = self._block_checksums(name)
        size = manifest.BLOCK
        row = entry.row_bytes
        blocks = range(start * row // size, manifest.num_blocks(stop * row))
        first = blocks.start * size // row
        last = min(entry.rows, -(-blocks.stop * size // row))
        array = np.empty((last - first, *entry.shape[1:]) if entry.shape else (), entry.dtype)
        raw = manifest.as_bytes(array)
        direct = entry.offset is not None
        if not direct:
            self._fill(name, entry, array, first)

        # read and check the blocks on several threads
        def is_wrong(block: int) -> bool:
            begin = block * size - first * row
            piece = raw[begin:begin + size]
            if direct:
                read_exactly(self._handle, piece, entry.offset + first * row + begin,
                             self.bypass)
            return zlib.crc32(piece) != checksums[block]

        with self._refusing(name, data=True):
            found = manifest.map_blocks(is_wrong, blocks)

        # distinguish a file that was rewritten from a damaged one
        wrong = next((block for block, bad in zip(blocks, found) if bad), None)
        if wrong is not None:
            self.refuse_rewritten()
            end = min((wrong + 1) * size, entry.nbytes)
            raise StorageError(f"{self.path}: {name}: the checksum of block {wrong} (bytes "
                               f"{wrong * size} to {end}) does not match: the file is damaged")
        rows = array[start - first:stop - first] if entry.shape else array
        return rows if 2 * nbytes > array.nbytes else rows.copy()  # does not keep whole blocks

    def content_sha256(self) -> str:
        """Return a SHA-256 of all attributes and block checksums, which identifies the content.

        Attributes in manifest.CIRCUMSTANCES are left out.
        """
        digest = hashlib.sha256()
        for piece in manifest.attribute_bytes(self._raw, manifest.CIRCUMSTANCES):
            digest.update(piece)
        for name in sorted(self._checksums.keys() & self.entries.keys()):
            digest.update(name.encode("utf-8", "surrogateescape"))
            digest.update(self._block_checksums(name))
        return digest.hexdigest()

    def expect_ones(self, name: str) -> None:
        """Raise an error unless a uint8 dataset is all 1 by its checksums.

        At most one block is read, to name the first other number.
        """
        entry = self.entries[name]
        block = manifest.first_block_not_ones(entry.nbytes, self._block_checksums(name))
        if block is not None:
            start = block * manifest.BLOCK
            array = self.read(name, start, min(entry.rows, start + manifest.BLOCK))
            place = int(np.argmax(array != 1))
            raise self.error(f"{name}[{start + place}] is {array[place]}, but attribute all_ones "
                             "is 1")

    def verify_attributes(self) -> None:
        """Compare the checksum of all attributes, except without verification."""
        stored = self._raw.get(f"/{manifest.GROUP}", {}).get(manifest.ATTRIBUTES)
        if stored is None or isinstance(stored, bytes) or stored.shape:
            raise self.error(f"/{manifest.GROUP}: attribute {manifest.ATTRIBUTES} is missing")
        if self.verify and manifest.attributes_crc(self._raw) != int(stored):
            raise StorageError(f"{self.path}: the checksum of the attributes does not match: the "
                               "file is damaged, or was changed by another program")

    def distinct(self) -> dict[str, Entry]:
        """Return the Entry of each dataset once, by its name in the manifest."""
        known = {self.entries[name].address: name for name in self.entries.keys() & self._checksums}
        return {known.get(entry.address, name): entry for name, entry in self.entries.items()}

    def verify_dataset(self, name: str) -> None:
        entry = self.entries[name]
        step = max(1, (64 << 20) // max(1, entry.row_bytes))
        for start in range(0, entry.rows, step):
            self.read(name, start, min(entry.rows, start + step))
        self._block_checksums(name)

    def _read(self, name: str, entry: Entry, start: int, stop: int) -> np.ndarray:
        with self._refusing(name, data=True):
            array = np.empty((stop - start, *entry.shape[1:]) if entry.shape else (), entry.dtype)
        self._fill(name, entry, array, start)
        return array

    def _fill(self, name: str, entry: Entry, array: np.ndarray, start: int) -> None:
        """Read rows from `start` on into an array of rows."""
        with self._refusing(name, data=True):
            if not array.size:
                return
            if not entry.shape:
                self.file[name].read_direct(array)
                return

            # read in pieces if pages are dropped, so that few are in the cache at a time
            step = max(1, STEP // entry.row_bytes) if self.bypass else len(array)
            for first in range(0, len(array), step):
                piece = array[first:first + step]
                rows = np.s_[start + first:start + first + len(piece)]
                self.file[name].read_direct(piece, rows)
                if self.bypass:
                    drop_pages(self._handle)

    def _block_checksums(self, name: str) -> Any:
        """Return the block checksums of a dataset, (blocks,) uint32, after checking them."""
        if name in self._checked:
            return self._checked[name]
        entry = self.entries[name]
        checksums = self._checksums.get(name)
        if checksums is None:
            raise self.error(f"{name} has no checksums in /{manifest.GROUP}")

        # refuse a manifest that contradicts the dataset
        described = self.attributes(CHECKSUMS + name)
        dtype = described.get("dtype")
        shape = described.get("shape")
        if dtype != entry.dtype.str or shape != list(entry.shape):
            raise self.error(f"{name} has dtype {entry.dtype.str} and shape {entry.shape}, but "
                             f"/manifest says {dtype} and {shape}")

        blocks = manifest.num_blocks(entry.nbytes)
        if checksums.shape != (blocks,) or checksums.dtype != np.uint32:
            raise self.error(f"{name}: its checksums in /{manifest.GROUP} are "
                             f"{checksums.dtype.name} {checksums.shape}, expected uint32 "
                             f"({blocks},)")

        self.reserve(checksums.nbytes, f"the checksums of {name}")
        self._checked[name] = self._read(CHECKSUMS + name, checksums, 0, checksums.rows)
        return self._checked[name]

    def _check_format(self, formats: tuple[str, ...]) -> str:
        root = self.attributes()
        stored = root.get("format")
        version = root.get("format_version")
        complete = root.get(manifest.COMPLETE)

        if stored is None:
            raise self.error("not an hpgcn file: it has no attribute format")
        if stored not in formats:
            raise self.error(f"format is {stored!r}, expected {' or '.join(formats)}")
        if version != FORMAT_VERSION:
            raise self.error(f"format_version is {version!r}, expected {FORMAT_VERSION!r}")
        if complete != 1:
            raise self.error(f"attribute complete is {complete!r}, expected 1: the file was not "
                             "written to its end")
        return stored

    def _walk(self) -> None:
        """Check every link before following it, and every object, before any data is read."""
        with self._refusing("/"):
            root = h5py.h5g.open(self.file.id, b"/")
            seen = {address(root)}
        pending = [("", root)]
        objects = 0

        # visit each object once, and count them: a crafted file may have cycles
        while pending:
            parent, group = pending.pop()
            with self._refusing(parent or "/"):
                names = list(h5py.Group(group))
            objects += len(names)
            if objects > MAX_OBJECTS or parent.count("/") > MAX_DEPTH:
                raise self.error(f"more than {MAX_OBJECTS} objects or {MAX_DEPTH} levels of groups")

            for name in names:
                path = f"{parent}/{name}"
                with self._refusing(path):
                    item = self._visit(path, group, name)
                    if not isinstance(item, h5py.h5g.GroupID):
                        continue
                    if address(item) in seen:
                        raise DataError("is a second name of a group, which is not allowed")
                    seen.add(address(item))
                    pending.append((path, item))

    def _visit(self, path: str, group: Any, name: str) -> None:
        link = h5py.Group(group).get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            kind = REFUSED_LINKS.get(type(link), "an unknown link")
            raise DataError(f"is {kind}, which is not allowed")

        item = h5py.h5o.open(group, name.encode("utf-8", "surrogateescape"))
        if isinstance(item, h5py.h5d.DatasetID):
            self._raw[path] = raw_attributes(h5py.Dataset(item))
            entry = inspect(item, self.opened.st_size, textual=path in TEXTUAL)
            self.reserve(entry.chunk_bytes, f"one chunk of {path}")
            if path.startswith(CHECKSUMS):
                self._checksums[path.removeprefix(CHECKSUMS)] = entry
            else:
                self.entries[path[1:]] = entry
        elif isinstance(item, h5py.h5g.GroupID):
            self._raw[path] = raw_attributes(h5py.Group(item))
        else:
            raise DataError("is a named type, which is not allowed")
        return item

    @contextmanager
    def _refusing(self, where: str, data: bool = False) -> Iterator[None]:
        """Context manager: turn h5py's errors into errors of one line that name the object."""
        label = f"{self.path}: {printable(where)}"
        try:
            yield
        except HpgcnError as error:
            if str(error).startswith(self.path):
                raise
            raise type(error)(f"{label}: {error}") from error
        except MemoryError as error:
            raise DataError(f"{label} does not fit into memory") from error
        except RAISED_BY_H5PY as error:
            if hasattr(self, "file") and not self.file:
                raise UsageError(f"{self.path}: was closed; hpgcn.load opens it again") from error

            reason = printable(" ".join(str(error).split())[:200])
            damaged = data or "checksum" in reason or getattr(error, "errno", None)
            if damaged and getattr(self, "file", None):
                self.refuse_rewritten()
            kind = StorageError if damaged else DataError
            raise kind(f"{label} cannot be read: {reason}") from error

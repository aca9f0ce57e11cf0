"""Reading HDF5 files that nobody vouches for: everything is checked before a byte of data is read."""
from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager

import h5py
import numpy as np

from hpgcn import identity
from hpgcn.errors import DataError, HpgcnError, StorageError, printable, setting
from hpgcn.machine import memory_budget
from hpgcn.store import manifest
from hpgcn.store.attributes import plain, raw_attributes
from hpgcn.store.entry import address, inspect
from hpgcn.store.superblock import check_superblock
from hpgcn.store.writer import FORMAT_VERSION

MAX_OBJECTS = 100_000
MAX_DEPTH = 16
REFUSED_LINKS = {h5py.ExternalLink: "an external link", h5py.SoftLink: "a soft link"}


class Reader:
    """An open HDF5 file whose links, types, filters, sizes and attributes have been checked.

    Parameters
    ----------
    path : str or path-like
    formats : tuple of str
        Values of the root attribute `format` that are accepted.
    verify : bool
        Compare the checksum of every block that is read, and of the attributes.
    memory : int, optional
        Bytes that may be read at once; default 80% of the available memory / ranks on this machine.

    Attributes
    ----------
    format : str
    opened : os.stat_result
        Of the file when it was opened.
    entries : dict of str -> Entry
        Datasets by path, hard links included, the manifest's own left out.

    Raises
    ------
    InputNotFoundError
        The file does not exist or cannot be opened.
    DataError
        It is not a complete file of these formats, or holds something that is refused.
    StorageError
        Reading failed, or a checksum does not match.
    """

    def __init__(self, path, formats, *, verify=True, memory=None):
        self.path, self.verify = os.fspath(path), verify
        self.memory = memory_budget() if memory is None else memory
        self.opened = check_superblock(self.path)
        with self._refusing("the file"):
            self.file = h5py.File(self.path, "r", driver="sec2", locking=False)
        try:
            self.refuse_rewritten()  # between the two openings, too
            with self._refusing("/"):
                self._raw = {"/": raw_attributes(self.file)}
            self.format = self._check_format(formats)
            self.entries, self._checksums, self._checked = {}, {}, {}
            self._walk()
        except BaseException:
            self.close()
            raise

    def close(self):
        """Close the file."""
        self.file.close()

    @property
    def _handle(self):
        """Descriptor of the open file: what it reads is read of this file, whatever its name leads to by now."""
        return self.file.id.get_vfd_handle()

    def refuse_rewritten(self):
        """Refuse to go on if the open file was written to since; DataError."""
        identity.refuse_rewritten(self.path, self._handle, self.opened)

    def sha256(self):
        """SHA-256 of the open file (hexadecimal), read in pieces; DataError if it was written to since."""
        digest = hashlib.sha256()
        with self._refusing("the file", data=True):
            identity.add_to(digest, self.path, self._handle, self.opened)
        return digest.hexdigest()

    def attributes(self, group="/"):
        """Attributes of a group as a dict of int, float, str or list of numbers."""
        with self._refusing(group):
            return {name: plain(value) for name, value in self._raw.get(group, {}).items()}

    def field(self, name, kind, group="/"):
        """One attribute, which must exist and be of type `kind` (int, float or str); integers not below 0."""
        value = self.attributes(group).get(name)
        where = f"{self.path}: {group}: attribute {name}"
        if value is None:
            raise DataError(f"{where} is missing")
        if not isinstance(value, kind) or (kind is int and value < 0):
            raise DataError(f"{where} is {value!r}, expected {'an integer >= 0' if kind is int else kind.__name__}")
        return value

    def expect(self, name, shape, *dtypes):
        """Return the Entry of a dataset that must exist with this shape and one of these dtypes.

        A None in `shape` stands for any length.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise DataError(f"{self.path}: dataset {name} is missing")
        if entry.dtype not in [np.dtype(dtype) for dtype in dtypes]:
            wanted = " or ".join(np.dtype(dtype).name for dtype in dtypes)
            raise DataError(f"{self.path}: {name} has dtype {_dtype_name(entry.dtype)}, expected {wanted}")
        fits = len(entry.shape) == len(shape) and all(want in (None, have) for want, have in zip(shape, entry.shape))
        if not fits:
            wanted = ", ".join("any" if want is None else str(want) for want in shape)
            raise DataError(f"{self.path}: {name} has shape {entry.shape}, expected ({wanted})")
        return entry

    def reserve(self, nbytes, what):
        """Refuse to read more bytes at once than the memory budget allows."""
        if nbytes > self.memory:
            raise DataError(f"{self.path}: {what} needs {nbytes} bytes of memory, but only {self.memory} may be used; "
                            f"{setting('memory')} sets the limit")

    def read(self, name, start=0, stop=None):
        """Read rows [start, stop) of a dataset, and verify the checksums of the blocks they lie in.

        Returns
        -------
        ndarray, C-contiguous
        """
        entry = self.entries[name]
        stop = entry.rows if stop is None else stop
        nbytes = (stop - start) * entry.row_bytes
        self.reserve(nbytes, f"{name}[{start}:{stop}]")
        if nbytes == 0 or not self.verify:
            return self._read(name, entry, start, stop)
        checksums = self._block_checksums(name)
        blocks = range(start * entry.row_bytes // manifest.BLOCK, manifest.num_blocks(stop * entry.row_bytes))
        first = blocks.start * manifest.BLOCK // entry.row_bytes
        last = min(entry.rows, -(-blocks.stop * manifest.BLOCK // entry.row_bytes))
        array = self._read(name, entry, first, last)
        wrong = manifest.first_wrong_block(array, first * entry.row_bytes, blocks, checksums)
        if wrong is not None:
            self.refuse_rewritten()
            start, stop = wrong * manifest.BLOCK, min((wrong + 1) * manifest.BLOCK, entry.nbytes)
            raise StorageError(f"{self.path}: {name}: the checksum of block {wrong} (bytes {start} to {stop}) does not "
                               "match: the file is damaged")
        return array[start - first:stop - first] if entry.shape else array

    @property
    def attributes_checksum(self):
        """Checksum of all attributes, as they are."""
        return manifest.attributes_crc(self._raw)

    def content_sha256(self):
        """SHA-256 over all attributes and all checksums of blocks, which from now on are those that reads compare with.

        Little is read for it, and every block that is read later is a block of this content, even if the file was
        written to in between. Who wrote the file and when, and how it is compressed, is no part of it.
        """
        digest = hashlib.sha256()
        for piece in manifest.attribute_bytes(self._raw, manifest.CIRCUMSTANCES):
            digest.update(piece)
        for name in sorted(self._checksums.keys() & self.entries.keys()):
            digest.update(name.encode("utf-8", "surrogateescape"))
            digest.update(self._block_checksums(name))
        return digest.hexdigest()

    def expect_ones(self, name):
        """Refuse a dataset of uint8 that are not all 1; its checksums tell, so that no more than a block is read."""
        entry = self.entries[name]
        block = manifest.first_block_not_ones(entry.nbytes, self._block_checksums(name))
        if block is not None:
            start = block * manifest.BLOCK
            array = self.read(name, start, min(entry.rows, start + manifest.BLOCK))
            place = int(np.argmax(array != 1))
            raise DataError(f"{self.path}: {name}[{start + place}] is {array[place]}, but attribute all_ones is 1")

    def verify_attributes(self):
        """Compare the checksum of all attributes, unless verification is off."""
        stored = self._raw.get(f"/{manifest.GROUP}", {}).get(manifest.ATTRIBUTES)
        if stored is None or isinstance(stored, bytes) or stored.shape:
            raise DataError(f"{self.path}: /{manifest.GROUP}: attribute {manifest.ATTRIBUTES} is missing")
        if self.verify and self.attributes_checksum != int(stored):
            raise StorageError(f"{self.path}: the checksum of the attributes does not match: the file is damaged, or "
                               "was changed by another program")

    def distinct(self):
        """Entries without second names: hard links of one dataset are one, under the name the manifest knows."""
        known = {entry.address: name for name, entry in self.entries.items() if name in self._checksums}
        return {known.get(entry.address, name): entry for name, entry in self.entries.items()}

    def verify_dataset(self, name):
        """Compare the checksums of a whole dataset, piece by piece."""
        entry = self.entries[name]
        step = max(1, (64 << 20) // max(1, entry.row_bytes))
        for start in range(0, entry.rows, step):
            self.read(name, start, min(entry.rows, start + step))
        self._block_checksums(name)

    def _read(self, name, entry, start, stop):
        with self._refusing(name, data=True):
            array = np.empty((stop - start, *entry.shape[1:]) if entry.shape else (), entry.dtype)
            if array.size and entry.shape:
                self.file[name].read_direct(array, np.s_[start:stop])
            elif array.size:
                self.file[name].read_direct(array)
            return array

    def _block_checksums(self, name):
        """(blocks,) uint32 of a dataset, whose dtype and shape must be the manifest's."""
        if name not in self._checked:
            entry, known = self.entries[name], self._checksums.get(name)
            where = f"{self.path}: {name}"
            if known is None:
                raise DataError(f"{where} has no checksums in /{manifest.GROUP}")
            described = self.attributes(f"/{manifest.GROUP}/{name}")
            if described.get("dtype") != entry.dtype.str or described.get("shape") != list(entry.shape):
                raise DataError(f"{where} has dtype {entry.dtype.str} and shape {entry.shape}, but /manifest says "
                                f"{described.get('dtype')} and {described.get('shape')}")
            blocks = manifest.num_blocks(entry.nbytes)
            if known.shape != (blocks,) or known.dtype != np.uint32:
                raise DataError(f"{where}: its checksums in /{manifest.GROUP} are {known.dtype.name} {known.shape}, "
                                f"expected uint32 ({blocks},)")
            self.reserve(known.nbytes, f"the checksums of {name}")
            self._checked[name] = self._read(f"{manifest.GROUP}/{name}", known, 0, known.rows)
        return self._checked[name]

    def _check_format(self, formats):
        root = self.attributes()
        found = root.get("format")
        if found is None:
            raise DataError(f"{self.path}: not an hpgcn file: it has no attribute format")
        if found not in formats:
            raise DataError(f"{self.path}: format is {found!r}, expected {' or '.join(formats)}")
        version, complete = root.get("format_version"), root.get(manifest.COMPLETE)
        if version != FORMAT_VERSION:
            raise DataError(f"{self.path}: format_version is {version!r}, expected {FORMAT_VERSION!r}")
        if complete != 1:
            raise DataError(f"{self.path}: attribute complete is {complete!r}, expected 1: the file was not written to "
                            "its end")
        return found

    def _walk(self):
        """Look at every link before following it, and at every object before reading any data."""
        with self._refusing("/"):
            root = h5py.h5g.open(self.file.id, b"/")
            pending, seen, objects = [("", root)], {address(root)}, 0
        while pending:
            parent, group = pending.pop()
            with self._refusing(parent or "/"):
                names = list(h5py.Group(group))
            objects += len(names)
            if objects > MAX_OBJECTS or parent.count("/") > MAX_DEPTH:
                raise DataError(f"{self.path}: more than {MAX_OBJECTS} objects or {MAX_DEPTH} levels of groups")
            for name in names:
                with self._refusing(f"{parent}/{name}"):
                    item = self._visit(f"{parent}/{name}", group, name)
                    if isinstance(item, h5py.h5g.GroupID):
                        if address(item) in seen:
                            raise DataError("is a group that has another name already, which is refused")
                        seen.add(address(item))
                        pending.append((f"{parent}/{name}", item))

    def _visit(self, path, group, name):
        link = h5py.Group(group).get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise DataError(f"is {REFUSED_LINKS.get(type(link), 'an unknown link')}, which is refused")
        item = h5py.h5o.open(group, name.encode("utf-8", "surrogateescape"))
        if isinstance(item, h5py.h5d.DatasetID):
            self._raw[path] = raw_attributes(h5py.Dataset(item))
            self._add(path, inspect(item, self.opened.st_size))
        elif isinstance(item, h5py.h5g.GroupID):
            self._raw[path] = raw_attributes(h5py.Group(item))
        else:
            raise DataError("is a named type, which is refused")
        return item

    def _add(self, path, entry):
        self.reserve(entry.chunk_bytes, f"one chunk of {path}")
        checksums = f"/{manifest.GROUP}/"
        if path.startswith(checksums):
            self._checksums[path.removeprefix(checksums)] = entry
        else:
            self.entries[path[1:]] = entry

    @contextmanager
    def _refusing(self, where, data=False):
        """Turn whatever h5py raises into one line that names file and object."""
        label = f"{self.path}: {printable(where)}"
        try:
            yield
        except HpgcnError as error:
            if str(error).startswith(self.path):
                raise
            raise type(error)(f"{label}: {error}") from error
        except MemoryError as error:
            raise DataError(f"{label} does not fit into memory") from error
        except (OSError, RuntimeError, LookupError, ValueError, TypeError, ArithmeticError, AttributeError, SystemError,
                NotImplementedError) as error:
            reason = printable(" ".join(str(error).split())[:200])
            damaged = data or "checksum" in reason or getattr(error, "errno", None)
            if damaged and getattr(self, "file", None):
                self.refuse_rewritten()
            raise (StorageError if damaged else DataError)(f"{label} cannot be read: {reason}") from error


def _dtype_name(dtype):
    return dtype.name if dtype.isnative else f"{dtype.name} (big-endian)"

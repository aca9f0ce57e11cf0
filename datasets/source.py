"""An input file: its name, its bytes (maybe compressed), SHA-256 and memory limits."""
from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from hpgcn.datasets.packing import is_broken, packing_of, unpacked_name
from hpgcn.errors import DataError, HpgcnError, InputNotFoundError, StorageError
from hpgcn.runtime import files
from hpgcn.runtime.disk.page_cache import DiskFile

if TYPE_CHECKING:
    from hpgcn.datasets.packing import Packing

LINE_LIMIT = 1 << 20  # bytes of a line
HEAD = 4096  # first bytes of a file, from which its format is guessed
CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")  # bytes that never occur in text
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors put it before text


class BudgetError(DataError):
    """Error for an input that needs more memory than the limit."""


def need(size: int, memory: int, where: Source | str) -> None:
    """Raise BudgetError if an allocation of `size` bytes exceeds `memory`."""
    if size > memory:
        raise BudgetError(f"{where}: needs {size} bytes of memory, but the limit is {memory}")


def not_utf8(where: object, error: UnicodeDecodeError) -> DataError:
    """Return the DataError for text that is not UTF-8, such as Latin-1 of an old Excel."""
    return DataError(f"{where}: not UTF-8 ({error.reason} at byte {error.start}): if it is "
                     "Latin-1, convert it: iconv -f LATIN1 -t UTF-8 FILE > utf8.csv (other "
                     "encodings: iconv -l)")


def truncate(text: object, limit: int = 200) -> str:
    """Return text of a file in a form for one-line messages, cut after `limit` letters."""
    text = str(text)
    cut = "".join(letter if letter.isprintable() else "?" for letter in text[:limit])
    return cut + "..." * (len(text) > limit)


def decoded(field: bytes, where: str) -> str:
    """Return bytes as text; raise DataError if they are not UTF-8."""
    try:
        return field.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(where, error) from error


def folder_name(path: Path) -> str:
    """Return the name of a file's folder, or of its parent if it is called `raw`."""
    folder = path.absolute().parent
    folder = folder.parent if folder.name == "raw" else folder
    return folder.name.encode("utf-8", "replace").decode() or "graph"


def first_repeated(names: Iterator | list[str]) -> str | None:
    """Return the first of `names` that repeats an earlier one, or None."""
    seen = set()
    return next((name for name in names if name in seen or seen.add(name)), None)


@contextmanager
def refused(where: Source | str, what: str = "broken data") -> Iterator[None]:
    """Context manager: turn a library's errors on broken data into a DataError of one line."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # parsers raise errors of any type for damaged bytes
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # errors of the disk, but not EINVAL, a seek past the end
        reason = truncate(str(error) or type(error).__name__)
        raise DataError(f"{where}: {what} ({reason})") from error


class Source:
    """A regular input file; DataError for another kind of file.

    `files` are those that `sha256` covers.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            mode = os.stat(self.path).st_mode
            if stat.S_ISREG(mode):  # to open a pipe would block
                with open(self.path, "rb") as file:
                    self.opened = os.fstat(file.fileno())
                    files.refuse_output(self.path, self.opened)
                    self.magic = file.read(512)
        except (OSError, ValueError) as error:  # ValueError for a NUL byte in the path
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputNotFoundError(f"{path}: {reason}") from error
        if not stat.S_ISREG(mode):
            kind = "a directory, expected a file" if stat.S_ISDIR(mode) else "not a regular file"
            raise DataError(f"{path}: is {kind}")

        self.size = self.opened.st_size
        self.files = [self]

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The name of the graph: the file name without folder and suffix."""
        stem = Path(unpacked_name(self.path.name)).stem
        return stem.encode("utf-8", "replace").decode() or "graph"

    @property
    def suffix(self) -> str:
        """The suffix in lower case, without that of compression: `.csv` for `g.CSV.gz`."""
        return Path(unpacked_name(self.path.name).lower()).suffix

    @property
    def packing(self) -> Packing | None:
        """The Packing of the content, by its first bytes; None if it is not compressed."""
        return packing_of(self.magic)

    @property
    def text_room(self) -> int:
        """The largest number of bytes that the (decompressed) text can have."""
        return self.size * self.packing.ratio if self.packing else self.size

    def head(self) -> bytes:
        """Return the first 4096 bytes of the (decompressed) text, without a byte-order mark."""
        with self.open() as stream:
            return stream.read(HEAD).removeprefix(BYTE_ORDER_MARK)

    @contextmanager
    def open(self, digest: Any = None) -> Iterator:
        """Open the file to read its decompressed bytes; errors become DataErrors.

        If lines end in carriage returns, these are replaced by line feeds. The bytes of
        the file are added to `digest`, a hash object; all of them, if the block ends
        without an error.
        """
        try:
            with ExitStack() as stack:
                file = DiskFile(self.path) if digest is None else _Hashed(self.path, digest)
                raw = stack.enter_context(io.BufferedReader(file, 1 << 20))
                stream = raw
                if self.packing:
                    stream = stack.enter_context(self.packing.open(raw, self))
                yield _as_lines(stream) if _ends_lines_by_returns(stream.peek(HEAD)) else stream

                # add the bytes that were not read to the digest
                while digest is not None and raw.read(1 << 20):
                    pass
        except HpgcnError:
            raise
        except Exception as error:
            if self.packing and is_broken(error):
                raise DataError(f"{self}: broken {self.packing.name} data ({error})") from error
            if isinstance(error, OSError):
                raise StorageError(f"{self}: {error.strerror or error}") from error
            raise

    def sha256(self) -> str:
        """Return the SHA-256 over the bytes of `files`; DataError if a file has changed."""
        digest = hashlib.sha256()
        for source in self.files:
            source.refuse_changed()
            try:
                with DiskFile(source.path) as file:
                    files.add_to(digest, source.path, file.fileno(), source.opened)
            except OSError as error:
                raise StorageError(f"{source}: {error.strerror}") from error
        return digest.hexdigest()

    def refuse_changed(self) -> None:
        files.refuse_replaced(self.path, self.opened)


def open_all(paths: Iterable) -> list[Source]:
    """Return a Source of each path; one InputNotFoundError names all missing files."""
    paths = list(paths)
    refuse_missing(paths)
    return [Source(path) for path in paths]


def refuse_missing(paths: Iterable) -> None:
    """Raise one error that names all missing files, if there are several.

    A single missing file is left to `Source`.
    """
    missing = [truncate(path) for path in paths if not os.path.exists(path)]
    if len(missing) > 1:
        raise InputNotFoundError(f"{', '.join(missing)}: {os.strerror(errno.ENOENT)}")


class _Hashed(DiskFile):
    def __init__(self, path: Path, digest: Any) -> None:
        super().__init__(path)
        self.digest = digest

    def readinto(self, buffer: memoryview) -> int:
        count = super().readinto(buffer)
        self.digest.update(memoryview(buffer)[:count])
        return count


def _ends_lines_by_returns(head: bytes) -> bool:
    """Return whether the lines of a text that begins with `head` end in carriage returns.

    Old Macs wrote such files.
    """
    head = head[:HEAD]
    return b"\r" in head[:-1] and b"\n" not in head and not CONTROL.search(head)


def _as_lines(stream: BinaryIO) -> Any:
    """Return a buffered stream that reads `stream` with carriage returns replaced by line feeds."""
    lines = io.BufferedReader(_LineFeeds(stream), 1 << 20)
    lines.fileobj = getattr(stream, "fileobj", stream)  # its position measures progress
    return lines


class _LineFeeds(io.RawIOBase):
    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.stream.tell()

    def readinto(self, buffer: Any) -> int:
        block = self.stream.read(len(buffer)).replace(b"\r", b"\n")
        buffer[:len(block)] = block
        return len(block)

"""Decompression of gzip, bzip2 and xz files, recognized by their first bytes."""
from __future__ import annotations

import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from hpgcn.errors import DataError

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source


class Packing(NamedTuple):
    """A compression format of files.

    Attributes
    ----------
    name : str
    module : str
        Module of Python that reads it, which some builds lack.
    suffix : str
        Suffix of such files.
    start : bytes
        First bytes of such files.
    ratio : int
        Bound on the size of the content relative to the file.
    command : str
        Shell command that unpacks it.
    """

    name: str
    module: str
    suffix: str
    start: bytes
    ratio: int
    command: str

    def open(self, raw: BinaryIO, where: Source) -> Any:
        """Return a stream of the decompressed content of `raw`, whose `fileobj` is `raw`."""
        try:
            module = import_module(self.module)
        except ImportError as error:
            raise DataError(f"{where}: {self.name} data, but this Python has no module "
                            f"{self.module}; unpack it with {self.command} {where}") from error
        stream = module.open(raw)
        if not hasattr(stream, "fileobj"):
            stream.fileobj = raw
        return stream


PACKINGS = (
    Packing("gzip", "gzip", ".gz", b"\x1f\x8b", 1032, "gunzip"),  # the limit of deflate
    Packing("bzip2", "bz2", ".bz2", b"BZh", 1 << 20, "bunzip2"),  # 45 MB of zeros take 45 bytes
    Packing("xz", "lzma", ".xz", b"\xfd7zXZ\0", 1 << 13, "unxz"),  # 1 MB of zeros takes 150 bytes
)


def packing_of(magic: bytes) -> Packing | None:
    """Return the Packing of a file that begins with `magic`; None if it is not compressed."""
    return next((packing for packing in PACKINGS if magic.startswith(packing.start)), None)


def unpacked_name(name: str) -> str:
    """Return a file name without the suffix of a Packing."""
    return next((name[:-len(packing.suffix)] for packing in PACKINGS
                 if name.lower().endswith(packing.suffix)), name)


def is_broken(error: BaseException) -> bool:
    """Return whether an error means broken compressed data, rather than a faulty disk."""
    return isinstance(error, EOFError | zlib.error) or type(error).__name__ == "LZMAError" or (
        isinstance(error, OSError) and error.errno is None)

"""CRC32 checksums of datasets by mebibyte, and of all attributes, to find damaged files."""

import os
import zlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from hpgcn.graphs.validation import first_true
from hpgcn.kernels.host.pools import start_pool
from hpgcn.runtime.machine import default_threads

BLOCK = 1 << 20  # bytes under one checksum
LEAST_BLOCKS = 16  # fewer blocks are read on one thread
GROUP = "manifest"
ATTRIBUTES = "attributes_crc32"
COMPLETE = "complete"
# the checksum itself, and what is written after it
UNSUMMED = (f"/{GROUP}", ATTRIBUTES), ("/", COMPLETE)
# attributes that are independent of the contents
CIRCUMSTANCES = (*UNSUMMED, ("/", "creator"), ("/", "created_utc"), ("/partition", "seconds"))


class BlockChecksums:
    """Computes the CRC32 of each block of a stream of arrays."""

    def __init__(self) -> None:
        self.finished = []
        self.crc = 0
        self.filled = 0

    def update(self, array: Any) -> None:
        """Append the bytes of a C-contiguous array to the stream."""
        raw = memoryview(array.reshape(-1).view(np.uint8))
        while raw:
            piece = raw[:BLOCK - self.filled]
            self.crc = zlib.crc32(piece, self.crc)
            self.filled += len(piece)
            raw = raw[len(piece):]
            if self.filled == BLOCK:
                self._finish()

    def _finish(self) -> None:
        self.finished.append(self.crc)
        self.crc = 0
        self.filled = 0

    def result(self) -> np.ndarray:
        """Return the checksums of all blocks, (ceil(bytes / BLOCK),) uint32."""
        if self.filled:
            self._finish()
        return np.array(self.finished, np.uint32)


def num_blocks(nbytes: int) -> int:
    return -(-nbytes // BLOCK)


def first_block_not_ones(nbytes: int, checksums: np.ndarray) -> int | None:
    """Return the first block of a uint8 dataset that is not all 1 by its checksum, or None."""
    full, rest = divmod(nbytes, BLOCK)
    expected = [zlib.crc32(b"\1" * BLOCK)] * full
    if rest:
        expected.append(zlib.crc32(b"\1" * rest))
    return first_true(np.array(expected, np.uint32) != checksums)


def as_bytes(array: Any) -> memoryview:
    """Return the memory of a C-contiguous array as a writable memoryview of bytes."""
    return memoryview(array.reshape(-1).view(np.uint8))


def map_blocks(function: Callable, blocks: list[tuple] | range) -> list:
    """Return [function(block) for block in blocks], computed on the threads of a rank.

    So blocks are read and their checksums are computed at the same time.
    """
    threads = int(os.environ.get("NUMBA_NUM_THREADS") or default_threads())
    if threads < 2 or len(blocks) < LEAST_BLOCKS:
        return [function(block) for block in blocks]
    pool, _ = start_pool(threads, "hpgcn-read")
    with pool:
        return list(pool.map(function, blocks))


def attribute_bytes(attributes: dict[str, dict],
                    without: Collection[tuple[str, str]] = UNSUMMED) -> Iterator[bytes]:
    """Yield all attributes of a file as bytes, in sorted order.

    Each value comes after its path, name, type and length.
    """
    for path in sorted(attributes):
        for name in sorted(attributes[path]):
            if (path, name) in without:
                continue
            value = attributes[path][name]
            kind, raw = "text", value
            if not isinstance(value, bytes):
                kind = f"{value.dtype.str} {value.shape}"
                raw = value.tobytes()
            yield f"{path}\0{name}\0{kind}\0{len(raw)}\0".encode("utf-8", "surrogateescape")
            yield raw


def attributes_crc(attributes: dict[str, dict]) -> int:
    crc = 0
    for piece in attribute_bytes(attributes):
        crc = zlib.crc32(piece, crc)
    return crc

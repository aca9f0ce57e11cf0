"""CRC32 of every mebibyte of every dataset, and of all attributes: how one flipped bit is noticed."""
from __future__ import annotations

import zlib

import numpy as np

BLOCK = 1 << 20  # bytes under one checksum
GROUP = "manifest"
ATTRIBUTES = "attributes_crc32"
COMPLETE = "complete"
UNSUMMED = (f"/{GROUP}", ATTRIBUTES), ("/", COMPLETE)  # the checksum of the attributes, and what is written after it
CIRCUMSTANCES = *UNSUMMED, ("/", "creator"), ("/", "created_utc")  # say who wrote a file and when, not what is in it


class BlockChecksums:
    """CRC32 of each block of a stream of arrays."""

    def __init__(self):
        self.finished = []
        self.crc = self.filled = 0

    def update(self, array):
        """Take the next bytes: a C-contiguous array of any shape."""
        raw = memoryview(array.reshape(-1).view(np.uint8))
        while raw:
            piece = raw[:BLOCK - self.filled]
            self.crc = zlib.crc32(piece, self.crc)
            self.filled += len(piece)
            raw = raw[len(piece):]
            if self.filled == BLOCK:
                self._finish()

    def _finish(self):
        self.finished.append(self.crc)
        self.crc = self.filled = 0

    def result(self):
        """(ceil(bytes / BLOCK),) uint32."""
        if self.filled:
            self._finish()
        return np.array(self.finished, np.uint32)


def num_blocks(nbytes):
    """Blocks that so many bytes take."""
    return -(-nbytes // BLOCK)


def first_block_not_ones(nbytes, checksums):
    """Number of the first block of a stream of so many uint8 that are not all 1, by its checksums alone; or None."""
    full, rest = divmod(nbytes, BLOCK)
    expected = np.full(num_blocks(nbytes), zlib.crc32(b"\1" * BLOCK) if full else 0, np.uint32)
    if rest:
        expected[-1] = zlib.crc32(b"\1" * rest)
    wrong = np.flatnonzero(expected != checksums)
    return int(wrong[0]) if wrong.size else None


def first_wrong_block(array, offset, blocks, checksums):
    """Compare the checksums of a range of blocks.

    Parameters
    ----------
    array : C-contiguous ndarray
        Holds the bytes of the dataset from `offset` on, at least up to the end of the last block.
    blocks : range
        Numbers of the blocks to compare.
    checksums : (number of blocks in the dataset,) uint32

    Returns
    -------
    int or None
    """
    raw = memoryview(array.reshape(-1).view(np.uint8))
    for block in blocks:
        start = block * BLOCK - offset
        if zlib.crc32(raw[start:start + BLOCK]) != checksums[block]:
            return block
    return None


def attribute_bytes(attributes, without=UNSUMMED):
    """Yield the sorted attributes of a file as bytes, each behind its path, name, kind and length.

    Parameters
    ----------
    attributes : dict of object path -> dict of name -> bytes or ndarray
    without : container of (object path, name)
    """
    for path in sorted(attributes):
        for name in sorted(attributes[path]):
            if (path, name) in without:
                continue
            value = attributes[path][name]
            kind = "text" if isinstance(value, bytes) else f"{value.dtype.str} {value.shape}"
            raw = value if isinstance(value, bytes) else value.tobytes()
            yield f"{path}\0{name}\0{kind}\0{len(raw)}\0".encode("utf-8", "surrogateescape")
            yield raw


def attributes_crc(attributes):
    """CRC32 over `attribute_bytes`."""
    crc = 0
    for piece in attribute_bytes(attributes):
        crc = zlib.crc32(piece, crc)
    return crc

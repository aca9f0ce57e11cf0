"""Bit masks: (m, ceil(f / 8)) uint8, little-endian within a byte, column 0 first, pad bits 0; bit 1 means keep."""
import numpy as np


def pack(bits):
    """(m, f) bool to (m, ceil(f / 8)) uint8."""
    return np.packbits(bits, axis=1, bitorder="little")


def unpack(mask, width):
    """(m, ceil(f / 8)) uint8 to (m, f) bool."""
    return np.unpackbits(mask, axis=1, count=width, bitorder="little").astype(bool)

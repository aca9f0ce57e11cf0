"""Pack and unpack bit masks of kernels: one bit for each number of a row; 1 means keep.

Column j is bit j % 8 of byte j // 8, the least significant bit first. This is the order
of `numpy.packbits(keep, axis=1, bitorder="little")`; NumPy's default is the opposite
order. A row of f columns has ceil(f / 8) bytes. Bits from column f on are 0.
"""
from collections.abc import Callable

import numpy as np

from hpgcn.kernels import Array

ORDER = 'numpy.packbits(keep, axis=1, bitorder="little"), as hpgcn.kernels.pack_mask does'


def pack_mask(keep: np.ndarray) -> np.ndarray:
    """Pack a bool mask, one value for each number, into the bits that kernels use.

    Parameters
    ----------
    keep : (m, f) bool
        True where a number is kept.

    Returns
    -------
    (m, ceil(f / 8)) uint8
        Column j is bit j % 8 of byte j // 8: little-endian bit order.

    Raises
    ------
    TypeError
        `keep` is not bool.
    ValueError
        `keep` does not have two axes.

    Examples
    --------
    >>> from hpgcn.kernels import pack_mask
    >>> pack_mask([[True, False, False, True]])
    array([[9]], dtype=uint8)
    """
    # validate
    keep = np.asarray(keep)
    if keep.dtype != bool:
        raise TypeError(f"pack_mask: keep has dtype {keep.dtype}, expected bool")
    if keep.ndim != 2:
        raise ValueError(f"pack_mask: keep has shape {keep.shape}, expected (m, f)")
    return np.packbits(keep, axis=1, bitorder="little")


def unpack_mask(mask: np.ndarray, width: int) -> np.ndarray:
    """Unpack a mask of bits into bools: the inverse of `pack_mask`.

    Parameters
    ----------
    mask : (m, ceil(width / 8)) uint8
    width : int
        Columns of the mask.

    Returns
    -------
    (m, width) bool

    Raises
    ------
    TypeError
        `mask` is not uint8.
    ValueError
        `mask` has another shape, or bits beyond the width.

    Examples
    --------
    >>> import numpy as np
    >>> from hpgcn.kernels import unpack_mask
    >>> unpack_mask(np.array([[9]], np.uint8), 4)
    array([[ True, False, False,  True]])
    """
    # validate
    mask = np.asarray(mask)
    if mask.dtype != np.uint8:
        raise TypeError(f"unpack_mask: mask has dtype {mask.dtype}, expected uint8")
    if mask.ndim != 2 or mask.shape[1] != -(-width // 8):
        raise ValueError(f"unpack_mask: mask has shape {mask.shape}, expected (m, {-(-width // 8)})"
                         f" for {width} columns")
    check_width("unpack_mask: mask", mask, width)
    return unpack(mask, width)


def unpack(mask: np.ndarray, width: int) -> np.ndarray:
    """Return `unpack_mask` of a valid mask, without checks."""
    return np.unpackbits(mask, axis=1, count=width, bitorder="little").astype(bool)


def check_width(name: str, mask: np.ndarray, width: int) -> None:
    """Raise ValueError if a mask has bits beyond its width; only last bytes are read."""
    if not width % 8 or not mask.size:
        return
    beyond = mask[:, -1] >> width % 8 != 0
    if bool(beyond.any()):
        raise ValueError(f"{name}[{int(beyond.argmax())}] has bits beyond its {width} columns, "
                         f"expected the bit order of {ORDER}")


def with_mask(spmm: Callable) -> Callable:
    """Return the kernel `sspmm` that calls a version of `spmm`."""
    def sspmm(indptr: Array, indices: Array, data: Array, x: Array, mask: Array,
              out: Array | None = None, *, row_scale: Array | None = None,
              col_scale: Array | None = None, rows: Array | None = None,
              accumulate: bool = False) -> Array:
        """Compute masked SpMM, (A x) .* M (mixgcn, S-SpMM): `spmm` with a required mask.

        Parameters
        ----------
        mask : (m, ceil(f / 8)) uint8
            Bits of the result to keep: column j is bit j % 8 of byte j // 8, the order of
            `numpy.packbits(keep, axis=1, bitorder="little")`. Bits from column f on are 0.

        The others are those of `spmm`.

        Returns
        -------
        out : (m, f)

        Raises
        ------
        ValueError
            `mask` has bits beyond its f columns, or another argument does not fit.

        Examples
        --------
        >>> import numpy as np
        >>> from hpgcn.kernels import cpu, pack_mask
        >>> indptr, indices = np.array([0, 2, 3]), np.array([0, 1, 1], np.int32)
        >>> x = np.array([[1.0, 10.0, 100.0], [2.0, 20.0, 200.0]])
        >>> mask = pack_mask([[True, False, True], [False, True, True]])
        >>> cpu.sspmm(indptr, indices, None, x, mask)
        array([[  3.,   0., 300.],
               [  0.,  20., 200.]])
        """
        return spmm(indptr, indices, data, x, out, row_scale=row_scale, col_scale=col_scale,
                    rows=rows, mask=mask, accumulate=accumulate)

    if hasattr(spmm, "validate_inline"):
        sspmm.validate_inline = spmm.validate_inline
    return sspmm

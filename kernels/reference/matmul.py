"""Products of dense matrices."""
import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16, numbers, store, to_bf16
from hpgcn.kernels.reference.elementwise import apply_mask


def matmul(x: Array, y: Array, out: Array | None = None, *, mask: Array | None = None) -> Array:
    """Multiply dense matrices: out (m, n) = x (m, k) y (k, n); either may be a transpose.

    Any of the three may have 16 bits. Sums are taken in float32, which is the dtype of
    `out` if it is not given. If x has 16 bits, y is rounded to 16 bits as well. A
    `mask`, (m, ceil(n / 8)) uint8, says which numbers of the result are kept; all
    others are 0. Its bit order is little-endian: `hpgcn.kernels.pack_mask` makes it.

    Examples
    --------
    >>> from hpgcn.kernels import reference
    >>> x = np.array([[1.0, 10.0], [2.0, 20.0]])
    >>> reference.matmul(x, x.T)
    array([[101., 202.],
           [202., 404.]])
    """
    if BF16 not in (x.dtype, y.dtype, None if out is None else out.dtype):
        out = np.matmul(x, y, out=out)
    else:
        if x.dtype == BF16 and y.dtype != BF16:
            y = to_bf16(y)
        product = np.matmul(numbers(x), numbers(y))
        out = product if out is None else store(product, out)
    return out if mask is None else apply_mask(out, mask)

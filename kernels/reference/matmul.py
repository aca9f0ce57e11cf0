"""Dense products."""
import numpy as np


def matmul(x, y, out=None):
    """Dense product: out (m, n) = x (m, k) y (k, n), of which either may be a transpose."""
    return np.matmul(x, y, out=out)

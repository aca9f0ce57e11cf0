"""Dense products."""
import numpy as np


def matmul(x, y, out=None):
    """Dense product: out = x y, of which either may be a transpose: (m, k) by (k, n) to (m, n), made if absent."""
    return np.matmul(x, y, out=out)

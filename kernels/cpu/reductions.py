"""Sum of a row in an order that its length alone fixes."""
from hpgcn.kernels.jit import jit


@jit(inline="always")
def row_total(values):
    """Sum of a float64 array, in four sums: one would wait for each addition."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for q in range(0, values.size - 3, 4):
        a += values[q]
        b += values[q + 1]
        c += values[q + 2]
        d += values[q + 3]
    for q in range(values.size // 4 * 4, values.size):
        a += values[q]
    return (a + b) + (c + d)

"""Forecast the seconds of kernels on one rank by size.

They are interpolated in the output of `hpgcn bench machine`. Times were measured at few
widths and few sizes of arrays, so that sizes of caches are not needed. A nonzero of a
sparse product takes the same time as a nonzero of a random matrix with the same reuse
distance. That is the number of bytes of x read since the same row was last read.
hpgcn.planning.counts.locality estimates it for a graph.
"""
from dataclasses import dataclass

import numpy as np

from hpgcn.errors import DataError
from hpgcn.store import Field

ROW_WIDTHS = (8, 64)  # columns, float32
ROW_BYTES = (1 << 20, 1 << 24, 1 << 28)  # bytes of the arrays of a kernel
ARRAYS = 3  # arrays that a kernel reads and writes, about
PRODUCT_WIDTHS = (1, 8, 32, 64, 256)
PRODUCT_BYTES = tuple(1 << size for size in (18, 21, 24, 27, 30))  # bytes of x
DENSE_SIZES = (8, 16, 32, 64, 128, 256, 512)  # columns of either matrix
# fields of a Rates: a type of number, a tuple with one type an element, or objects with
# these keys
SHAPES = {
    "ranks": int, "call_s": float,
    "rows": {None: ((float, len(ROW_WIDTHS)), len(ROW_BYTES))},
    "entries": {None: ((float, len(ROW_WIDTHS)), 2)},
    "products": ((float, len(PRODUCT_WIDTHS)), len(PRODUCT_BYTES)),
    "product_rows": ((float, len(PRODUCT_WIDTHS)), len(ROW_BYTES)),
    "dense": dict.fromkeys(("rows", "sums"), ((float, len(DENSE_SIZES)), len(DENSE_SIZES)))}
NEEDED = {"rows": ("pack", "pack pieces", "take", "adam", "numpy"),
          "entries": ("attend", "attend dropout", "attend_backward", "dropout_csr")}


@dataclass(frozen=True)
class Rates:
    """Measured seconds of kernels on one rank while `ranks` ranks compute side by side.

    `rows` has seconds of a row by kernel, for each of ROW_BYTES and then of ROW_WIDTHS.
    Other names are "numpy", a sum of two arrays by NumPy, and "take", a gather of
    numbers. "pack" is a gather of rows in order, "pack pieces" a gather of the halves
    of their columns. `entries` has seconds of kernels that take a nonzero at a time, of
    a nonzero and of a row. They are for each of ROW_WIDTHS, with all data in caches.
    `products` has seconds of a nonzero for each of PRODUCT_BYTES and of PRODUCT_WIDTHS.
    `product_rows` has the additional seconds of a row, for each of ROW_BYTES and of
    PRODUCT_WIDTHS. `dense` has seconds of a multiplication by kind ("rows": of many
    rows with a small matrix, "sums": of x^T g), for each pair of DENSE_SIZES.
    """

    ranks: int
    call_s: float
    rows: dict
    entries: dict
    products: list
    product_rows: list
    dense: dict

    @staticmethod
    def of(held, where):
        """Check the output of hpgcn.bench.rates.measure and return Rates.

        A DataError begins with `where`.
        """
        if not isinstance(held, dict):
            raise DataError(f"{where} is {type(held).__name__}, expected an object")
        found = {}
        for name, shape in SHAPES.items():
            if name not in held:
                raise DataError(f"{where}.{name} is missing, expected what `hpgcn bench machine "
                                "--json` prints")
            found[name] = _checked(held[name], shape, f"{where}.{name}")
        return Rates(**found)

    def row_seconds(self, kernel, width, size):
        """Return the seconds of a kernel for one row of `width` columns.

        Return None if the kernel was not measured. `size` is the number of bytes that
        pass through caches between two calls.
        """
        known = self.rows.get(kernel)
        if known is None:
            return None
        return logarithmic(ROW_BYTES, [line(ROW_WIDTHS, values, width) for values in known], size)

    def product_seconds(self, nonzeros, rows, width, distances):
        """Return the seconds of a product A x.

        `distances`, as in `Locality`, show in which cache rows of x lie.
        """
        row = [line(PRODUCT_WIDTHS, values, width) for values in self.product_rows]
        return (nonzeros * np.dot(*self._reads(width, distances))
                + rows * logarithmic(ROW_BYTES, row, rows * 4 * width))

    def entry_seconds(self, kernel, nonzeros, rows, width, distances=None):
        """Return the seconds of a kernel in `entries`.

        `distances` are as in `product_seconds`. Reads of x from beyond the caches add
        the same time as in a product; `distances` is None if x is not read.
        """
        nonzero, row = (line(ROW_WIDTHS, values, width) for values in self.entries[kernel])
        if distances is not None:
            shares, reads = self._reads(width, distances)
            nonzero += np.dot(shares, np.maximum(reads - self._reads(width, (1, 0))[1], 0))
        return nonzeros * nonzero + rows * row

    def _reads(self, width, distances):
        """Divide the nonzeros of a product by reuse distance.

        Return the share of each group, and the seconds of one nonzero in it.
        """
        shares, sizes = distances
        costs = [line(PRODUCT_WIDTHS, values, width) for values in self.products]
        return shares, logarithmic(PRODUCT_BYTES, costs, sizes)

    def dense_seconds(self, m, k, n):
        """Return the seconds of a dense product of matrices (m, k) and (k, n)."""
        kind, long, small = ("rows", m, k) if m >= k else ("sums", k, m)
        small, other = (max(size, DENSE_SIZES[0]) for size in (small, n))
        return long * small * other * surface(self.dense[kind], small, other)


def _checked(value, shape, where):
    """Return a JSON value if it has the nested form `shape`, as in SHAPES.

    Otherwise raise a DataError.
    """
    if isinstance(shape, tuple):
        one, count = shape
        if not isinstance(value, list) or len(value) != count:
            raise DataError(f"{where}: expected a list of {count}")
        return [_checked(each, one, f"{where}[{i}]") for i, each in enumerate(value)]

    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise DataError(f"{where}: expected an object")
        names = list(value) if None in shape else list(shape)
        for name in NEEDED[where.rpartition(".")[2]] if None in shape else shape:
            if name not in value:
                raise DataError(f"{where}.{name} is missing")
        return {name: _checked(value[name], shape.get(name, shape.get(None)), f"{where}.{name}")
                for name in names}

    kind = Field(int, 1, 1 << 60) if shape is int else Field(float, 0, 1e30)
    if not kind.takes(value):
        raise DataError(f"{where} is {value!r:.40}, expected {kind}")
    return value


def line(widths, values, width):
    """Interpolate linearly at `width`.

    The result is constant below the first width, and extrapolated above the last.
    """
    if width <= widths[-1]:
        return float(np.interp(width, widths, values))
    slope = max(values[-1] - values[-2], 0) / (widths[-1] - widths[-2])
    return values[-1] + slope * (width - widths[-1])


def logarithmic(sizes, values, size):
    """Interpolate linearly in log(size); constant outside of the range of `sizes`."""
    return np.interp(np.log(np.maximum(size, 1)), np.log(sizes), values)


def surface(values, first, second):
    """Interpolate a table over pairs of DENSE_SIZES, linear in both logarithms.

    The result is constant outside of the table.
    """
    along = [logarithmic(DENSE_SIZES, row, second) for row in values]
    return float(logarithmic(DENSE_SIZES, along, first))

"""A device whose arrays have no contents: a training step on it shows memory, work and messages.

Its arrays have a shape and a dtype, but no contents. Its kernels return arrays of this
kind, and record the reads and multiplications of real kernels.
"""
import math
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np

from hpgcn.kernels.reference import dropout_scale
from hpgcn.parallel.csr import Csr
from hpgcn.planning.counts.touches import Touches

SIZELESS = ("dropout_scale", "dropout_bits")  # `activate` draws the mask if it is not given
DROPPING = ("activate", "activate_smooth")  # these may also draw dropout, which takes longer
WRITTEN = ("slopes", "grad")  # arguments that kernels write, besides what they return


class ShapeArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array with a shape and a dtype but no contents, with the operations that layers use."""

    __slots__ = ("base", "device", "dtype", "shape")
    flags = SimpleNamespace(c_contiguous=True)

    def __init__(self, device, shape, dtype, base=None):
        self.device = device
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.base = base or self  # the array of which this is a view

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def nbytes(self):
        return self.size * self.dtype.itemsize

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def kernels(self):
        """Kernels for these arrays; hpgcn.kernels.backend returns them."""
        return self.device.kernels

    @property
    def data(self):
        """Unique number of this array, like the address of an array on a GPU."""
        return SimpleNamespace(ptr=id(self))

    @property
    def T(self):
        return self._view(self.shape[::-1])

    def _like(self, shape, dtype=None):
        return ShapeArray(self.device, shape, dtype or self.dtype)

    def _view(self, shape, dtype=None):
        return ShapeArray(self.device, shape, dtype or self.dtype, self.base)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, key):
        key = key if isinstance(key, tuple) else (key,)
        shape = []
        make = self._view
        for axis, index in enumerate(key):
            if isinstance(index, slice):
                shape.append(len(range(*index.indices(self.shape[axis]))))
            elif index is Ellipsis:
                return self
            elif hasattr(index, "shape"):
                shape += index.shape
                make = self._like
                if self.ndim == 1:
                    self.device.kernels.work.kernels["take", 1, index.size] += 1
            elif index >= self.shape[axis]:
                raise IndexError(index)

        return make((*shape, *self.shape[len(key):]))

    def __setitem__(self, key, value):
        """Count an assignment of a matrix as a copy; contents do not matter."""
        self.device.kernels.work.touches.call((value,), self)
        if getattr(value, "ndim", 0) == 2:
            self.device.kernels.work.kernels["numpy", *value.shape] += 1

    def reshape(self, *shape):
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        if -1 in shape:
            known = math.prod(size for size in shape if size >= 0)
            shape = tuple(self.size // max(known, 1) if size < 0 else size for size in shape)
        return self._view(shape)

    def ravel(self):
        return self._view((self.size,))

    def view(self, dtype):
        return self._view((self.nbytes // np.dtype(dtype).itemsize,), dtype)

    def astype(self, dtype, copy=True):
        return self._like(self.shape, dtype)

    def copy(self):
        return self._like(self.shape)

    def sum(self):
        return self._like(())

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **others):
        made = self._like(np.broadcast_shapes(*(np.shape(each) for each in inputs)))
        if made.ndim == 2:
            self.device.kernels.work.kernels["numpy", *made.shape] += 1
        made = made if out is None else out[0]
        self.device.kernels.work.touches.call(inputs, made)
        return made

    def __array_function__(self, function, types, args, others):
        if function is np.concatenate:
            return self._like((sum(each.shape[0] for each in args[0]), *args[0][0].shape[1:]))
        if function in (np.zeros_like, np.empty_like, np.ones_like):
            return self._like(others.get("shape") or self.shape)
        if function is np.shape:
            return self.shape
        if function is np.copyto:
            return None
        return NotImplemented


@dataclass
class Work:
    """The amount of work of kernels: bytes moved, flops and calls."""

    moved: int = 0  # bytes read and written by all but dense products
    dense: list = field(default_factory=list)  # (flops, bytes) of each dense product
    calls: int = 0  # number of kernel calls
    # Number of calls, by (name, rows, columns) of the first matrix. A dense product has
    # (name, rows, length of the sums, columns), a sparse one (name, rows, nonzeros,
    # rows and columns of the multiplied matrix).
    kernels: Counter = field(default_factory=Counter)
    marks: list = field(default_factory=list)  # (len(dense), moved) before each product with A
    touches: Touches = field(default_factory=Touches)  # arrays that are read and written


class ShapeKernels:
    """Substitutes for reference kernels that return shapes and record work.

    Names are those of hpgcn.kernels.reference.
    """

    dropout_scale = staticmethod(dropout_scale)

    def __init__(self):
        self.work = Work()

    def _log(self, *arrays):
        self.work.calls += 1
        self.work.moved += sum(each.nbytes for each in arrays if each is not None)

    def _in_place(self, x, *others, **named):
        """Record a kernel that changes its first argument in place and returns it."""
        self._log(x, x)
        return x

    activate = apply_mask = _in_place

    def convert(self, x, out):
        self._log(x, out)
        return out

    def add(self, x, out):
        self._log(x, out, out)
        return out

    def activate_smooth(self, z, bias, *others, slopes=None, **named):
        self._log(z, z, slopes)
        return z

    def elu_backward(self, g, out, *others, **named):
        self._log(g, g, out)
        return g

    def _to_out(self, x, *others, out=None, **named):
        """Record a kernel that writes an array with the shape of its first argument to `out`."""
        if out is None:
            alike = [each for each in others
                     if isinstance(each, ShapeArray) and each.shape == x.shape]
            out = alike[-1] if alike else x.copy()
        self._log(x, out)
        return out

    dropout = layer_norm = layer_norm_backward = batch_norm = batch_norm_backward = _to_out

    def dropout_bits(self, vertex, width, **named):
        out = ShapeArray(vertex.device, (vertex.size, -(-width // 8)), np.uint8)
        self._log(out)
        return out

    def dropout_csr(self, indptr, indices, data, vertex, **named):
        self._log(indices, data, data)
        return data.copy()

    def gather(self, x, index, out=None):
        out = x._like((index.size, x.shape[1])) if out is None else out
        self._log(out, out)
        return out

    def scatter_add(self, x, index, out):
        self._log(x, x, x)
        return out

    def matmul(self, x, y, out=None, *, mask=None):
        (m, k), n = x.shape, y.shape[1]
        out = x._like((m, n)) if out is None else out
        self.work.calls += 1
        self.work.dense.append((2 * m * k * n, x.nbytes + y.nbytes + out.nbytes))
        return out

    def spmm(self, indptr, indices, data, x, out=None, **named):
        # a row of x for each entry, as if none were found in a cache again
        out = x._like((indptr.size - 1, x.shape[1])) if out is None else out
        self._log(indices, data, out)
        self.work.moved += indices.size * x.shape[1] * x.dtype.itemsize
        return out

    def attend_dots(self, grad, out, above, share, row_score, lse, pulled, drow_score, **named):
        self._log(grad, out, above, pulled)
        return pulled, drow_score

    def column_sum(self, x, *others):
        self._log(x)
        return x._like((x.shape[1],), np.float64)

    column_squares = column_sum

    def inner(self, x, y):
        self._log(x, y)
        return x._like((), np.float64)

    def _by_row(self, x, *others):
        """Record a kernel that returns one float64 per row of its first argument."""
        self._log(x)
        return x._like((x.shape[0],), np.float64)

    row_sum = row_squares = spread_sum = _by_row

    def spread_max(self, x):
        self._log(x)
        return x._like((x.shape[0],))

    def layer_norm_backward_sums(self, g, xhat, gain):
        self._log(g, xhat)
        return tuple(g._like(shape, np.float64)
                     for shape in ((g.shape[0], 2), (g.shape[1],), (g.shape[1],)))

    def spread_gradient(self, logits, *others, grad=None, **named):
        self._log(logits, grad)
        return 0.0

    def softmax_cross_entropy(self, *given, **named):
        return self.spread_gradient(*given, **named), 0

    def sigmoid_cross_entropy(self, *given, **named):
        return self.spread_gradient(*given, **named), 0, 0, 0


class Counted:
    """A wrapper of kernels that counts their calls in `work.kernels`, by name and size."""

    def __init__(self, kernels):
        self._kernels = kernels

    @property
    def work(self):
        return self._kernels.work

    @work.setter
    def work(self, work):
        self._kernels.work = work

    def __getattr__(self, name):
        kernel = getattr(self._kernels, name)

        def count(*arguments, **named):
            kind = f" {named['kind']}" if "kind" in named else ""
            drops = " dropout" if named.get("p") and name in DROPPING else ""
            self.work.kernels[name + kind + drops, *_size(name, *arguments)] += 1
            made = kernel(*arguments, **named)
            self.work.touches.call((*arguments, *named.values()), made,
                                   *(named.get(name) for name in WRITTEN))
            return made

        return count if callable(kernel) and name not in SIZELESS else kernel


def _size(name, first, *others):
    """Return the sizes that determine the time of a kernel call, as listed in `Work.kernels`."""
    if name == "matmul":
        return (*first.shape, others[0].shape[1])
    if name == "spmm":
        return first.size - 1, others[0].size, *others[2].shape
    if name == "dropout_csr":
        return 1, others[0].size
    return first.shape if first.ndim == 2 else (1, first.size)


class Shapes:
    """The device of arrays without contents; see hpgcn.runtime.device.Host."""

    name = "shapes"
    in_tiles = False
    exhausted = ()

    def __init__(self):
        self.kernels = Counted(ShapeKernels())
        self.part_bytes = 0  # bytes of sparse features that layers have cut out and keep
        self.xp = SimpleNamespace(zeros=self.empty, ascontiguousarray=lambda array: array)

    def empty(self, shape, dtype):
        return ShapeArray(self, shape if isinstance(shape, tuple) else (int(shape),), dtype)

    def discard(self, *arrays):
        """Record that the contents of arrays are dropped."""
        self.kernels.work.touches.discard(*arrays)

    def put(self, array):
        """Return a ShapeArray with the shape and dtype of a host array."""
        if array is None or isinstance(array, ShapeArray):
            return array
        return ShapeArray(self, array.shape, array.dtype)

    def get(self, array):
        return array

    def numbers(self, values):
        return [0.0] * len(values)

    def synchronize(self):
        """Do nothing: no work is queued."""


class ShapeCsr(Csr):
    """A sparse matrix without contents. `some` is its number of entries after rows are selected."""

    def __init__(self, device, rows, columns, entries, dtype, some=0):
        super().__init__(device.empty(rows + 1, np.int64), device.empty(entries, np.int32),
                         device.empty(entries, dtype), columns, device,
                         device.empty(entries, np.int64))
        self.some = some
        self.is_part = False  # whether it was selected from another matrix

    def take_rows(self, numbers):
        # The part is kept, with the places of its entries.
        part = ShapeCsr(self.device, numbers.size, self.shape[1], self.some, self.data.dtype)
        part.is_part = True
        self.device.part_bytes += part.nbytes + part.edges.nbytes
        return part

    def ordered_transpose(self):
        # Keep the transpose of a part as well.
        if "transpose" not in self._known:
            flipped = ShapeCsr(self.device, *self.shape[::-1], self.indices.size, self.data.dtype)
            if self.is_part:
                kept = flipped.nbytes - flipped.data.nbytes + flipped.edges.nbytes
                self.device.part_bytes += kept
            self._known["transpose"] = flipped
        return self._known["transpose"]

    def with_data(self, data):
        return self

"""A device of arrays without contents, on which a training step can run.

The step shows memory, work and messages. Arrays have a shape and a dtype. Kernels
return arrays of this kind, and record the reads and multiplications of real kernels.
"""
import copy
import functools
import inspect
import math
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace

import numpy as np

from hpgcn.kernels import reference
from hpgcn.kernels.host.record import ALL
from hpgcn.kernels.reference import dropout_scale
from hpgcn.kernels.specs import (
    LENGTHS,
    SPECS,
    length_of,
    parse,
    parse_results,
    result_dtype,
)
from hpgcn.parallel.csr import Csr
from hpgcn.planning.counts.touches import Touches

SIZELESS = ("dropout_scale", "dropout_bits")  # `activate` draws the mask if it is not given
DROPPING = ("activate", "activate_smooth")  # these may also draw dropout, which takes longer
OF_PRODUCTS = ("attend", "attend_backward")  # whose work is that of products with A
WRITTEN = ("slopes", "grad")  # arguments that kernels write, besides what they return
# Arguments that kernels overwrite without reading them. Others that they write they also read.
OVERWRITTEN = {
    "activate_smooth": ("slopes",), "attend": ("out", "lse", "above", "share"),
    "attend_backward": ("dx", "dcol_score"), "attend_dots": ("pulled", "drow_score"),
    "batch_norm": ("out", "xhat"), "batch_norm_backward": ("out",), "convert": ("out",),
    "dropout": ("out",), "gather": ("out",), "layer_norm": ("out", "xhat"),
    "layer_norm_backward": ("out",), "matmul": ("out",), "sigmoid_cross_entropy": ("grad",),
    "softmax_cross_entropy": ("grad",), "spread_gradient": ("grad",)}


class ShapeArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array with a shape and a dtype but no contents, with the operations that layers use."""

    __slots__ = ("base", "device", "dtype", "from_begin", "shape", "stop")
    flags = SimpleNamespace(c_contiguous=True)

    def __init__(self, device, shape, dtype, base=None, *, from_begin=True, stop=None):
        self.device = device
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.base = self if base is None else base  # the array of which this is a view
        self.from_begin = from_begin  # whether it is the first bytes of that array
        self.stop = stop  # first byte of that array that it does not reach; None: its end

    @property
    def size(self):
        return math.prod(self.shape)

    @property
    def nbytes(self):
        return self.size * self.dtype.itemsize

    @property
    def end(self):
        """First byte of its base that it does not reach."""
        if self.from_begin:
            return self.nbytes
        return self.base.nbytes if self.stop is None else self.stop

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

    def _view(self, shape, dtype=None, *, from_begin=True, stop=None):
        stop = stop or (self.nbytes if self.from_begin else self.stop)
        return ShapeArray(self.device, shape, dtype or self.dtype, self.base,
                          from_begin=self.from_begin and from_begin, stop=stop)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, key):
        key = key if isinstance(key, tuple) else (key,)
        shape = []
        make = partial(self._view, from_begin=True)
        for axis, index in enumerate(key):
            if isinstance(index, slice):
                taken = range(*index.indices(self.shape[axis]))
                if taken != range(self.shape[axis] if axis else len(taken)):
                    stop = None
                    if axis == 0 and self.from_begin:
                        stop = taken.stop * (self.nbytes // self.shape[0])
                    make = partial(self._view, from_begin=False, stop=stop)
                shape.append(len(taken))
            elif index is Ellipsis:
                return self
            elif hasattr(index, "shape"):
                shape += index.shape
                make = self._like
                self._read()
                if isinstance(index, ShapeArray):
                    index._read()
                if self.ndim == 1:
                    self.device.kernels.work.kernels["take", 1, index.size] += 1
            elif index >= self.shape[axis]:
                raise IndexError(index)
            else:
                make = partial(self._view, from_begin=False)

        return make((*shape, *self.shape[len(key):]))

    def __setitem__(self, key, value):
        """Count an assignment of a matrix as a copy; contents do not matter."""
        touches = self.device.kernels.work.touches
        if key is ALL:
            touches.call((value,), self)
        else:
            touches.write_part(self, (value,))
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

    def _read(self):
        self.device.kernels.work.touches.call((self,))

    def astype(self, dtype, copy=True):
        self._read()
        return self._like(self.shape, dtype)

    def copy(self):
        self._read()
        return self._like(self.shape)

    def sum(self):
        self._read()
        return self._like(())

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **others):
        made = self._like(np.broadcast_shapes(*(np.shape(each) for each in inputs)))
        if made.ndim == 2:
            self.device.kernels.work.kernels["numpy", *made.shape] += 1
        made = made if out is None else out[0]
        self.device.kernels.work.touches.call(inputs, made)
        return made

    def __array_function__(self, function, types, args, others):
        touches = self.device.kernels.work.touches
        if function is np.concatenate:
            touches.call(args[0])
            return self._like((sum(each.shape[0] for each in args[0]), *args[0][0].shape[1:]))
        if function in (np.zeros_like, np.empty_like, np.ones_like):
            return self._like(others.get("shape") or self.shape)
        if function is np.shape:
            return self.shape
        if function is np.copyto:
            touches.write_part(args[0], (args[1], others.get("where")))
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


MOVED = {  # arrays that a kernel reads or writes; an array that it does both to stands twice
    "activate": "z z", "activate_smooth": "z z slopes", "add": "x out out", "apply_mask": "x x",
    "attend": "", "attend_backward": "", "attend_dots": "grad out above pulled",
    "batch_norm": "x out", "batch_norm_backward": "g out", "column_squares": "x",
    "column_sum": "x", "convert": "x out", "dropout": "x out",
    "dropout_bits": "keep", "dropout_csr": "indices data data", "elu_backward": "g g out",
    "gather": "out out", "inner": "x y", "layer_norm": "x out", "layer_norm_backward": "g out",
    "layer_norm_backward_sums": "g xhat", "matmul": "x y out", "row_squares": "x", "row_sum": "x",
    "scatter_add": "x x x", "sigmoid_cross_entropy": "logits grad",
    "softmax_cross_entropy": "logits grad", "spmm": "indices data out",
    "spread_gradient": "logits grad", "spread_max": "logits", "spread_sum": "logits"}
NUMBERS = {"number": 0.0, "count": 0}  # results that are no arrays, by their kind


class ShapeKernels:
    """Substitutes for kernels, which return shapes and record work.

    Names and arguments are those of hpgcn.kernels.reference, shapes those of its specs.
    """

    dropout_scale = staticmethod(dropout_scale)

    def __init__(self):
        self.work = Work()

    def __getattr__(self, name):
        if name not in MOVED:
            raise AttributeError(name)
        return partial(self._call, name)

    def _call(self, name, *arguments, **named):
        signature, spec, results = _described(name)
        given = signature.bind(*arguments, **named).arguments
        operands = [*given.values()]
        overwritten = _overwritten(name, given)
        read = [each for argument, each in given.items() if argument not in overwritten]

        # the results, of which some may be arguments
        lengths = _lengths(spec, given)
        first = next(given[each.name] for each in spec if each.name in given)
        new = []
        for result in results:
            if result.kind in NUMBERS:
                given[result.name] = NUMBERS[result.kind]
            elif given.get(result.name) is None:
                shape = tuple(length_of(word, lengths) for word in result.shape)
                given[result.name] = first._like(shape, result_dtype(result, first.dtype))
                new.append(result.name)
        made = tuple(given[result.name] for result in results)

        # the work
        self.work.calls += name not in OF_PRODUCTS
        moved = sum(given[each].nbytes for each in MOVED[name].split()
                    if given.get(each) is not None)
        if name == "matmul":
            flops = 2 * lengths["m"] * lengths["k"] * lengths["n"]
            self.work.dense.append((flops, moved))
        else:
            self.work.moved += moved
        if name == "spmm":  # a row of x for each entry, as if none were found in a cache again
            self.work.moved += lengths["k"] * lengths["f"] * given["x"].dtype.itemsize
        if name not in SIZELESS:
            kind = f" {named['kind']}" if "kind" in named else ""
            drops = " dropout" if named.get("p") and name in DROPPING else ""
            if name not in OF_PRODUCTS:
                self.work.kernels[name + kind + drops, *_size(name, *operands)] += 1
            touches = self.work.touches
            touches.call(read, *(given.get(each) for each in (*overwritten, *new)))
            written = (*made, *(given.get(each) for each in WRITTEN))
            touches.call(written, *written)  # what it also reads, unless it has overwritten it
        return made[0] if len(made) == 1 else made


@functools.cache
def _described(name):
    """Return the signature of a kernel, its arguments and its results."""
    kernel = getattr(reference.trusted, name)
    return inspect.signature(kernel), parse(SPECS[name]), parse_results(SPECS[name])


def _overwritten(name, given):
    """Return the names of the arguments that a call of a kernel overwrites without reading them."""
    if name == "activate" and not given.get("drawn"):
        return ("mask",)
    if name == "spmm" and given.get("rows") is None and not given.get("accumulate"):
        return ("out",)
    return OVERWRITTEN.get(name, ())


def _lengths(spec, given):
    """Return the lengths of the letters in a kernel's spec, from the shapes of its arguments."""
    lengths = {letter: given[argument] for argument, letter in LENGTHS.items()
               if argument in given}
    for argument in spec:
        shape = getattr(given.get(argument.name), "shape", ())
        for word, length in zip(argument.shape, shape):
            lengths.setdefault(word[0], length - (word[1:] == "+1"))
    return lengths


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
        self.kernels = ShapeKernels()
        self.part_bytes = 0  # bytes of sparse features that layers have cut out and keep
        self.xp = SimpleNamespace(zeros=self.empty, empty=self.empty,
                                  ascontiguousarray=lambda array: array)

    def empty(self, shape, dtype):
        return ShapeArray(self, shape if isinstance(shape, tuple) else (int(shape),), dtype)

    def discard(self, *arrays):
        """Record that arrays are overwritten before they are read again."""
        self.kernels.work.touches.call((), *arrays)

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
        other = copy.copy(self)
        other.data = data
        return other

"""A row of a product as vector code that Numba does not write by itself, emitted through LLVM.

The accumulators of a row stay in registers over all its nonzeros, and the row is written
once (DistGNN, Algorithm 3); the rows of x that come `distance` nonzeros later are
prefetched. How many vectors, how many sets of accumulators and how many lanes is the
length, hence the type, of a tuple, so that each combination is compiled once and cached.
"""
import functools
import itertools

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
BYTES = I8.as_pointer()
MAX_VECTORS = 16  # of 32 registers with AVX-512
AVX512 = {"skylake-avx512", "icelake-server", "sapphirerapids", "znver4", "znver5"}
AVX2 = {"haswell", "skylake", "znver1", "znver2", "znver3"}


@functools.cache
def vector_bytes():
    """Bytes of a vector register Numba compiles for: 64 with AVX-512, 32 with AVX2, else 16."""
    name = config.CPU_NAME
    if name is None or name == "host":
        features = {feature for feature, has in binding.get_host_cpu_features().items() if has}
    else:
        features = set((config.CPU_FEATURES or "").replace("+", "").split(","))
    if name in AVX512 or "avx512f" in features:
        return 64
    return 32 if name in AVX2 or "avx2" in features else 16


def shape_of(width, itemsize, *, cached, aligned, power):
    """Return the shape of the code for a row of `width` numbers, as tuples of these lengths.

    Vectors, accumulator sets (a second one hides the latency of fma), lanes, cache lines; and 2
    if `power`, which says that ldx is the logarithm of the row length (a shift is quicker than a
    product), else 1. Rows of at most 256 bytes that come from memory are read in 32-byte vectors:
    arrays rarely begin at a multiple of 64, and then every 64-byte load takes two cache lines.
    """
    size = vector_bytes()
    registers = 32 if size == 64 else 16
    row_bytes = width * itemsize
    if size == 64 and (row_bytes <= 32 or (not cached and row_bytes <= 256)):
        size = 32
    lanes = size // itemsize
    vectors = -(-width // lanes)
    sets = 2 if 4 * vectors <= registers else 1
    lines = -(-vectors * size // 64) + (not aligned)
    return tuple((0,) * length for length in (vectors, sets, lanes, lines, 1 + power))


def max_width(itemsize):
    """Return the widest row that one pass can hold in registers, a multiple of 8."""
    vectors = MAX_VECTORS if vector_bytes() == 64 else MAX_VECTORS // 2
    return vectors * vector_bytes() // itemsize


def distance(row_bytes, cached):
    """Nonzeros ahead to prefetch: 32 from the last-level cache, about 16 KB of x from memory."""
    return 32 if cached else max(16, min(128, 16384 // row_bytes))


def splat(builder, value, lanes):
    """Return a vector of one value in all lanes."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, value, I32(0))
    places = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    return builder.shuffle_vector(first, undefined, places)


class Emitter:
    def __init__(self, builder, real, itemsize, vectors, lanes):
        self.builder = builder
        self.real = real
        self.itemsize = itemsize
        self.vectors = vectors
        self.lanes = lanes
        self.vector = ir.VectorType(real, lanes)
        self.zero = ir.Constant(self.vector, [0.0] * lanes)

    def call(self, name, returns, *args):
        """Call an LLVM intrinsic; * in its name stands for the type of vectors."""
        name = name.replace("*", f"v{self.lanes}f{8 * self.itemsize}")
        kind = ir.FunctionType(returns, [arg.type for arg in args])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, args)

    def tail(self, width):
        """Return which lanes of the last vector exist, as bits."""
        first = (self.vectors - 1) * self.lanes
        kind = ir.VectorType(I64, self.lanes)
        numbers = ir.Constant(kind, list(range(first, first + self.lanes)))
        return self.builder.icmp_signed("<", numbers, splat(self.builder, width, self.lanes))

    def place(self, row, v):
        at = self.builder.gep(row, [I64(v * self.lanes)])
        return self.builder.bitcast(at, self.vector.as_pointer())

    def load(self, row, v, tail):
        """Return vector v of a row; of the last one the lanes that exist."""
        at = self.place(row, v)
        if v + 1 < self.vectors:
            return self.builder.load(at, align=self.itemsize)
        return self.call("llvm.masked.load.*.p0", self.vector, at, I32(self.itemsize), tail,
                         self.zero)

    def store(self, value, row, v, tail):
        """Write vector v of a row; of the last one the lanes that exist."""
        at = self.place(row, v)
        if v + 1 < self.vectors:
            self.builder.store(value, at, align=self.itemsize)
        else:
            self.call("llvm.masked.store.*.p0", ir.VoidType(), value, at, I32(self.itemsize), tail)

    def prefetch(self, row, lines):
        """Ask for the cache lines of a row, one more than its bytes fill where it may spill."""
        start = self.builder.bitcast(row, BYTES)
        size = self.vectors * self.lanes * self.itemsize
        for line in range(lines):
            at = self.builder.gep(start, [I64(min(64 * line, size - self.itemsize))])
            self.call("llvm.prefetch.p0", ir.VoidType(), at, I32(0), I32(3), I32(1))

    def keep(self, mask, v, num_bytes):
        """Return the bits of vector v, an integer, out of a row of mask bytes and none past it."""
        builder = self.builder
        first = v * self.lanes // 8
        count = max(1, self.lanes // 8)
        word = ir.IntType(8 * count)
        if v + 1 < self.vectors or count == 1:
            at = builder.gep(mask, [I64(first)])
            bits = builder.load(builder.bitcast(at, word.as_pointer()), align=1)
        else:  # some bytes of the last vector may be missing
            bits = word(0)
            for i in range(count):
                at = I64(first + i)
                exists = builder.icmp_signed("<", at, num_bytes)
                at = builder.select(exists, at, I64(0))  # any byte will do
                byte = builder.zext(builder.load(builder.gep(mask, [at])), word)
                bits = builder.or_(bits, builder.shl(byte, word(8 * i)))
        if self.lanes < 8:
            shifted = builder.lshr(bits, word(v * self.lanes % 8))
            bits = builder.trunc(shifted, ir.IntType(self.lanes))
        return bits


@intrinsic
def row_product(typingctx, indices, data, col_scale, start, stop, ahead, last, x, ldx, out, width,
                scale, accumulate, mask, num_bytes, vectors, sets, lanes, lines, power):
    """Multiply a row: out = keep * (scale * sum of data[k] col_scale[j] x[j] + accumulate * out).

    The sum is over k in start..stop, j = indices[k], in the first `width` columns;
    data and col_scale may be None. x, out and mask are addresses (mask 0: keep all),
    ldx the row length of x in numbers (or its logarithm, see `shape_of`). Rows of x
    are prefetched `ahead` nonzeros before use; `last` is the last entry of indices.
    """
    signature = types.void(
        indices, data, col_scale, start, stop, ahead, last, x, ldx, out, width, scale, accumulate,
        mask, num_bytes, vectors, sets, lanes, lines, power)
    count_sets, count_lines = sets.count, lines.count
    shifted = power.count == 2

    def codegen(context, builder, signature, args):
        real = context.get_value_type(scale)
        emit = Emitter(builder, real, scale.bitwidth // 8, vectors.count, lanes.count)
        columns, values, scales = (
            None if isinstance(kind, types.NoneType)
            else context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[:3], args))
        start, stop, ahead, last, x, ldx, out, width = args[3:11]
        factor, accumulate, mask, num_bytes = args[11:15]
        x, out = (builder.inttoptr(address, real.as_pointer()) for address in (x, out))
        tail = emit.tail(width)
        # the last rows of all prefetch what they read anyway: nothing past indices may be read
        inside = builder.icmp_signed("<=", builder.add(stop, ahead), last)
        ahead = builder.select(inside, ahead, I64(0))

        bits = builder.inttoptr(mask, BYTES)
        masked = builder.icmp_unsigned("!=", mask, I64(0))
        end = cgutils.alloca_once_value(builder, stop)
        with builder.if_then(masked):  # of a row of which nothing is kept no sum need be taken
            words = (emit.keep(bits, v, num_bytes) for v in range(emit.vectors))
            some = functools.reduce(builder.or_, words)
            nothing = builder.icmp_unsigned("==", some, some.type(0))
            with builder.if_then(nothing, likely=False):
                # a branch, not a choice: what follows need not wait for the mask
                builder.store(start, end)
        stop = builder.load(end)
        sums = [[cgutils.alloca_once(builder, emit.vector) for _ in range(emit.vectors)]
                for _ in range(count_sets)]
        for slot in itertools.chain(*sums):
            builder.store(emit.zero, slot)

        def column(k):
            index = builder.load(builder.gep(columns, [k]))
            return builder.sext(index, I64) if index.type.width < 64 else index

        def row(j):
            return builder.gep(x, [builder.shl(j, ldx) if shifted else builder.mul(j, ldx)])

        def step(k, u):
            emit.prefetch(row(column(builder.add(k, ahead))), count_lines)
            j = column(k)
            weight = None if values is None else builder.load(builder.gep(values, [k]))
            if scales is not None:
                of_column = builder.load(builder.gep(scales, [j]))
                weight = of_column if weight is None else builder.fmul(weight, of_column)
            if weight is not None:
                weight = splat(builder, weight, emit.lanes)
            source = row(j)
            for v in range(emit.vectors):
                total = builder.load(sums[u][v])
                part = emit.load(source, v, tail)
                if weight is None:
                    total = builder.fadd(total, part)
                else:
                    total = emit.call("llvm.fmuladd.*", emit.vector, weight, part, total)
                builder.store(total, sums[u][v])

        stride = I64(count_sets)
        whole = builder.sdiv(builder.sub(stop, start), stride)
        middle = builder.add(start, builder.mul(whole, stride))
        with cgutils.for_range_slice(builder, start, middle, stride, intp=I64) as (k, _):
            for u in range(count_sets):
                step(builder.add(k, I64(u)), u)
        if count_sets > 1:
            with cgutils.for_range_slice(builder, middle, stop, I64(1), intp=I64) as (k, _):
                step(k, 0)

        factor = splat(builder, factor, emit.lanes)
        for v in range(emit.vectors):
            total = builder.load(sums[0][v])
            for u in range(1, count_sets):
                total = builder.fadd(total, builder.load(sums[u][v]))
            builder.store(builder.fmul(total, factor), sums[0][v])
        with builder.if_then(accumulate):
            for v in range(emit.vectors):
                total = builder.fadd(builder.load(sums[0][v]), emit.load(out, v, tail))
                builder.store(total, sums[0][v])
        with builder.if_then(masked):
            for v in range(emit.vectors):
                keep = emit.keep(bits, v, num_bytes)
                keep = builder.bitcast(keep, ir.VectorType(I1, emit.lanes))
                builder.store(builder.select(keep, builder.load(sums[0][v]), emit.zero), sums[0][v])
        for v in range(emit.vectors):
            emit.store(builder.load(sums[0][v]), out, v, tail)
        return context.get_dummy_value()

    return signature, codegen

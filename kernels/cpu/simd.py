"""A row of a product as vector code that Numba does not write by itself, emitted through LLVM.

The accumulators of a row stay in registers over all its nonzeros, and the row is written once (DistGNN, Algorithm 3);
the rows of x that come `distance` nonzeros later are prefetched. How many vectors, how many sets of accumulators and
how many lanes is the length, hence the type, of a tuple, so that each combination is compiled once and cached.
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


@functools.cache
def vector_bytes():
    """Bytes of a vector register of the CPU that Numba compiles for: 64 with AVX-512, 32 with AVX2, else 16."""
    name, features = config.CPU_NAME, config.CPU_FEATURES
    if name is None or name == "host":
        known = binding.get_host_cpu_features()
        has = known.get
    else:
        given = set((features or "").replace("+", "").split(","))
        wide = {"skylake-avx512", "icelake-server", "sapphirerapids", "znver4", "znver5"}
        has = {"avx512f": name in wide or "avx512f" in given,
               "avx2": name in wide | {"haswell", "skylake", "znver1", "znver2", "znver3"} or "avx2" in given}.get
    return 64 if has("avx512f") else 32 if has("avx2") else 16


def shape_of(width, itemsize, *, cached, aligned, power):
    """Vectors, accumulator sets, lanes, cache lines of a row of `width` numbers, as tuples of these lengths.

    A fifth, of length 2 if `power`, says that ldx is the logarithm of the row length: a shift is quicker than a
    product.

    Rows of at most 256 bytes that come from memory are read in 32-byte vectors: arrays rarely begin at a multiple of
    64, and then every 64-byte load takes two cache lines. A second set of accumulators hides the latency of fma.
    """
    size = vector_bytes()
    if size == 64 and (width * itemsize <= 32 or (not cached and width * itemsize <= 256)):
        size = 32
    lanes = size // itemsize
    vectors = -(-width // lanes)
    registers = 32 if vector_bytes() == 64 else 16
    lines = -(-vectors * size // 64) + (not aligned)
    return (0,) * vectors, (0,) * (2 if 4 * vectors <= registers else 1), (0,) * lanes, (0,) * lines, (0,) * (1 + power)


def max_width(itemsize):
    """Widest row that one pass can hold in registers, a multiple of 8."""
    vectors = MAX_VECTORS if vector_bytes() == 64 else MAX_VECTORS // 2
    return vectors * vector_bytes() // itemsize


def distance(row_bytes, cached):
    """How many nonzeros ahead to prefetch: 32 from the last-level cache, about 16 KB of features from memory."""
    return 32 if cached else max(16, min(128, 16384 // row_bytes))


def splat(builder, value, lanes):
    """A vector of one value in all lanes."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(undefined, value, I32(0)), undefined,
                                  ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


class Emitter:
    """Emits the code of `row_product` for one combination of types."""

    def __init__(self, context, builder, scale, shape):
        self.context, self.builder = context, builder
        self.vectors, self.sets, self.lanes, self.lines, power = (part.count for part in shape)
        self.power = power == 2
        self.real = ir.FloatType() if scale == types.float32 else ir.DoubleType()
        self.itemsize = 4 if scale == types.float32 else 8
        self.vector, self.bits = ir.VectorType(self.real, self.lanes), ir.VectorType(I1, self.lanes)
        self.zero = ir.Constant(self.vector, [0.0] * self.lanes)

    def call(self, name, returns, *args):
        """Call an LLVM intrinsic."""
        kind = ir.FunctionType(returns, [arg.type for arg in args])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), args)

    def suffix(self):
        """Type suffix of overloaded intrinsics."""
        return f"v{self.lanes}f{8 * self.itemsize}"

    def array(self, kind, value):
        """Data pointer of an array argument."""
        return self.context.make_array(kind)(self.context, self.builder, value).data

    def broadcast(self, value):
        """A vector of one value in all lanes."""
        return splat(self.builder, value, self.lanes)

    def tail(self, width):
        """Lanes of the last vector that exist, as bits."""
        numbers = ir.Constant(ir.VectorType(I64, self.lanes), list(range((self.vectors - 1) * self.lanes,
                                                                         self.vectors * self.lanes)))
        return self.builder.icmp_signed("<", numbers, self.broadcast(width))

    def load(self, row, v, tail):
        """Vector v of a row; the last one by lanes that exist."""
        at = self.builder.gep(row, [I64(v * self.lanes)])
        if v + 1 < self.vectors:
            return self.builder.load(self.builder.bitcast(at, self.vector.as_pointer()), align=self.itemsize)
        return self.call(f"llvm.masked.load.{self.suffix()}.p0", self.vector,
                         self.builder.bitcast(at, self.vector.as_pointer()), I32(self.itemsize), tail, self.zero)

    def store(self, value, row, v, tail):
        """Write vector v of a row; the last one by lanes that exist."""
        at = self.builder.bitcast(self.builder.gep(row, [I64(v * self.lanes)]), self.vector.as_pointer())
        if v + 1 < self.vectors:
            self.builder.store(value, at, align=self.itemsize)
        else:
            self.call(f"llvm.masked.store.{self.suffix()}.p0", ir.VoidType(), value, at, I32(self.itemsize), tail)

    def prefetch(self, row):
        """Ask for the cache lines of a row; one more than its bytes fill is the line that they may spill into."""
        start = self.builder.bitcast(row, BYTES)
        size = self.vectors * self.lanes * self.itemsize
        for offset in [min(64 * line, size - self.itemsize) for line in range(self.lines)]:
            self.call("llvm.prefetch.p0", ir.VoidType(), self.builder.gep(start, [I64(offset)]), I32(0), I32(3), I32(1))

    def keep(self, mask, v, num_bytes):
        """Bits of vector v out of a row of mask bytes, an integer of as many; no byte past the row is read."""
        first, count = v * self.lanes // 8, max(1, self.lanes // 8)
        word = ir.IntType(8 * count)
        at = self.builder.gep(mask, [I64(first)])
        if v + 1 < self.vectors or count == 1:
            bits = self.builder.load(self.builder.bitcast(at, word.as_pointer()), align=1)
        else:  # some bytes of the last vector may be missing
            bits = word(0)
            for i in range(count):
                at = I64(first + i)
                at = self.builder.select(self.builder.icmp_signed("<", at, num_bytes), at, I64(0))  # any byte will do
                byte = self.builder.zext(self.builder.load(self.builder.gep(mask, [at])), word)
                bits = self.builder.or_(bits, self.builder.shl(byte, word(8 * i)))
        if self.lanes < 8:
            bits = self.builder.trunc(self.builder.lshr(bits, word(v * self.lanes % 8)), ir.IntType(self.lanes))
        return bits


@intrinsic
def row_product(typingctx, indices, data, col_scale, start, stop, ahead, last, x, ldx, out, width, scale, accumulate,
                mask, num_bytes, vectors, sets, lanes, lines, power):
    """out[:width] = keep * (scale * sum over k in start..stop of data[k] col_scale[j] x[j, :width] + accumulate * out).

    Here j = indices[k]; data and col_scale may be None. x, out and mask are addresses (mask 0: keep all), ldx the row
    length of x in numbers (or its logarithm, see `shape_of`). Rows of x are prefetched `ahead` nonzeros before use;
    `last` is the last entry of indices.
    """
    signature = types.void(indices, data, col_scale, start, stop, ahead, last, x, ldx, out, width, scale, accumulate,
                           mask, num_bytes, vectors, sets, lanes, lines, power)

    def codegen(context, builder, signature, args):
        kinds = signature.args
        emit = Emitter(context, builder, kinds[11], kinds[15:])
        columns = emit.array(kinds[0], args[0])
        values = None if isinstance(kinds[1], types.NoneType) else emit.array(kinds[1], args[1])
        scales = None if isinstance(kinds[2], types.NoneType) else emit.array(kinds[2], args[2])
        start, stop, ahead, last, x, ldx, out, width, scale, accumulate, mask, num_bytes = args[3:15]
        x, out = (builder.inttoptr(address, emit.real.as_pointer()) for address in (x, out))
        tail = emit.tail(width)
        # the last rows of all prefetch what they read anyway: nothing past the end of indices may be read
        inside = builder.icmp_signed("<=", builder.add(stop, ahead), last)
        ahead = builder.select(inside, ahead, I64(0))
        bits = builder.inttoptr(mask, BYTES)
        masked = builder.icmp_unsigned("!=", mask, I64(0))
        end = cgutils.alloca_once_value(builder, stop)
        with builder.if_then(masked):  # of a row of which nothing is kept the sum need not be taken
            some = functools.reduce(builder.or_, (emit.keep(bits, v, num_bytes) for v in range(emit.vectors)))
            with builder.if_then(builder.icmp_unsigned("==", some, some.type(0)), likely=False):
                builder.store(start, end)  # a branch, not a choice: what follows need not wait for the mask
        stop = builder.load(end)
        sums = [[cgutils.alloca_once(builder, emit.vector) for _ in range(emit.vectors)] for _ in range(emit.sets)]
        for slot in itertools.chain(*sums):
            builder.store(emit.zero, slot)

        def column(k):
            index = builder.load(builder.gep(columns, [k]))
            return builder.sext(index, I64) if index.type.width < 64 else index


        def row(j):
            return builder.gep(x, [builder.shl(j, ldx) if emit.power else builder.mul(j, ldx)])

        def step(k, u):
            emit.prefetch(row(column(builder.add(k, ahead))))
            j = column(k)
            value = None if values is None else builder.load(builder.gep(values, [k]))
            if scales is not None:
                factor = builder.load(builder.gep(scales, [j]))
                value = factor if value is None else builder.fmul(value, factor)
            weight = None if value is None else emit.broadcast(value)
            source = row(j)
            for v in range(emit.vectors):
                total, part = builder.load(sums[u][v]), emit.load(source, v, tail)
                if weight is None:
                    total = builder.fadd(total, part)
                else:
                    total = emit.call(f"llvm.fmuladd.{emit.suffix()}", emit.vector, weight, part, total)
                builder.store(total, sums[u][v])

        whole = builder.sdiv(builder.sub(stop, start), I64(emit.sets))
        middle = builder.add(start, builder.mul(whole, I64(emit.sets)))
        with cgutils.for_range_slice(builder, start, middle, I64(emit.sets), intp=I64) as (k, _):
            for u in range(emit.sets):
                step(builder.add(k, I64(u)), u)
        if emit.sets > 1:
            with cgutils.for_range_slice(builder, middle, stop, I64(1), intp=I64) as (k, _):
                step(k, 0)
        factor = emit.broadcast(scale)
        totals = []
        for v in range(emit.vectors):
            total = builder.load(sums[0][v])
            for u in range(1, emit.sets):
                total = builder.fadd(total, builder.load(sums[u][v]))
            totals.append(builder.fmul(total, factor))
            builder.store(totals[-1], sums[0][v])
        with builder.if_then(accumulate):
            for v in range(emit.vectors):
                builder.store(builder.fadd(builder.load(sums[0][v]), emit.load(out, v, tail)), sums[0][v])
        with builder.if_then(masked):
            for v in range(emit.vectors):
                kept = builder.bitcast(emit.keep(bits, v, num_bytes), emit.bits)
                kept = builder.select(kept, builder.load(sums[0][v]), emit.zero)
                builder.store(kept, sums[0][v])
        for v in range(emit.vectors):
            emit.store(builder.load(sums[0][v]), out, v, tail)
        return context.get_dummy_value()

    return signature, codegen

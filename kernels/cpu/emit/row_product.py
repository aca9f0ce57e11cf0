"""Vector code for a row of a sparse product, emitted because Numba would not write it.

The accumulators of a row stay in registers over all its nonzeros, or over TOGETHER of
them if it is wide. The row is written once (DistGNN, Algorithm 3). Rows of x are
prefetched twice. `far` nonzeros ahead they are fetched to the second-level cache, which
can wait for more lines at once, and `near` nonzeros ahead to the first. A RowShape
holds all constants of the code, which is compiled once for each.
"""
import functools
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpgcn.kernels.cpu.emit.emitter import (
    BYTES,
    FIRST,
    I1,
    I16,
    I64,
    SECOND,
    splat,
    vector_bytes,
)
from hpgcn.kernels.cpu.emit.row_emitter import Piece, RowEmitter

ROW_BYTES = 1024  # bytes of the widest row that is read in one pass
# Vectors of a row that are added to at a time: 8, and 1 more if a row does not begin
# where a vector does. AVX-512 has registers for more.
HELD = 9


class RowShape(NamedTuple):
    """The constants for which the code of a row is compiled.

    Numba compiles anew for each tuple length. So `literal` writes each constant as the
    length of a tuple.
    """

    vectors: int  # vectors of `lanes` numbers each
    sets: int  # sets of accumulators; a second one hides the latency of fma
    lanes: int
    near: int  # cache lines of a row that are prefetched into the first cache
    far: int  # cache lines that are prefetched earlier, into the second cache
    masked: int = 0  # whether the last vector has fewer columns than lanes
    tail: int = 0  # columns after whole vectors, in vectors of fewer lanes
    power: int = 0  # whether ldx is the logarithm of a row length, which is quicker to use
    narrow_x: int = 0  # whether x is in 16 bits (hpgcn.kernels.bits16)
    narrow_out: int = 0  # whether the result is in 16 bits
    dots: int = 0  # whether pairs of 16 bits are multiplied as such (hpgcn.kernels.cpu.dense.gemm)
    streamed: int = 0  # unit of stores past the cache, in 16 bytes; 0: stores into the cache
    shifted: int = 0  # aligned vectors that contain a row of x; 0: vectors begin with the row

    def literal(self):
        return tuple((0,) * count for count in self)


def sets_of(width, itemsize):
    """Return the number of accumulator sets of a row, by its width.

    The sets fix the order of summation, so nothing else may change them.
    """
    return 2 if width * itemsize <= 128 else 1


def shape_of(columns, width, itemsize, *, wide=True, narrow=(False, False)):
    """Return the RowShape of a pass over `columns` of `width` columns, without prefetches.

    Numbers are summed in `itemsize` bytes. `narrow` says whether those of x and of the
    result are stored in 16 bits. If not `wide`, rows of at most 256 bytes are read in
    32-byte vectors. Arrays rarely begin at a multiple of 64; every 64-byte load would
    then take two cache lines.
    """
    size = vector_bytes()
    row_bytes = columns * itemsize
    if size == 64 and (row_bytes <= 32 or (not wide and row_bytes <= 256)):
        size = 32
    lanes = size // itemsize
    vectors = -(-columns // lanes)
    rest = columns % lanes
    tail = 0
    if any(narrow) and vector_bytes() < 64 and rest:  # 32-byte vectors of 16 bits have no masks
        vectors = columns // lanes
        tail = rest
    return RowShape(vectors, sets_of(width, itemsize), lanes, 0, 0, int(rest > tail), tail,
                    narrow_x=int(narrow[0]), narrow_out=int(narrow[1]))


def max_width(itemsize):
    """Return the most columns that one pass sums, for numbers of `itemsize` bytes."""
    return ROW_BYTES // itemsize


class ProductEmitter(RowEmitter):
    """Emitter of the code of `row_product`: the mask, the sums of a row, and its result.

    `pointers` are those to indices, data and col_scale; the last two may be None.
    `numbers` are the other arguments except scale and shape, by name.
    """

    def __init__(self, builder, real, itemsize, shape, pointers, numbers):
        super().__init__(builder, real, itemsize, shape, numbers["width"])
        self.indices, self.data, self.col_scale = pointers
        self.start, self.stop, self.ldx, self.factor, self.resume, self.accumulate = (
            numbers[name] for name in ("start", "stop", "ldx", "scale", "resume", "accumulate"))
        self.mask, self.num_bytes = numbers["mask"], numbers["num_bytes"]

        # with `shifted`, reads of x begin at the aligned vector that contains its first number
        x = numbers["x"]
        self.skipped = builder.and_(x, I64(vector_bytes() - 1 if shape.shifted else 0))
        self.begin, self.x = (
            builder.inttoptr(at, (I16 if shape.narrow_x else real).as_pointer())
            for at in (builder.sub(x, self.skipped), x))
        self.out = builder.inttoptr(
            numbers["out"], (I16 if shape.narrow_out else real).as_pointer())

        # the last rows prefetch rows that they read anyway, because nothing past indices
        # may be read
        near, far = numbers["near"], numbers["far"]
        last = builder.add(self.stop, far if shape.far else near)
        inside = builder.icmp_signed("<=", last, numbers["last"])
        self.near, self.far = (builder.select(inside, ahead, I64(0)) for ahead in (near, far))

    def skip_masked(self):
        """Emit code that skips the sums of a row if its mask keeps nothing."""
        builder = self.builder
        self.bits = builder.inttoptr(self.mask, BYTES)
        self.masked = builder.icmp_unsigned("!=", self.mask, I64(0))
        end = cgutils.alloca_once_value(builder, self.stop)
        with builder.if_then(self.masked):
            some = I1(0)
            for piece in self.pieces:
                word = self.keep_of(self.bits, piece, self.num_bytes)
                some = builder.or_(some, builder.icmp_unsigned("!=", word, word.type(0)))
            with builder.if_then(builder.not_(some), likely=False):
                # a branch instead of a selection, so that later code need not wait for the mask
                builder.store(self.start, end)
        self.stop = builder.load(end)

    def sum_rows(self):
        """Emit code that sums rows of x; return variables of each set of accumulators."""
        builder, shape = self.builder, self.shape
        self.read = [Piece(v * shape.lanes, shape.lanes, False) for v in range(shape.shifted)]
        self.read = self.read or self.pieces

        # begin at 0, or at the sum of earlier blocks of x
        sums = [[cgutils.alloca_once(builder, self.vector_of(piece)) for piece in self.read]
                for _ in range(shape.sets)]
        for slots in sums:
            for slot, piece in zip(slots, self.read):
                builder.store(self.zeros(piece), slot)
        if shape.sets == 1 and not shape.shifted:
            with builder.if_then(self.resume):
                for slot, piece in zip(sums[0], self.pieces):
                    builder.store(self.load(self.out, piece, shape.narrow_out), slot)

        # one set takes all nonzeros
        if shape.sets == 1:
            self.for_nonzeros(self.start, self.stop, len(self.read), HELD, self.ask,
                              lambda k, some: self.add(k, sums[0][some], self.read[some]))
            return sums

        # several sets take turns, and the first one takes the rest
        stride = I64(shape.sets)
        whole = builder.sdiv(builder.sub(self.stop, self.start), stride)
        middle = builder.add(self.start, builder.mul(whole, stride))
        with cgutils.for_range_slice(builder, self.start, middle, stride, intp=I64) as (first, _):
            for u in range(shape.sets):
                k = builder.add(first, I64(u))
                self.ask(k)
                self.add(k, sums[u], self.read)
        with cgutils.for_range_slice(builder, middle, self.stop, I64(1), intp=I64) as (k, _):
            self.ask(k)
            self.add(k, sums[0], self.read)
        return sums

    def column(self, k):
        """Return the column number of nonzero k."""
        index = self.builder.load(self.builder.gep(self.indices, [k]))
        return self.builder.sext(index, I64) if index.type.width < 64 else index

    def row(self, first, j):
        """Return a pointer to row j of x, if row 0 lies at `first`."""
        offset = (self.builder.shl if self.shape.power else self.builder.mul)(j, self.ldx)
        return self.builder.gep(first, [offset])

    def ask(self, k):
        """Prefetch the rows of x that later nonzeros read."""
        for lines, ahead, cache in ((self.shape.far, self.far, SECOND),
                                    (self.shape.near, self.near, FIRST)):
            if lines:
                later = self.column(self.builder.add(k, ahead))
                self.prefetch(self.row(self.x, later), lines, cache)

    def add(self, k, slots, pieces):
        """Add the row of x that nonzero k reads, times its value, to the accumulators `slots`."""
        builder = self.builder
        j = self.column(k)
        weight = None if self.data is None else builder.load(builder.gep(self.data, [k]))
        if self.col_scale is not None:
            of_column = builder.load(builder.gep(self.col_scale, [j]))
            weight = of_column if weight is None else builder.fmul(weight, of_column)

        source = self.row(self.begin, j)
        for slot, piece in zip(slots, pieces):
            total = builder.load(slot)
            part = self.load(source, piece, self.shape.narrow_x)
            if weight is None:
                total = builder.fadd(total, part)
            else:
                total = self.fma(splat(builder, weight, piece.lanes), part, total, piece)
            builder.store(total, slot)

    def store_result(self, sums):
        """Store the row: the sum of all sets, scaled, accumulated and masked."""
        builder, narrow = self.builder, self.shape.narrow_out
        if self.shape.shifted:
            sums = [self.moved(sums[0], self.skipped)]
        results = sums[0]
        for v, piece in enumerate(self.pieces):
            total = functools.reduce(builder.fadd, (builder.load(slots[v]) for slots in sums))
            total = builder.fmul(total, splat(builder, self.factor, piece.lanes))
            builder.store(total, results[v])

        with builder.if_then(self.accumulate):
            for slot, piece in zip(results, self.pieces):
                before = self.load(self.out, piece, narrow)
                builder.store(builder.fadd(builder.load(slot), before), slot)
        with builder.if_then(self.masked):
            for slot, piece in zip(results, self.pieces):
                keep = self.keep_of(self.bits, piece, self.num_bytes)
                keep = builder.bitcast(keep, ir.VectorType(I1, piece.lanes))
                kept = builder.select(keep, builder.load(slot), self.zeros(piece))
                builder.store(kept, slot)
        for slot, piece in zip(results, self.pieces):
            self.store(builder.load(slot), self.out, piece, narrow)


@intrinsic
def row_product(typingctx, indices, data, col_scale, start, stop, near, far, last, x, ldx, out,
                width, scale, resume, accumulate, mask, num_bytes, shape):
    """Multiply one row of a sparse product.

    out = keep * (scale * sum of data[k] col_scale[j] x[j] + accumulate * out).

    The sum is over k in start..stop, with j = indices[k], in the first `width` columns.
    With `resume` it continues from out; then there is one set of accumulators, and no
    `accumulate`.

    indices, data and col_scale are pointers; data and col_scale may be None. x, out and
    mask are addresses (mask 0: keep all). ldx is the row length of x in numbers, or its
    logarithm, see `RowShape`. Rows of x are prefetched `near` and `far` nonzeros before
    use; `last` is the last entry of indices.
    """
    # the types of all arguments; a RowShape fixes the code that is emitted
    signature = types.void(
        indices, data, col_scale, start, stop, near, far, last, x, ldx, out, width, scale,
        resume, accumulate, mask, num_bytes, shape)
    made_for = RowShape(*(part.count for part in shape))
    names = ("start", "stop", "near", "far", "last", "x", "ldx", "out", "width", "scale", "resume",
             "accumulate", "mask", "num_bytes")

    def codegen(context, builder, signature, args):
        pointers = [None if isinstance(kind, types.NoneType) else value
                    for kind, value in zip(signature.args[:3], args)]
        emit = ProductEmitter(builder, context.get_value_type(scale), scale.bitwidth // 8,
                              made_for, pointers, dict(zip(names, args[3:17])))
        emit.skip_masked()
        emit.store_result(emit.sum_rows())
        return context.get_dummy_value()

    return signature, codegen

"""A row of a product as vector code that Numba does not write by itself, emitted through LLVM.

The accumulators of a row stay in registers over all its nonzeros, or over TOGETHER of them where
it is wide, and the row is written once (DistGNN, Algorithm 3). Rows of x that come later
are prefetched: into the second cache `far` nonzeros ahead, which can wait for more lines at once
than the first, and into the first one `near` ahead. What the code is made for is a RowShape, so
that each is compiled once.
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

ROW_BYTES = 1024  # of the widest row that is read in one pass
# vectors of a row that are added to at a time, though AVX-512 has registers for more: 8, and the
# one more that a row lies in which does not begin where a vector does
HELD = 9


class RowShape(NamedTuple):
    """What the code for a row is made for: constants of the compiled kernel.

    `literal` says them to the compiler, as the lengths of tuples, which are types.
    """

    vectors: int  # of `lanes` numbers each
    sets: int  # of accumulators; a second one hides the latency of fma
    lanes: int
    near: int  # cache lines of a row that are prefetched into the first cache
    far: int  # and earlier into the second one
    masked: int = 0  # whether the last vector has fewer columns than lanes, or
    tail: int = 0  # columns beyond whole vectors, in vectors of fewer lanes
    power: int = 0  # whether ldx is the logarithm of a row length: quicker than a product
    narrow_x: int = 0  # whether x is in 16 bits (hpgcn.kernels.bits16)
    narrow_out: int = 0  # whether the result is
    dots: int = 0  # whether pairs of 16 bits are multiplied as such (hpgcn.kernels.cpu.dense.gemm)
    streamed: int = 0  # 16 bytes times this are stored at once past the cache; 0: into it
    shifted: int = 0  # vectors that a row of x lies in where each begins at a multiple of its size

    def literal(self):
        return tuple((0,) * count for count in self)


def sets_of(width, itemsize):
    """Return the accumulator sets of a row: they order its sum, so only its width decides."""
    return 2 if width * itemsize <= 128 else 1


def shape_of(columns, width, itemsize, *, wide=True, narrow=(False, False)):
    """Return the RowShape of a pass over some of `width` columns, without prefetches.

    Numbers are summed in `itemsize` bytes; `narrow` says whether those of x and of the result are
    stored in 16 bits. Where not `wide`, rows of at most 256 bytes are read in 32-byte vectors:
    arrays rarely begin at a multiple of 64, and then every 64-byte load takes two cache lines.
    """
    size = vector_bytes()
    row_bytes = columns * itemsize
    if size == 64 and (row_bytes <= 32 or (not wide and row_bytes <= 256)):
        size = 32
    lanes = size // itemsize
    vectors = -(-columns // lanes)
    rest = columns % lanes
    tail = 0
    if any(narrow) and vector_bytes() < 64 and rest:  # no masks for 16 bits there
        vectors = columns // lanes
        tail = rest
    return RowShape(vectors, sets_of(width, itemsize), lanes, 0, 0, int(rest > tail), tail,
                    narrow_x=int(narrow[0]), narrow_out=int(narrow[1]))


def max_width(itemsize):
    """Return the widest row that one pass sums, in numbers of so many bytes."""
    return ROW_BYTES // itemsize


@intrinsic
def row_product(typingctx, indices, data, col_scale, start, stop, near, far, last, x, ldx, out,
                width, scale, resume, accumulate, mask, num_bytes, shape):
    """Multiply a row: out = keep * (scale * sum of data[k] col_scale[j] x[j] + accumulate * out).

    The sum is over k in start..stop, j = indices[k], in the first `width` columns, and goes on
    from what is in out if `resume` (with one set of accumulators, and not to accumulate);
    indices, data and col_scale are pointers, or None but for indices; x, out and mask are addresses
    (mask 0: keep all),
    ldx the row length of x in numbers (or its logarithm, see `RowShape`). Rows of x
    are prefetched `near` and `far` nonzeros before use; `last` is the last entry of indices.
    """
    signature = types.void(
        indices, data, col_scale, start, stop, near, far, last, x, ldx, out, width, scale,
        resume, accumulate, mask, num_bytes, shape)
    made_for = RowShape(*(part.count for part in shape))
    sets = made_for.sets

    def codegen(context, builder, signature, args):
        real = context.get_value_type(scale)
        columns, values, scales = (
            None if isinstance(kind, types.NoneType) else value
            for kind, value in zip(signature.args[:3], args))
        start, stop, near, far, last, x, ldx, out, width = args[3:12]
        factor, resume, accumulate, mask, num_bytes = args[12:17]
        emit = RowEmitter(builder, real, scale.bitwidth // 8, made_for, width)
        pieces = emit.pieces
        skipped = builder.and_(x, I64(vector_bytes() - 1 if made_for.shifted else 0))
        begin, x = (builder.inttoptr(at, (I16 if made_for.narrow_x else real).as_pointer())
                    for at in (builder.sub(x, skipped), x))
        out = builder.inttoptr(out, (I16 if made_for.narrow_out else real).as_pointer())
        # the last rows of all prefetch what they read anyway: nothing past indices may be read
        furthest = far if made_for.far else near
        inside = builder.icmp_signed("<=", builder.add(stop, furthest), last)
        near, far = (builder.select(inside, ahead, I64(0)) for ahead in (near, far))

        bits = builder.inttoptr(mask, BYTES)
        masked = builder.icmp_unsigned("!=", mask, I64(0))
        end = cgutils.alloca_once_value(builder, stop)
        with builder.if_then(masked):  # of a row of which nothing is kept no sum need be taken
            some = I1(0)
            for piece in pieces:
                word = emit.keep_of(bits, piece, num_bytes)
                some = builder.or_(some, builder.icmp_unsigned("!=", word, word.type(0)))
            with builder.if_then(builder.not_(some), likely=False):
                # a branch, not a choice: what follows need not wait for the mask
                builder.store(start, end)
        stop = builder.load(end)
        read = [Piece(v * made_for.lanes, made_for.lanes, False) for v in range(made_for.shifted)]
        read = read or pieces
        sums = [[cgutils.alloca_once(builder, emit.vector_of(piece)) for piece in read]
                for _ in range(sets)]
        for slots in sums:
            for slot, piece in zip(slots, read):
                builder.store(emit.zeros(piece), slot)
        if sets == 1 and not made_for.shifted:
            with builder.if_then(resume):
                for slot, piece in zip(sums[0], pieces):
                    builder.store(emit.load(out, piece, made_for.narrow_out), slot)

        def column(k):
            index = builder.load(builder.gep(columns, [k]))
            return builder.sext(index, I64) if index.type.width < 64 else index

        def row(first, j):
            offset = builder.shl(j, ldx) if made_for.power else builder.mul(j, ldx)
            return builder.gep(first, [offset])

        def ask(k):
            if made_for.far:
                emit.prefetch(row(x, column(builder.add(k, far))), made_for.far, SECOND)
            if made_for.near:
                emit.prefetch(row(x, column(builder.add(k, near))), made_for.near, FIRST)

        def add(k, slots, pieces):
            j = column(k)
            weight = None if values is None else builder.load(builder.gep(values, [k]))
            if scales is not None:
                of_column = builder.load(builder.gep(scales, [j]))
                weight = of_column if weight is None else builder.fmul(weight, of_column)
            source = row(begin, j)
            for slot, piece in zip(slots, pieces):
                total = builder.load(slot)
                part = emit.load(source, piece, made_for.narrow_x)
                if weight is None:
                    total = builder.fadd(total, part)
                else:
                    total = emit.fma(splat(builder, weight, piece.lanes), part, total, piece)
                builder.store(total, slot)

        def ask_and_add(k, u):
            ask(k)
            add(k, sums[u], read)

        if sets == 1:
            emit.for_nonzeros(start, stop, len(read), HELD, ask,
                              lambda k, some: add(k, sums[0][some], read[some]))
        else:
            stride = I64(sets)
            whole = builder.sdiv(builder.sub(stop, start), stride)
            middle = builder.add(start, builder.mul(whole, stride))
            with cgutils.for_range_slice(builder, start, middle, stride, intp=I64) as (k, _):
                for u in range(sets):
                    ask_and_add(builder.add(k, I64(u)), u)
            with cgutils.for_range_slice(builder, middle, stop, I64(1), intp=I64) as (k, _):
                ask_and_add(k, 0)

        if made_for.shifted:
            sums = [emit.moved(sums[0], skipped)]
        for v, piece in enumerate(pieces):
            total = functools.reduce(builder.fadd, (builder.load(slots[v]) for slots in sums))
            total = builder.fmul(total, splat(builder, factor, piece.lanes))
            builder.store(total, sums[0][v])
        with builder.if_then(accumulate):
            for slot, piece in zip(sums[0], pieces):
                before = emit.load(out, piece, made_for.narrow_out)
                builder.store(builder.fadd(builder.load(slot), before), slot)
        with builder.if_then(masked):
            for slot, piece in zip(sums[0], pieces):
                keep = emit.keep_of(bits, piece, num_bytes)
                keep = builder.bitcast(keep, ir.VectorType(I1, piece.lanes))
                kept = builder.select(keep, builder.load(slot), emit.zeros(piece))
                builder.store(kept, slot)
        for slot, piece in zip(sums[0], pieces):
            emit.store(builder.load(slot), out, piece, made_for.narrow_out)
        return context.get_dummy_value()

    return signature, codegen

"""Vector code for tiles of dense products, with sums in registers over the whole depth.

Operands may be stored in 16 bits if the CPU multiplies pairs of such numbers. The
result may be as well: it is rounded in registers (hpgcn.kernels.bits16). Each number of
the result is a single sum, in increasing order.
"""
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpgcn.kernels.cpu.emit.emitter import BYTES, I1, I16, I32, I64, Bfloat, splat, vector_bytes
from hpgcn.kernels.cpu.emit.row_emitter import RowEmitter
from hpgcn.kernels.cpu.emit.row_product import RowShape

ROWS = 6  # rows of a tile
REGISTERS = {64: 4, 32: 2, 16: 2}  # vectors of a row of a tile, by their bytes


def panel_shape(columns, itemsize, narrow_out=False, dots=False):
    """Return the RowShape of a panel of `columns` columns, at most `panel_width`.

    `narrow_out` stores results in 16 bits; `dots` multiplies pairs of 16-bit numbers.
    """
    lanes = vector_bytes() // itemsize
    rest = columns % lanes
    half = rest == lanes // 2 or (narrow_out and vector_bytes() < 64)
    vectors = columns // lanes + (rest > 0 and not half)
    tail = rest if half else 0
    return RowShape(vectors, 1, lanes, 0, 0, int(rest > tail), tail, narrow_out=int(narrow_out),
                    dots=int(dots))


def panel_width(itemsize):
    """Return the number of columns of a panel, for numbers of `itemsize` bytes."""
    return REGISTERS[vector_bytes()] * vector_bytes() // itemsize


def _pairs(builder, bits, piece):
    """Return 32-bit integers, a vector or one repeated in all lanes, as pairs of bfloat16."""
    if isinstance(bits.type, ir.IntType):
        bits = splat(builder, bits, piece.lanes)
    return builder.bitcast(bits, ir.VectorType(Bfloat(), 2 * piece.lanes))


def _add(builder, emit, slots, number, columns):
    """Add a number of x, or a pair, times vectors of columns to a row of a tile."""
    for slot, piece, column in zip(slots, emit.pieces, columns):
        total = builder.load(slot)
        if emit.shape.dots:
            name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * piece.lanes}"
            total = emit.call(name, total.type, total, _pairs(builder, number, piece), column)
        else:
            total = emit.fma(splat(builder, number, piece.lanes), column, total, piece)
        builder.store(total, slot)


@intrinsic
def tile_product(typingctx, x, ldx, w, ldw, out, ldo, depth, width, one, mask, mask_bytes,
                 num_bytes, rows, shape):
    """Write a tile of x w: rows x (rows, depth), and `width` columns of w (depth, ..).

    x, w and out are addresses, ld* their row lengths in numbers. `mask` is the address
    of the keep bits of the first row, or 0 to keep all; rows of bits lie `mask_bytes`
    apart. No byte from `num_bytes` on is read. The length of the tuple `rows` is the
    number of rows; `one` has the type of sums. With `dots` x has 16 bits. Row k of w,
    in 32 bits, has rows 2 k and 2 k + 1 of the matrix, the first in the lower halves.
    """
    signature = types.void(x, ldx, w, ldw, out, ldo, depth, width, one, mask, mask_bytes,
                           num_bytes, rows, shape)
    count = rows.count
    made_for = RowShape(*(part.count for part in shape))

    def codegen(context, builder, signature, args):
        # operands
        real = context.get_value_type(one)
        x, ldx, w, ldw, out, ldo, depth, width, _, mask, mask_bytes, num_bytes = args[:12]
        emit = RowEmitter(builder, real, one.bitwidth // 8, made_for, width)
        pieces = emit.pieces
        x = builder.inttoptr(x, (I16 if made_for.dots else real).as_pointer())
        out = builder.inttoptr(out, (I16 if made_for.narrow_out else real).as_pointer())
        w = builder.inttoptr(w, (I32 if made_for.dots else real).as_pointer())
        lines = [builder.gep(x, [builder.mul(I64(r), ldx)]) for r in range(count)]

        # accumulators
        sums = [[cgutils.alloca_once(builder, emit.vector_of(piece)) for piece in pieces]
                for _ in range(count)]
        for slots in sums:
            for slot, piece in zip(slots, pieces):
                builder.store(emit.zeros(piece), slot)

        # one step adds a row of w times a number of each row of x
        def step(k, read):
            row = builder.gep(w, [builder.mul(k, ldw)])
            if made_for.dots:
                columns = [_pairs(builder, emit.load_bits(row, piece, 32), piece)
                           for piece in pieces]
            else:
                columns = [emit.load(row, piece, False) for piece in pieces]
            for line, slots in zip(lines, sums):
                _add(builder, emit, slots, read(line, k), columns)

        # what a step reads of x: a number, a pair, or the last of an odd row
        def one_number(line, k):
            return builder.load(builder.gep(line, [k]))

        def pair(line, k):
            at = builder.gep(line, [builder.shl(k, I64(1))])
            return builder.load(builder.bitcast(at, I32.as_pointer()), align=2)

        def last_of_odd(line, k):
            return builder.zext(builder.load(builder.gep(line, [builder.shl(k, I64(1))])), I32)

        # loop over the depth
        steps = builder.lshr(depth, I64(1)) if made_for.dots else depth
        with cgutils.for_range(builder, steps, intp=I64) as loop:
            step(loop.index, pair if made_for.dots else one_number)
        if made_for.dots:
            odd = builder.trunc(depth, I1)
            with builder.if_then(odd):
                step(steps, last_of_odd)

        # apply the mask and store
        masked = builder.icmp_unsigned("!=", mask, I64(0))
        for r, slots in enumerate(sums):
            with builder.if_then(masked):
                bits = builder.inttoptr(builder.add(mask, builder.mul(I64(r), mask_bytes)), BYTES)
                for slot, piece in zip(slots, pieces):
                    keep = builder.bitcast(emit.keep_of(bits, piece, num_bytes),
                                           ir.VectorType(I1, piece.lanes))
                    kept = builder.select(keep, builder.load(slot), emit.zeros(piece))
                    builder.store(kept, slot)
            at = builder.gep(out, [builder.mul(I64(r), ldo)])
            for slot, piece in zip(slots, pieces):
                emit.store(builder.load(slot), at, piece, made_for.narrow_out)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def tile_outer(typingctx, x, ldx, g, ldg, out, ldo, depth, width, one, rows, shape):
    """Add a tile of x^T g to `out`: `rows` columns of x (depth, ..), `width` of g (depth, ..).

    With `dots` x and g have 16 bits. Other arguments are as in `tile_product`.
    """
    signature = types.void(x, ldx, g, ldg, out, ldo, depth, width, one, rows, shape)
    count = rows.count
    made_for = RowShape(*(part.count for part in shape))

    def codegen(context, builder, signature, args):
        real = context.get_value_type(one)
        x, ldx, g, ldg, out, ldo, depth, width = args[:8]
        emit = RowEmitter(builder, real, one.bitwidth // 8, made_for, width)
        pieces = emit.pieces
        kind = I16 if made_for.dots else real
        x, g = (builder.inttoptr(each, kind.as_pointer()) for each in (x, g))
        out = builder.inttoptr(out, real.as_pointer())
        lines = [builder.gep(out, [builder.mul(I64(r), ldo)]) for r in range(count)]
        sums = []
        for line in lines:
            slots = [cgutils.alloca_once(builder, emit.vector_of(piece)) for piece in pieces]
            for slot, piece in zip(slots, pieces):
                builder.store(emit.load(line, piece, False), slot)
            sums.append(slots)

        def row(i):
            left = builder.gep(x, [builder.mul(i, ldx)])
            right = builder.gep(g, [builder.mul(i, ldg)])
            return left, right

        def step(i):
            left, right = row(i)
            columns = [emit.load(right, piece, False) for piece in pieces]
            for r, slots in enumerate(sums):
                number = builder.load(builder.gep(left, [I64(r)]))
                _add(builder, emit, slots, number, columns)

        def step_of_pairs(i, whole):
            # in a single last row the other half of each pair is 0
            first, second = row(i), row(builder.add(i, I64(1)))
            columns = []
            for piece in pieces:
                wide = ir.VectorType(I32, piece.lanes)
                bits = builder.zext(emit.load_bits(first[1], piece, 16), wide)
                if whole:
                    upper = builder.zext(emit.load_bits(second[1], piece, 16), wide)
                    shift = ir.Constant(wide, [16] * piece.lanes)
                    bits = builder.or_(bits, builder.shl(upper, shift))
                columns.append(_pairs(builder, bits, piece))
            for r, slots in enumerate(sums):
                number = builder.zext(builder.load(builder.gep(first[0], [I64(r)])), I32)
                if whole:
                    upper = builder.zext(builder.load(builder.gep(second[0], [I64(r)])), I32)
                    number = builder.or_(number, builder.shl(upper, I32(16)))
                _add(builder, emit, slots, number, columns)

        if made_for.dots:
            pairs = builder.lshr(depth, I64(1))
            with cgutils.for_range(builder, pairs, intp=I64) as loop:
                step_of_pairs(builder.shl(loop.index, I64(1)), True)
            with builder.if_then(builder.trunc(depth, I1)):
                step_of_pairs(builder.sub(depth, I64(1)), False)
        else:
            with cgutils.for_range(builder, depth, intp=I64) as loop:
                step(loop.index)

        for line, slots in zip(lines, sums):
            for slot, piece in zip(slots, pieces):
                emit.store(builder.load(slot), line, piece, False)
        return context.get_dummy_value()

    return signature, codegen

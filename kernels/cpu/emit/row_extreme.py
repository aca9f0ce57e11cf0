"""A row of max or min as vector code: as `row_product`, with the place of each column's choice."""
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpgcn.kernels.cpu.emit.emitter import FIRST, I32, I64, SECOND, splat, vector_bytes
from hpgcn.kernels.cpu.emit.row_emitter import RowEmitter
from hpgcn.kernels.cpu.emit.row_product import RowShape


@intrinsic(prefer_literal=True)
def row_extreme(typingctx, indices, data, start, stop, near, far, last, x, ldx, out, arg, width,
                one, highest, shape):
    """Write the largest of data[k] x[j], j = indices[k], of each column, and the k it is of.

    k is in start..stop, not empty; data may be None. `highest` (a constant): the
    largest, else the smallest. The first of equals counts, and NaN is chosen if there
    is one. x, out and arg (int64) are addresses, ldx the row length of x; `one` has the
    type of its numbers. Rows of x are prefetched as in `row_product`.
    """
    signature = types.void(indices, data, start, stop, near, far, last, x, ldx, out, arg, width,
                           one, highest, shape)
    made_for = RowShape(*(part.count for part in shape))
    largest = bool(highest.literal_value)

    def codegen(context, builder, signature, args):
        real = context.get_value_type(one)
        columns, values = (
            None if isinstance(kind, types.NoneType)
            else context.make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[:2], args))
        start, stop, near, far, last, x, ldx, out, arg, width = args[2:12]
        emit = RowEmitter(builder, real, one.bitwidth // 8, made_for, width)
        x, out = (builder.inttoptr(address, real.as_pointer()) for address in (x, out))
        arg = builder.inttoptr(arg, I64.as_pointer())
        # as in `row_product`: nothing past indices may be read
        furthest = far if made_for.far else near
        inside = builder.icmp_signed("<=", builder.add(stop, furthest), last)
        near, far = (builder.select(inside, ahead, I64(0)) for ahead in (near, far))

        below = float("-inf") if largest else float("inf")
        best, place = [], []
        for piece in emit.pieces:
            worst = ir.Constant(emit.vector_of(piece), [below] * piece.lanes)
            none = ir.Constant(ir.VectorType(I32, piece.lanes), [0] * piece.lanes)
            for slots, value in ((best, worst), (place, none)):
                slot = cgutils.alloca_once(builder, value.type)
                builder.store(value, slot)
                slots.append(slot)

        def row(k):
            index = builder.load(builder.gep(columns, [k]))
            j = builder.sext(index, I64) if index.type.width < 64 else index
            return builder.gep(x, [builder.mul(j, ldx)])

        def ask(k):
            if made_for.far:
                emit.prefetch(row(builder.add(k, far)), made_for.far, SECOND)
            if made_for.near:
                emit.prefetch(row(builder.add(k, near)), made_for.near, FIRST)

        def choose(k, some):
            source = row(k)
            weight = None if values is None else builder.load(builder.gep(values, [k]))
            number = builder.trunc(builder.sub(k, start), I32)
            for piece, top, where in zip(emit.pieces[some], best[some], place[some]):
                message = emit.load(source, piece, False)
                if weight is not None:
                    message = builder.fmul(splat(builder, weight, piece.lanes), message)
                held = builder.load(top)
                # a NaN compares as better, and is kept
                better = builder.fcmp_unordered(">" if largest else "<", message, held)
                better = builder.and_(better, builder.fcmp_ordered("ord", held, held))
                builder.store(builder.select(better, message, held), top)
                numbers = splat(builder, number, piece.lanes)
                builder.store(builder.select(better, numbers, builder.load(where)), where)

        held = 8 if vector_bytes() == 64 else 4  # in half of the registers, with their places
        emit.for_nonzeros(start, stop, len(emit.pieces), held, ask, choose)
        for piece, top, where in zip(emit.pieces, best, place):
            emit.store(builder.load(top), out, piece, False)
            wide = ir.VectorType(I64, piece.lanes)
            edges = builder.add(builder.sext(builder.load(where), wide),
                                splat(builder, start, piece.lanes))
            emit.store_numbers(edges, arg, piece)
        return context.get_dummy_value()

    return signature, codegen

"""Vector code for a row of the aggregation primitive, emitted through LLVM.

Messages are made and reduced in registers, vector by vector, so none is stored. A row
of the result is written once (DistGNN, Algorithm 3).
"""
from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpgcn.kernels.cpu.emit.emitter import FIRST, I32, I64, SECOND, splat, vector_bytes
from hpgcn.kernels.cpu.emit.row_emitter import RowEmitter
from hpgcn.kernels.cpu.emit.row_product import HELD, RowShape
from hpgcn.kernels.reference.aggregate import OPS

E_AHEAD = 64  # nonzeros between the prefetch of a row of e and its use


class RowReduction(NamedTuple):
    """Constants of the code of an aggregated row, besides those of RowShape."""

    op: int  # code of the operator, its place in OPS
    extreme: int  # whether the largest or smallest message is chosen; else all are summed
    column: int  # whether e has one column
    e_lines: int  # cache lines of a row of e that are prefetched

    def literal(self):
        """Return the constants as lengths of tuples, which Numba makes part of a type."""
        return tuple((0,) * count for count in self)


class AggregateEmitter(RowEmitter):
    """Emitter of the code of `row_aggregate`: messages, their sum or extreme, and the result.

    `pointers` are those to indices and edge, which may be None. `numbers` are the other
    arguments, by name.
    """

    def __init__(self, builder, real, itemsize, shape, reduction, pointers, numbers):
        super().__init__(builder, real, itemsize, shape, numbers["width"])
        self.op = list(OPS)[reduction.op]
        self.reduction = reduction
        self.indices, self.edge = pointers
        self.start, self.stop, self.ldx, self.lde, self.divisor, self.flip = (
            numbers[name] for name in ("start", "stop", "ldx", "lde", "divisor", "flip"))
        self.x, self.e, self.out = (
            builder.inttoptr(numbers[name], real.as_pointer()) for name in ("x", "e", "out"))
        self.arg = builder.inttoptr(numbers["arg"], I64.as_pointer())

        # as in `row_product`: nothing past indices may be read
        last = numbers["last"]
        self.near, self.far, self.e_ahead = (
            builder.select(
                builder.icmp_signed("<=", builder.add(self.stop, ahead), last), ahead, I64(0))
            for ahead in (numbers["near"], numbers["far"], I64(E_AHEAD)))

    def source(self, t):
        """Return the address of the row of x that nonzero t reads."""
        index = self.builder.load(self.builder.gep(self.indices, [t]))
        u = self.builder.sext(index, I64) if index.type.width < 64 else index
        return self.builder.gep(self.x, [self.builder.mul(u, self.ldx)])

    def values(self, t):
        """Return the address of the row of e that belongs to nonzero t."""
        k = t if self.edge is None else self.builder.load(self.builder.gep(self.edge, [t]))
        return self.builder.gep(self.e, [self.builder.mul(k, self.lde)])

    def ask(self, t):
        """Prefetch the rows of x and e that later nonzeros read."""
        builder = self.builder
        for lines, ahead, cache in ((self.shape.far, self.far, SECOND),
                                    (self.shape.near, self.near, FIRST)):
            if lines:
                self.prefetch(self.source(builder.add(t, ahead)), lines, cache)
        if self.reduction.e_lines:
            later = self.values(builder.add(t, self.e_ahead))
            self.prefetch(later, self.reduction.e_lines, SECOND)

    def messages(self, t, pieces):
        """Yield the vectors of the message op(x[u], e[k]) of nonzero t."""
        builder = self.builder
        source = None if self.op == "copyrhs" else self.source(t)
        values = None if self.op == "copylhs" else self.values(t)
        weight = builder.load(values) if values and self.reduction.column else None
        binary = {"add": builder.fadd, "sub": builder.fsub, "mul": builder.fmul,
                  "div": builder.fdiv}
        for piece in pieces:
            left = source and self.load(source, piece, False)
            right = values and (self.load(values, piece, False) if weight is None
                                else splat(builder, weight, piece.lanes))
            yield binary[self.op](left, right) if left and right else left or right

    def write_sum(self):
        """Write the sum of all messages, divided by the divisor."""
        builder = self.builder
        totals = [self.slot(self.zeros(piece)) for piece in self.pieces]

        def add(t, some):
            for slot, message in zip(totals[some], self.messages(t, self.pieces[some])):
                builder.store(builder.fadd(builder.load(slot), message), slot)

        self.for_nonzeros(self.start, self.stop, len(self.pieces), HELD, self.ask, add)
        for piece, slot in zip(self.pieces, totals):
            divisor = splat(builder, self.divisor, piece.lanes)
            self.store(builder.fdiv(builder.load(slot), divisor), self.out, piece, False)

    def write_extreme(self):
        """Write the largest message of each column, and its nonzero; with `flip` the smallest.

        `flip` is the sign bit, which is inverted before and after the comparison.
        """
        builder = self.builder
        best = [self.slot(ir.Constant(self.vector_of(piece), [float("-inf")] * piece.lanes))
                for piece in self.pieces]
        place = [self.slot(ir.Constant(ir.VectorType(I32, piece.lanes), [0] * piece.lanes))
                 for piece in self.pieces]

        def flipped(vector, piece):
            bits = ir.VectorType(ir.IntType(8 * self.itemsize), piece.lanes)
            flip = builder.trunc(self.flip, bits.element) if self.itemsize < 8 else self.flip
            changed = builder.xor(builder.bitcast(vector, bits), splat(builder, flip, piece.lanes))
            return builder.bitcast(changed, vector.type)

        def choose(t, some):
            number = builder.trunc(builder.sub(t, self.start), I32)
            pieces = self.pieces[some]
            for piece, top, where, message in zip(
                    pieces, best[some], place[some], self.messages(t, pieces)):
                message = flipped(message, piece)
                held = builder.load(top)
                # a NaN compares as better, and is kept
                better = builder.fcmp_unordered(">", message, held)
                better = builder.and_(better, builder.fcmp_ordered("ord", held, held))
                builder.store(builder.select(better, message, held), top)
                numbers = splat(builder, number, piece.lanes)
                builder.store(builder.select(better, numbers, builder.load(where)), where)

        held = 8 if vector_bytes() == 64 else 4  # in half of the registers, with their places
        self.for_nonzeros(self.start, self.stop, len(self.pieces), held, self.ask, choose)
        empty = builder.icmp_signed("==", self.start, self.stop)
        for piece, top, where in zip(self.pieces, best, place):
            chosen = flipped(builder.load(top), piece)
            self.store(builder.select(empty, self.zeros(piece), chosen), self.out, piece, False)
            wide = ir.VectorType(I64, piece.lanes)
            edges = builder.add(builder.sext(builder.load(where), wide),
                                splat(builder, self.start, piece.lanes))
            none = ir.Constant(wide, [-1] * piece.lanes)
            self.store_numbers(builder.select(empty, none, edges), self.arg, piece)

    def slot(self, value):
        """Return a stack variable that is initialized with a vector."""
        slot = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, slot)
        return slot


@intrinsic
def row_aggregate(typingctx, indices, edge, start, stop, near, far, last, x, ldx, e, lde, out, arg,
                  width, flip, divisor, reduction, shape):
    """Reduce op(x[indices[t]], e[k]) over t in start..stop into one row of `out`.

    k is edge[t], or t if edge is None. A sum is taken in the order of t, and divided by
    `divisor`. An extreme is the largest message of each column, or the smallest if
    `flip` is the sign bit. Its first t is written to a row of arg. If a message is NaN,
    it is the extreme. A row without nonzeros gives 0, and -1 in arg.

    indices and edge are pointers. x, e, out and arg (int64) are addresses; ldx and lde
    are row lengths in numbers. `divisor` has the type of the numbers. Rows of x are
    prefetched as in `row_product`.
    """
    signature = types.void(indices, edge, start, stop, near, far, last, x, ldx, e, lde, out, arg,
                           width, flip, divisor, reduction, shape)
    made_for = RowShape(*(part.count for part in shape))
    reduced = RowReduction(*(part.count for part in reduction))
    names = ("start", "stop", "near", "far", "last", "x", "ldx", "e", "lde", "out", "arg", "width",
             "flip", "divisor")

    # the last arguments are addresses; indices and edge may be None
    def codegen(context, builder, signature, args):
        pointers = [None if isinstance(kind, types.NoneType) else value
                    for kind, value in zip(signature.args[:2], args)]
        emit = AggregateEmitter(builder, context.get_value_type(divisor), divisor.bitwidth // 8,
                                made_for, reduced, pointers, dict(zip(names, args[2:16])))
        if reduced.extreme:
            emit.write_extreme()
        else:
            emit.write_sum()
        return context.get_dummy_value()

    return signature, codegen

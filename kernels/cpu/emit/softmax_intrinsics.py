"""Vector code for the maximum and the exponentials of a row, emitted through LLVM."""
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpgcn.kernels.cpu.emit.attend_intrinsics import Tile
from hpgcn.kernels.cpu.emit.emitter import I32, I64, Emitter, splat, vector_bytes

LANES = 8  # lanes of float64 on any CPU: the order of sums is the same on all


class Row(Emitter):
    """Emitter of loops over the vectors of a row of `width` numbers."""

    def __init__(self, context, builder, kind, lanes, width):
        super().__init__(builder, context.get_value_type(kind), kind.bitwidth // 8, 1, lanes)
        self.width = width

    def for_each_vector(self, address, other, take):
        """Emit take(numbers, first, exists) for each vector of a row; `first` is its column.

        Missing lanes are `other`. `exists` marks the lanes that the row has; it is None
        if the row has all of them.
        """
        builder = self.builder

        def vector(first):
            at = builder.add(address, builder.mul(first, I64(self.itemsize)))
            return builder.inttoptr(at, self.vector.as_pointer())

        lanes = I64(self.lanes)
        whole = builder.mul(builder.sdiv(self.width, lanes), lanes)
        with cgutils.for_range_slice(builder, I64(0), whole, lanes, intp=I64) as (first, _):
            take(builder.load(vector(first), align=self.itemsize), first, None)
        with builder.if_then(builder.icmp_signed("<", whole, self.width)):
            numbers = ir.Constant(ir.VectorType(I64, self.lanes), list(range(self.lanes)))
            rest = builder.sub(self.width, whole)
            exists = builder.icmp_signed("<", numbers, splat(builder, rest, self.lanes))
            take(self.call("llvm.masked.load.*.p0", self.vector, vector(whole), I32(self.itemsize),
                           exists, splat(builder, other, self.lanes)), whole, exists)


@intrinsic
def row_max(typingctx, row, width, lowest):
    """Return the largest number of the row at an address, ignoring NaN; `lowest` is -inf."""
    signature = lowest(row, width, lowest)

    def codegen(context, builder, signature, args):
        row, width, lowest = args
        kind = signature.return_type
        row_code = Row(context, builder, kind, 8 * vector_bytes() // kind.bitwidth, width)
        best = cgutils.alloca_once_value(builder, splat(builder, lowest, row_code.lanes))

        def take(numbers, first, exists):
            top = builder.load(best)
            larger = builder.fcmp_ordered(">", numbers, top)
            builder.store(builder.select(larger, numbers, top), best)

        row_code.for_each_vector(row, lowest, take)

        # halve the vector until one number is left
        lanes = row_code.lanes
        top = builder.load(best)
        while lanes > 1:
            lanes //= 2
            low, high = _halves(builder, top, lanes)
            top = builder.select(builder.fcmp_ordered(">", high, low), high, low)
        return builder.extract_element(top, I32(0))

    return signature, codegen


@intrinsic
def row_powers(typingctx, row, width, top, out, zero):
    """Write exp(z - top) for each number z of a row to `out`, and return the sum.

    row and out are addresses. top and the results are float64; results are stored LANES
    at a time. A number that is not finite gives NaN.
    """
    signature = types.float64(row, width, types.float64, out, zero)

    def codegen(context, builder, signature, args):
        row, width, top, out, zero = args
        row_code = Row(context, builder, signature.args[4], LANES, width)
        tile = Tile(context, builder, types.float64, 1, LANES, width, full=True)
        total = cgutils.alloca_once_value(builder, tile.zero)

        highest = splat(builder, top, LANES)

        # z - z is NaN if z is not finite
        def take(numbers, first, exists):
            z = numbers if row_code.itemsize == 8 else builder.fpext(numbers, tile.vector)
            power = builder.fadd(tile.exp(builder.fsub(z, highest)), builder.fsub(z, z))
            if exists is not None:
                power = builder.select(exists, power, tile.zero)
            at = builder.add(out, builder.mul(first, I64(8)))
            at = builder.inttoptr(at, tile.vector.as_pointer())
            builder.store(power, at, align=8)
            builder.store(builder.fadd(builder.load(total), power), total)

        # add up in the same order on all CPUs
        row_code.for_each_vector(row, zero, take)
        sums, lanes = builder.load(total), LANES
        while lanes > 1:
            lanes //= 2
            sums = builder.fadd(*_halves(builder, sums, lanes))
        return builder.extract_element(sums, I32(0))

    return signature, codegen


def _halves(builder, vector, lanes):
    """Return the first `lanes` elements of a vector, and the next `lanes` elements."""
    undefined = ir.Constant(vector.type, ir.Undefined)
    return [builder.shuffle_vector(vector, undefined, ir.Constant(
        ir.VectorType(I32, lanes), list(range(first, first + lanes)))) for first in (0, lanes)]

"""Vector intrinsics emitted through LLVM: masked groups of numbers, copies, sums, prefetches."""
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpgcn.kernels.cpu.emit.bfloat16 import load_numbers, store_numbers
from hpgcn.kernels.cpu.emit.emitter import BYTES, I1, I32, I64, SECOND, splat
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.pointers import pointer_of
from hpgcn.kernels.host.record import recording

LINE = 64  # bytes of a cache line


@intrinsic
def activate_some(typingctx, z, bias, bits, relu, scale, like):
    """Set z = keep * scale * (z + bias) for the columns of `bits`; return the keep bits.

    z is an address. `bits` (uint8 or uint16) are those that dropout keeps. With `relu`
    numbers <= 0 are not kept, but NaN is. `like` is a number of z's type, and `scale`
    one of bias's.
    """
    signature = bits(z, bias, bits, relu, scale, like)

    def codegen(context, builder, signature, args):
        z, bias, bits, relu, scale, like = args
        number, kind = signature.args[4:]
        size, lanes = kind.bitwidth // 8, bits.type.width
        vector = ir.VectorType(scale.type, lanes)
        total = builder.fadd(
            load_numbers(builder, z, kind, like.type, lanes, size),
            load_numbers(builder, bias, number, scale.type, lanes, number.bitwidth // 8))
        zero = ir.Constant(vector, [0.0] * lanes)
        alive = builder.bitcast(builder.fcmp_unordered("ugt", total, zero), bits.type)
        kept = builder.and_(bits, builder.select(relu, alive, bits.type(-1)))
        scaled = builder.fmul(total, splat(builder, scale, lanes))
        _store_masked(builder, scaled, kept, z, kind, size)
        return kept

    return signature, codegen


@intrinsic
def mask_some(typingctx, x, out, bits, scale, like, like_out):
    """Store the numbers at `x` times `scale` at `out` if their bit is set, else 0.

    `bits` are uint8 or uint16. `like` and `like_out` are numbers of the types at the two
    addresses.
    """
    signature = types.void(x, out, bits, scale, like, like_out)

    def codegen(context, builder, signature, args):
        x, out, bits, scale, like, _ = args
        kind, stored = signature.args[4:]
        lanes = bits.type.width
        numbers = load_numbers(builder, x, kind, like.type, lanes, kind.bitwidth // 8)
        scaled = builder.fmul(numbers, splat(builder, scale, lanes))
        _store_masked(builder, scaled, bits, out, stored, stored.bitwidth // 8)
        return context.get_dummy_value()

    return signature, codegen


def _store_masked(builder, numbers, bits, at, kind, size):
    lanes = numbers.type.count
    zero = ir.Constant(numbers.type, [0.0] * lanes)
    keep = builder.bitcast(bits, ir.VectorType(I1, lanes))
    store_numbers(builder, builder.select(keep, numbers, zero), at, kind, size)


@intrinsic
def power_of_two(typingctx, rounded):
    """Return 2^k, given the float64 1.5 * 2^52 + k, whose low bits become the exponent."""
    signature = types.float64(types.float64)

    def codegen(context, builder, signature, args):
        exponent = builder.shl(builder.bitcast(args[0], I64), I64(52))
        return builder.bitcast(builder.add(exponent, I64(1023 << 52)), ir.DoubleType())

    return signature, codegen


@intrinsic(prefer_literal=True)
def move(typingctx, source, target, size, streamed):
    """Copy `size` bytes from one address to another; `size` is 1, 4 or a multiple of 16.

    If `streamed` (a constant, as `size` is) is true, the store goes past the cache, and
    the target must be a multiple of `size`.
    """
    signature = types.void(source, target, size, streamed)
    length = size.literal_value
    past = streamed.literal_value

    def codegen(context, builder, signature, args):
        kind = ir.VectorType(I32, length // 4) if length > 4 else ir.IntType(8 * length)
        source, target = (builder.inttoptr(place, kind.as_pointer()) for place in args[:2])
        stored = builder.store(builder.load(source, align=1), target, align=length if past else 1)
        if past:
            stored.set_metadata("nontemporal", builder.module.add_metadata([I32(1)]))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic(prefer_literal=True)
def add(typingctx, source, target, size, zero):
    """Add `size` bytes of numbers of the type of `zero` at `source` to those at `target`.

    A constant `size` is a multiple of the item size. A variable `size` is that of one
    number.
    """
    signature = types.void(source, target, size, zero)

    def codegen(context, builder, signature, args):
        element = context.get_value_type(zero)
        itemsize = zero.bitwidth // 8
        count = 0
        if isinstance(size, types.IntegerLiteral):
            count = size.literal_value // itemsize
        source, target = (load_numbers(builder, place, zero, element, count, itemsize)
                          for place in args[:2])
        store_numbers(builder, builder.fadd(target, source), args[1], zero, itemsize)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def place_of(typingctx, pointer, index):
    """Return the address, int64, of element `index` of the array at a pointer."""
    signature = types.int64(pointer, index)

    def codegen(context, builder, signature, args):
        return builder.ptrtoint(builder.gep(args[0], [args[1]]), I64)

    return signature, codegen


@intrinsic(prefer_literal=True)
def prefetch(typingctx, at, cache):
    """Prefetch the cache line at an address, which need not be mapped.

    `cache` is the constant FIRST, SECOND or ONCE.
    """
    signature = types.void(at, cache)
    locality = cache.literal_value

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [BYTES, I32, I32, I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        line = builder.inttoptr(args[0], BYTES)
        builder.call(function, [line, I32(0), I32(locality), I32(1)])
        return context.get_dummy_value()

    return signature, codegen


@jit(forceinline=True)
def ask(begin, beyond):
    """Prefetch the cache lines between two addresses, mapped or not, to the second cache."""
    for line in range(begin, beyond, LINE):
        prefetch(line, SECOND)  # type: ignore[call-arg]


def address(array):
    """Return the address of an array, which the caller must keep; a recording keeps it too."""
    if (active := recording()) is not None:
        active.arrays.append(array)
    return pointer_of(array) if array.size else 0

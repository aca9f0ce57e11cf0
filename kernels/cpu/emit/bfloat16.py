"""Emitted conversions between bfloat16 and float32, in registers.

`widen` and `narrow` do nothing to floats, so that one kernel serves rows of any type.
"""
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

BITS = 16


def is_bf16(kind):
    """Return whether a Numba type stands for bfloat16."""
    return kind == types.uint16


def vector_of(element, count):
    """Return the LLVM type of `count` elements, or of a single element for count 0."""
    return ir.VectorType(element, count) if count else element


def constant(kind, value):
    """Return an LLVM constant of an integer type, or a vector of equal constants."""
    count = getattr(kind, "count", 0)
    return ir.Constant(kind, [value] * count if count else value)


def widened(builder, value):
    """Emit code that converts bfloat16 (i16, or a vector of it) to float32."""
    count = getattr(value.type, "count", 0)
    words = vector_of(ir.IntType(32), count)
    bits = builder.shl(builder.zext(value, words), constant(words, BITS))
    return builder.bitcast(bits, vector_of(ir.FloatType(), count))


def narrowed(builder, value):
    """Emit code that rounds float32 to bfloat16, with ties to even; NaN becomes quiet."""
    count = getattr(value.type, "count", 0)
    words = vector_of(ir.IntType(32), count)
    bits = builder.bitcast(value, words)
    odd = builder.and_(builder.lshr(bits, constant(words, BITS)), constant(words, 1))
    rounded = builder.add(bits, builder.add(odd, constant(words, 0x7FFF)))
    quiet = builder.or_(bits, constant(words, 0x400000))
    chosen = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
    return builder.trunc(builder.lshr(chosen, constant(words, BITS)),
                         vector_of(ir.IntType(BITS), count))


def load_numbers(builder, at, kind, element, count, size):
    """Emit code that loads `count` numbers; bfloat16 becomes float32."""
    vector = vector_of(element, count)
    value = builder.load(builder.inttoptr(at, vector.as_pointer()), align=size)
    return widened(builder, value) if is_bf16(kind) else value


def store_numbers(builder, value, at, kind, size):
    """Emit code that stores numbers, rounded to bfloat16 for this Numba type."""
    value = narrowed(builder, value) if is_bf16(kind) else value
    builder.store(value, builder.inttoptr(at, value.type.as_pointer()), align=size)


@intrinsic
def widen(typingctx, value):
    """Return the number of an array element: float32 for bfloat16, or the float itself."""
    result = types.float32 if is_bf16(value) else value

    def codegen(context, builder, signature, args):
        return widened(builder, args[0]) if is_bf16(signature.args[0]) else args[0]

    return result(value), codegen


@intrinsic
def narrow(typingctx, number, like):
    """Return a number converted to the element type of `like`."""
    def codegen(context, builder, signature, args):
        kind = signature.args[1]
        target = types.float32 if is_bf16(kind) else kind
        value = context.cast(builder, args[0], signature.args[0], target)
        return narrowed(builder, value) if is_bf16(kind) else value

    return like(number, like), codegen

"""Multiply tiles of 16-bit numbers by AMX, emitted through LLVM (Intel SDM 1, chapter 18).

A tile is a register of 16 rows of 64 bytes. TDPBF16PS adds the product of two tiles to
16 x 16 float32. The left tile is 16 rows of 32 numbers of 16 bits. The right one is a
matrix (32, 16) as 16 rows of 32-bit words. Each word is a pair of rows, the first in
the lower half. Numbers too small for a normal float32 count as 0.
"""
import ctypes
import functools
import platform

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.extending import intrinsic

from hpgcn.kernels.cpu.emit.emitter import BYTES, I1, I8, I16, I32, I64
from hpgcn.kernels.cpu.emit.row_emitter import RowEmitter
from hpgcn.kernels.cpu.emit.row_product import RowShape

SIDE = 16  # rows of a tile, and its columns of 32 bits
DEEP = 32  # numbers of 16 bits in a row of one
MOST = 4  # tiles of sums; the other four tiles have operands
ARCH_PRCTL, REQUEST, TILES = 158, 0x1023, 18  # numbers of Linux on x86-64
CONFIG = np.zeros(64, np.uint8)  # eight tiles of the largest size
CONFIG[0] = 1
CONFIG[16:32:2] = 64
CONFIG[48:56] = SIDE


@functools.cache
def has_tiles():
    """Return whether CPU, Numba and operating system support AMX tiles of bfloat16."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    host = config.CPU_NAME in (None, "host")
    has = binding.get_host_cpu_features()
    if not host or not all(has.get(name) for name in ("avx512f", "amx-tile", "amx-bf16")):
        return False
    return ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST, TILES) == 0


def _call(builder, name, *args):
    kind = ir.FunctionType(ir.VoidType(), [arg.type for arg in args])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}")
    builder.call(function, args)


@intrinsic
def configure(typingctx, at):
    """Configure the AMX tiles of this thread by the CONFIG at an address."""
    def codegen(context, builder, signature, args):
        _call(builder, "ldtilecfg", builder.inttoptr(args[0], BYTES))
        return context.get_dummy_value()

    return types.void(at), codegen


@intrinsic
def release(typingctx):
    """Release the AMX tiles of this thread, so that a context switch need not save them."""
    def codegen(context, builder, signature, args):
        _call(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def tiles_product(typingctx, x, x_bytes, w, w_bytes, depth, out, out_bytes, count, resume):
    """Multiply rows x by w; write to `out` (float32), or add to it.

    x is (SIDE, depth DEEP), and w is stored as pairs of rows. x, w and out are
    addresses of rows that lie x_bytes, w_bytes and out_bytes apart. `count` is a tuple
    with one element for each tile of columns. If the tuple `resume` is not empty, the
    product is added to `out`.
    """
    signature = types.void(x, x_bytes, w, w_bytes, depth, out, out_bytes, count, resume)
    sums = range(count.count)
    left, right = MOST, range(MOST + 1, 8)

    def codegen(context, builder, signature, args):
        x, x_bytes, w, w_bytes, depth, out, out_bytes = args[:7]

        def place(start, offset):
            return builder.inttoptr(builder.add(start, offset), BYTES)

        # begin with zeros, or with what is in out
        for tile in sums:
            if resume.count:
                _call(builder, "tileloadd64", I8(tile), place(out, I64(64 * tile)), out_bytes)
            else:
                _call(builder, "tilezero", I8(tile))

        # add products
        with cgutils.for_range(builder, depth, intp=I64) as loop:
            at = builder.mul(loop.index, I64(64))
            _call(builder, "tileloadd64", I8(left), place(x, at), x_bytes)
            rows = builder.mul(builder.mul(loop.index, I64(SIDE)), w_bytes)
            for tile in sums:
                other = I8(right[tile % len(right)])
                at = builder.add(rows, I64(64 * tile))
                _call(builder, "tileloadd64", other, place(w, at), w_bytes)
                _call(builder, "tdpbf16ps", I8(tile), I8(left), other)

        # store
        for tile in sums:
            _call(builder, "tilestored64", I8(tile), place(out, I64(64 * tile)), out_bytes)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def write_rows(typingctx, sums, sums_bytes, count, out, out_bytes, width, mask, mask_bytes,
               num_bytes, shape):
    """Write `count` rows of float32 sums to `out`, in 16 bits if the shape says so.

    `mask` is the address of the keep bits of the first row, or 0 to keep all. Rows of
    bits lie `mask_bytes` apart. Bytes from `num_bytes` on are not read.
    """
    signature = types.void(sums, sums_bytes, count, out, out_bytes, width, mask, mask_bytes,
                           num_bytes, shape)
    made_for = RowShape(*(part.count for part in shape))

    def codegen(context, builder, signature, args):
        sums, sums_bytes, count, out, out_bytes, width, mask, mask_bytes, num_bytes = args[:9]
        real = ir.FloatType()
        emit = RowEmitter(builder, real, 4, made_for, width)
        masked = builder.icmp_unsigned("!=", mask, I64(0))
        with cgutils.for_range(builder, count, intp=I64) as loop:
            # address of a row
            def row(start, apart, kind, r=loop.index):
                at = builder.add(start, builder.mul(r, apart))
                return builder.inttoptr(at, kind.as_pointer())

            source = row(sums, sums_bytes, real)
            target = row(out, out_bytes, I16 if made_for.narrow_out else real)

            # apply the mask and store
            for piece in emit.pieces:
                number = cgutils.alloca_once_value(builder, emit.load(source, piece, False))
                with builder.if_then(masked):
                    bits = emit.keep_of(row(mask, mask_bytes, I8), piece, num_bytes)
                    keep = builder.bitcast(bits, ir.VectorType(I1, piece.lanes))
                    kept = builder.select(keep, builder.load(number), emit.zeros(piece))
                    builder.store(kept, number)
                emit.store(builder.load(number), target, piece, made_for.narrow_out)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def transpose_pairs(typingctx, x, x_bytes, out, out_bytes):
    """Transpose SIDE columns of DEEP rows of 16-bit numbers.

    x and out are addresses of rows that lie x_bytes and out_bytes apart.
    """
    signature = types.void(x, x_bytes, out, out_bytes)
    words = ir.VectorType(I32, SIDE)
    halves = ir.VectorType(I16, SIDE)
    places = ir.VectorType(I32, SIDE)

    def codegen(context, builder, signature, args):
        x, x_bytes, out, out_bytes = args

        def load(r):
            at = builder.inttoptr(builder.add(x, builder.mul(I64(r), x_bytes)),
                                  halves.as_pointer())
            return builder.zext(builder.load(at, align=2), words)

        # pairs of rows become rows of 32-bit words
        shift = ir.Constant(words, [16] * SIDE)
        rows = [builder.or_(load(2 * p), builder.shl(load(2 * p + 1), shift))
                for p in range(SIDE)]

        # transpose them in log2(SIDE) steps
        apart = SIDE // 2
        while apart:  # swap the off-diagonal blocks of size `apart` in each pair of rows
            for r in range(SIDE):
                if not r & apart:
                    one, other = rows[r], rows[r + apart]
                    low = [c if not c & apart else SIDE + c - apart for c in range(SIDE)]
                    high = [c + apart if not c & apart else SIDE + c for c in range(SIDE)]
                    rows[r], rows[r + apart] = (
                        builder.shuffle_vector(one, other, ir.Constant(places, order))
                        for order in (low, high))
            apart //= 2

        # store
        for c, row in enumerate(rows):
            at = builder.inttoptr(builder.add(out, builder.mul(I64(c), out_bytes)),
                                  words.as_pointer())
            builder.store(row, at, align=4)
        return context.get_dummy_value()

    return signature, codegen

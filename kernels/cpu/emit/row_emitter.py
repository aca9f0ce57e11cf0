"""Emitter of LLVM code for the vectors of a row: loads, stores, prefetches and loops."""
from typing import NamedTuple

from llvmlite import ir
from numba.core import cgutils

from hpgcn.kernels.cpu.emit.bfloat16 import narrowed, widened
from hpgcn.kernels.cpu.emit.emitter import BYTES, I32, I64, Emitter, splat, vector_bytes

TOGETHER = 32  # nonzeros that are added to one group of vectors of a row before the next group


class Piece(NamedTuple):
    """A vector of a row: its first column and its lanes; the last one may be masked."""

    first: int
    lanes: int
    masked: bool


class RowEmitter(Emitter):
    """Emitter of code for the vectors of a row, whose numbers may be stored in 16 bits."""

    def __init__(self, builder, real, itemsize, shape, width):
        super().__init__(builder, real, itemsize, shape.vectors, shape.lanes)
        self.shape = shape
        last = shape.vectors - 1
        self.pieces = [Piece(v * shape.lanes, shape.lanes, v == last and shape.masked > 0)
                       for v in range(shape.vectors)]
        first = shape.vectors * shape.lanes
        lanes = shape.lanes // 2
        while lanes:
            if shape.tail & lanes:
                self.pieces.append(Piece(first, lanes, False))
                first += lanes
            lanes //= 2
        self.columns = first
        self.exists = None
        if shape.masked:
            kind = ir.VectorType(I64, shape.lanes)
            numbers = ir.Constant(kind, list(range(last * shape.lanes, first)))
            self.exists = builder.icmp_signed("<", numbers, splat(builder, width, shape.lanes))

    def vector_of(self, piece):
        return ir.VectorType(self.real, piece.lanes)

    def zeros(self, piece):
        return ir.Constant(self.vector_of(piece), [0.0] * piece.lanes)

    def _at(self, row, piece, kind):
        at = self.builder.gep(row, [I64(piece.first)])
        return self.builder.bitcast(at, kind.as_pointer())

    def load(self, row, piece, narrow):
        """Load a vector of a row, with 0 in missing lanes; `narrow` converts it from 16 bits."""
        if narrow:
            return widened(self.builder, self.load_bits(row, piece, 16))
        at = self._at(row, piece, self.vector_of(piece))
        if not piece.masked:
            return self.builder.load(at, align=self.itemsize)
        name = f"llvm.masked.load.v{piece.lanes}f{8 * self.itemsize}.p0"
        return self.call(name, self.vector_of(piece), at, I32(self.itemsize), self.exists,
                         self.zeros(piece))

    def load_bits(self, row, piece, bits):
        """Load a vector of integers of `bits` bits, with 0 in missing lanes."""
        kind = ir.VectorType(ir.IntType(bits), piece.lanes)
        at = self._at(row, piece, kind)
        if not piece.masked:
            return self.builder.load(at, align=bits // 8)
        zero = ir.Constant(kind, [0] * piece.lanes)
        return self.call(f"llvm.masked.load.v{piece.lanes}i{bits}.p0", kind, at, I32(bits // 8),
                         self.exists, zero)

    def store(self, value, row, piece, narrow):
        """Store the existing lanes of a vector in a row; `narrow` rounds them to 16 bits."""
        if narrow:
            self._put(narrowed(self.builder, value), row, piece, "i16", 2)
        else:
            self._put(value, row, piece, f"f{8 * self.itemsize}", self.itemsize)

    def store_numbers(self, value, row, piece):
        """Store a vector of 64-bit integers in a row of such integers."""
        self._put(value, row, piece, "i64", 8)

    def _put(self, value, row, piece, kind, size):
        """Store a vector whose elements have `size` bytes and the LLVM type `kind`."""
        at = self._at(row, piece, value.type)
        if self.shape.streamed:
            self._stream(value, at, piece.lanes, size)
        elif piece.masked:
            name = f"llvm.masked.store.v{piece.lanes}{kind}.p0"
            self.call(name, ir.VoidType(), value, at, I32(size), self.exists)
        else:
            self.builder.store(value, at, align=size)

    def _stream(self, value, at, lanes, size):
        """Store a vector past the cache, in aligned units."""
        builder = self.builder
        unit = min(lanes * size, 16 * self.shape.streamed)
        count = unit // size
        past = builder.module.add_metadata([I32(1)])
        begin = builder.bitcast(at, value.type.element.as_pointer())
        for first in range(0, lanes, count):
            places = ir.Constant(ir.VectorType(I32, count), list(range(first, first + count)))
            part = builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), places)
            place = builder.bitcast(builder.gep(begin, [I64(first)]), part.type.as_pointer())
            builder.store(part, place, align=unit).set_metadata("nontemporal", past)

    def fma(self, weight, part, total, piece):
        name = f"llvm.fmuladd.v{piece.lanes}f{8 * self.itemsize}"
        return self.call(name, self.vector_of(piece), weight, part, total)

    def prefetch(self, row, lines, cache):
        """Prefetch `lines` cache lines of a row, but none past its last byte."""
        start = self.builder.bitcast(row, BYTES)
        itemsize = 2 if self.shape.narrow_x else self.itemsize
        size = self.columns * itemsize
        for line in range(lines):
            at = self.builder.gep(start, [I64(min(64 * line, size - itemsize))])
            self.call("llvm.prefetch.p0", ir.VoidType(), at, I32(0), I32(cache), I32(1))

    def moved(self, slots, skipped):
        """Return variables with the pieces of a row that begins `skipped` bytes into `slots`.

        `slots` are whole vectors.
        """
        builder = self.builder
        count = len(slots) * self.shape.lanes
        memory = cgutils.alloca_once(builder, ir.ArrayType(self.real, count))
        memory.align = vector_bytes()
        begin = builder.bitcast(memory, self.real.as_pointer())
        for v, slot in enumerate(slots):
            total = builder.load(slot)
            at = builder.gep(begin, [I64(v * self.shape.lanes)])
            builder.store(total, builder.bitcast(at, total.type.as_pointer()))
        row = builder.gep(builder.bitcast(memory, BYTES), [skipped])
        row = builder.bitcast(row, self.real.as_pointer())
        results = []
        for piece in self.pieces:
            slot = cgutils.alloca_once(builder, self.vector_of(piece))
            builder.store(self.load(row, piece, False), slot)
            results.append(slot)
        return results

    def for_nonzeros(self, start, stop, count, held, ask, add):
        """Emit loops over nonzeros k that call `ask(k)`, then `add(k, part)` for slices of vectors.

        `ask` prefetches. If there are more than `held` vectors, `held` are summed at a
        time, over TOGETHER nonzeros. So whole rows are read together, and their sums
        need not all be in registers.
        """
        builder = self.builder
        parts = -(-count // held)
        if parts <= 1:
            with cgutils.for_range_slice(builder, start, stop, I64(1), intp=I64) as (k, _):
                ask(k)
                add(k, slice(None))
            return
        together = -(-count // parts)
        with cgutils.for_range_slice(builder, start, stop, I64(TOGETHER), intp=I64) as (first, _):
            beyond = builder.add(first, I64(TOGETHER))
            beyond = builder.select(builder.icmp_signed("<", beyond, stop), beyond, stop)
            for piece in range(0, count, together):
                with cgutils.for_range_slice(builder, first, beyond, I64(1), intp=I64) as (k, _):
                    if piece == 0:
                        ask(k)
                    add(k, slice(piece, piece + together))

    def keep_of(self, mask, piece, num_bytes):
        """Return the keep bits of a piece, as by `keep`."""
        return self.keep_from(mask, piece.first, piece.lanes, piece.masked, num_bytes)

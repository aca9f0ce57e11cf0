"""Vector code of graph attention, emitted through LLVM: scores, weights and sums.

A tile is some entries of one row. Its K scores an entry lie in vectors over heads,
which buffers pad to whole vectors. Its sums are over columns, and each head has its own
weight. Numbers of vectors and lanes are lengths of tuples, as in `row_product`.
"""
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpgcn.kernels.cpu.emit.emitter import BYTES, I1, I32, I64, Emitter, splat, vector_bytes

MAX_VECTORS = 16  # accumulators of a pass with AVX-512; half of them without
LN2 = {4: (0.693359375, -2.12194440e-4),
       8: (6.93147180369123816490e-01, 1.90821492927058770002e-10)}
# Coefficients of (exp(r) - 1 - r) / r^2, highest power first: Cephes (Moshier 1992), and Taylor to
# r^13
POWERS = {4: (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
              5.0000001201e-1)}
POWERS[8] = (1 / 6227020800, 1 / 479001600, 1 / 39916800, 1 / 3628800, 1 / 362880, 1 / 40320,
             1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5)
LIMITS = {4: (-87.3, 88.3), 8: (-708.0, 709.0)}  # exp of less is 0, of more infinity
FRACTION = {4: 23, 8: 52}  # bits of a number behind the binary point
BIAS = {4: 127, 8: 1023}


def head_shape(heads, itemsize):
    """Return the vectors and lanes for one number a head, as lengths of tuples."""
    lanes = _lanes(heads, itemsize)
    return (0,) * -(-heads // lanes), (0,) * lanes


def column_shape(heads, width, itemsize, sides):
    """Return the shape of a pass over `width` columns of each head, as tuple lengths.

    The lengths are: sums of each column (1 or 2), heads, vectors of each head, lanes,
    cache lines of x, and 2 if all vectors are full, else 1. A pass takes some heads
    whole, or some columns of a wide head.
    """
    lanes = _lanes(width, itemsize)
    most = (MAX_VECTORS if vector_bytes() == 64 else MAX_VECTORS // 2) // sides
    vectors = max(1, -(-width // lanes))
    group = 1
    if vectors > most:
        vectors = -(-vectors // -(-vectors // most))
    else:
        group = max(each for each in range(1, most // vectors + 1) if heads % each == 0)
    full = width % (vectors * lanes) == 0 and width > 0
    lines = -(-((group - 1) * width + vectors * lanes) * itemsize // 64) + 1
    return tuple((0,) * length for length in (sides, group, vectors, lanes, lines, 1 + full))


def _lanes(width, itemsize):
    """Return the lanes of the narrowest vector (>= 128 bits) for `width` numbers."""
    lanes = 16 // itemsize
    while lanes < width and 2 * lanes * itemsize <= vector_bytes():
        lanes *= 2
    return lanes


class Tile(Emitter):
    """Emitter of code for vectors whose lanes past `width` may be missing."""

    def __init__(self, context, builder, kind, vectors, lanes, width, full=False):
        real = context.get_value_type(kind)
        super().__init__(builder, real, kind.bitwidth // 8, vectors, lanes)
        self.pointer = real.as_pointer()
        self.exists = None
        if not full:
            kind = ir.VectorType(I64, lanes)
            self.exists = [builder.icmp_signed(
                "<", ir.Constant(kind, list(range(v * lanes, (v + 1) * lanes))),
                splat(builder, width, lanes)) for v in range(vectors)]

    def pointer_to(self, address):
        return self.builder.inttoptr(address, self.pointer)

    def number(self, value):
        return ir.Constant(self.vector, [value] * self.lanes)

    def get(self, row, v, whole=False):
        """Load vector v of a row, with 0 in missing lanes.

        With `whole` (a padded buffer) no lane is missing.
        """
        at = self.place(row, v)
        if whole or self.exists is None:
            return self.builder.load(at, align=self.itemsize)
        return self.call("llvm.masked.load.*.p0", self.vector, at, I32(self.itemsize),
                         self.exists[v], self.zero)

    def put(self, value, row, v, whole=False):
        at = self.place(row, v)
        if whole or self.exists is None:
            self.builder.store(value, at, align=self.itemsize)
        else:
            self.call("llvm.masked.store.*.p0", ir.VoidType(), value, at, I32(self.itemsize),
                      self.exists[v])

    def fma(self, a, b, c):
        return self.call("llvm.fmuladd.*", self.vector, a, b, c)

    def choose(self, condition, one, other):
        return self.builder.select(condition, one, other)

    def leaky(self, z, slope):
        """Return LeakyReLU(z), and the mask z > 0."""
        above = self.builder.fcmp_ordered(">", z, self.zero)
        return self.choose(above, z, self.builder.fmul(z, slope)), above

    def exp(self, x):
        """Return exp(x) to about 1 ulp: 2^k (1 + r + r^2 p(r)) for x = k ln 2 + r.

        k is rounded by adding 1.5 times a power of two, whose low bits are then k. NaN
        stays NaN.
        """
        builder, size = self.builder, self.itemsize
        bits = ir.IntType(8 * size)
        magic = self.number(1.5 * 2.0 ** FRACTION[size])
        rounded = self.fma(x, self.number(1.4426950408889634), magic)
        k = builder.fsub(rounded, magic)
        r = self.fma(k, self.number(-LN2[size][0]), x)
        r = self.fma(k, self.number(-LN2[size][1]), r)
        p = self.number(POWERS[size][0])
        for power in POWERS[size][1:]:
            p = self.fma(p, r, self.number(power))
        p = builder.fadd(self.fma(p, builder.fmul(r, r), r), self.number(1.0))
        kind = ir.VectorType(bits, self.lanes)
        shift, bias = (ir.Constant(kind, [value] * self.lanes)
                       for value in (FRACTION[size], BIAS[size] << FRACTION[size]))
        power = builder.add(builder.shl(builder.bitcast(rounded, kind), shift), bias)
        y = builder.fmul(p, builder.bitcast(power, self.vector))
        low, high = LIMITS[size]
        y = self.choose(builder.fcmp_ordered("<", x, self.number(low)), self.zero, y)
        return self.choose(builder.fcmp_ordered(">", x, self.number(high)),
                           self.number(float("inf")), y)

    def kept(self, weight, bits, t, v, num_bytes, scale):
        """Return the weight of entry t times its keep factor; without `bits` all are kept."""
        builder = self.builder
        result = cgutils.alloca_once_value(builder, weight)
        with builder.if_then(builder.icmp_unsigned("!=", bits, I64(0))):
            row = builder.inttoptr(builder.add(bits, builder.mul(t, num_bytes)), BYTES)
            keep = builder.bitcast(self.keep(row, v, num_bytes), ir.VectorType(I1, self.lanes))
            scaled = builder.fmul(weight, splat(builder, scale, self.lanes))
            builder.store(self.choose(keep, scaled, self.zero), result)
        return builder.load(result)

    def variables(self, row=None):
        """Return a register for each vector, with numbers of a buffer or zeros."""
        return [cgutils.alloca_once_value(
            self.builder, self.zero if row is None else self.get(row, v, True))
            for v in range(self.vectors)]

    def column(self, columns, k):
        index = self.builder.load(self.builder.gep(columns, [k]))
        return self.builder.sext(index, I64) if index.type.width < 64 else index

    def in_sight(self, start, count, ahead, last):
        """Return `ahead`, the entries to prefetch in advance, or 0 at the end of the matrix.

        There, tiles prefetch their own entries: nothing past `columns` may be read.
        """
        stop = self.builder.add(self.builder.add(start, count), ahead)
        return self.builder.select(self.builder.icmp_signed("<=", stop, last), ahead, I64(0))

    def ask(self, x, ldx, columns, k, lines):
        """Prefetch the cache lines of the row of x that entry k reads."""
        j = self.column(columns, k)
        begin = self.builder.bitcast(self.builder.gep(x, [self.builder.mul(j, ldx)]), BYTES)
        for line in range(lines):
            at = self.builder.gep(begin, [I64(64 * line)])
            self.call("llvm.prefetch.p0", ir.VoidType(), at, I32(0), I32(3), I32(1))

    def loop(self, count):
        return cgutils.for_range(self.builder, count, intp=I64)


@intrinsic
def tile_scores(typingctx, columns, start, count, ahead, last, fixed, moving, heads, slope, scores,
                top, factors, vectors, lanes):
    """Compute a tile's scores, LeakyReLU(fixed + moving[columns[start + t]]).

    Rows of moving are prefetched like those of x in `tile_sums`. All arguments are
    addresses: fixed (K), moving (n, K), and the padded buffers scores (count, KP), top
    (KP) and factors (KP). top is the running maximum. factors gets exp(top before -
    top).
    """
    signature = types.void(columns, start, count, ahead, last, fixed, moving, heads, slope, scores,
                           top, factors, vectors, lanes)

    def codegen(context, builder, signature, args):
        # operands
        columns, start, count, ahead, last, fixed, moving, heads, slope = args[:9]
        scores, top, factors = args[9:12]
        tile = Tile(context, builder, signature.args[8], vectors.count, lanes.count, heads)
        fixed, moving, scores, top, factors = map(
            tile.pointer_to, (fixed, moving, scores, top, factors))
        slope = splat(builder, slope, tile.lanes)
        padded = I64(tile.vectors * tile.lanes)

        # what does not change from entry to entry
        mine = [tile.get(fixed, v) for v in range(tile.vectors)]
        largest = tile.variables(top)
        ahead = tile.in_sight(start, count, ahead, last)

        # scores of the entries, and their maximum
        with tile.loop(count) as loop:
            tile.ask(moving, heads, columns, builder.add(builder.add(start, loop.index), ahead), 1)
            j = tile.column(columns, builder.add(start, loop.index))
            row = builder.gep(moving, [builder.mul(j, heads)])
            target = builder.gep(scores, [builder.mul(loop.index, padded)])
            for v in range(tile.vectors):
                score, _ = tile.leaky(builder.fadd(mine[v], tile.get(row, v)), slope)
                tile.put(score, target, v, True)
                before = builder.load(largest[v])
                larger = builder.fcmp_ordered(">", score, before)
                builder.store(tile.choose(larger, score, before), largest[v])

        # factors that rescale earlier sums to the new maximum
        for v in range(tile.vectors):
            now = builder.load(largest[v])
            tile.put(tile.exp(builder.fsub(tile.get(top, v, True), now)), factors, v, True)
            tile.put(now, top, v, True)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def tile_weights(typingctx, count, scores, top, factors, total, share, bits, num_bytes, scale,
                 above, vectors, lanes):
    """Replace the scores s of a tile by their weights, keep * exp(s - top).

    total and share (KP) are multiplied by the factors. Then total gets the sum of exp(s
    - top) over all entries, and share the sum over those with s > 0. `above`, a buffer
    like scores, gets the weights of entries with s > 0, and 0 for all others.
    """
    signature = types.void(count, scores, top, factors, total, share, bits, num_bytes, scale, above,
                           vectors, lanes)

    def codegen(context, builder, signature, args):
        # operands
        count, scores, top, factors, total, share, bits, num_bytes, scale, above = args[:10]
        tile = Tile(context, builder, signature.args[8], vectors.count, lanes.count, I64(0), True)
        wanted = builder.icmp_unsigned("!=", above, I64(0))
        scores, top, factors, total, share, above = map(
            tile.pointer_to, (scores, top, factors, total, share, above))
        padded = I64(tile.vectors * tile.lanes)

        # rescale earlier sums
        highest = [tile.get(top, v) for v in range(tile.vectors)]
        sums, shares = tile.variables(total), tile.variables(share)
        for v in range(tile.vectors):
            factor = tile.get(factors, v)
            for slot in (sums[v], shares[v]):
                builder.store(builder.fmul(builder.load(slot), factor), slot)

        # weights of the entries, and their sums
        with tile.loop(count) as loop:
            at = builder.mul(loop.index, padded)
            row, over = builder.gep(scores, [at]), builder.gep(above, [at])
            for v in range(tile.vectors):
                score = tile.get(row, v)
                weight = tile.exp(builder.fsub(score, highest[v]))
                positive = builder.fcmp_ordered(">", score, tile.zero)
                builder.store(builder.fadd(builder.load(sums[v]), weight), sums[v])
                part = tile.choose(positive, weight, tile.zero)
                builder.store(builder.fadd(builder.load(shares[v]), part), shares[v])
                weight = tile.kept(weight, bits, loop.index, v, num_bytes, scale)
                tile.put(weight, row, v)
                with builder.if_then(wanted):
                    tile.put(tile.choose(positive, weight, tile.zero), over, v)

        # store the sums
        for v in range(tile.vectors):
            tile.put(builder.load(sums[v]), total, v)
            tile.put(builder.load(shares[v]), share, v)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def tile_alphas(typingctx, columns, start, count, ahead, last, fixed, moving, lse, dot, stride,
                heads, slope, bits, num_bytes, scale, weights, above, total, vectors, lanes):
    """Compute a tile's weights of A^T, keep exp(LeakyReLU(fixed + moving[i]) - lse[i]).

    i = columns[start + t], and rows of moving, lse and dot lie `stride` apart. `above`
    gets the weights of entries with fixed + moving[i] > 0. The sum of alpha LeakyReLU'
    dot[i] is added to total (KP).
    """
    signature = types.void(columns, start, count, ahead, last, fixed, moving, lse, dot, stride,
                           heads, slope, bits, num_bytes, scale, weights, above, total, vectors,
                           lanes)

    def codegen(context, builder, signature, args):
        # operands
        columns, start, count, ahead, last, fixed, moving, lse, dot, stride, heads = args[:11]
        slope = args[11]
        bits, num_bytes, scale = args[12:15]
        tile = Tile(context, builder, signature.args[11], vectors.count, lanes.count, heads)
        fixed, moving, lse, dot, weights, above, total = map(
            tile.pointer_to, (fixed, moving, lse, dot, *args[15:18]))
        slope = splat(builder, slope, tile.lanes)
        padded = I64(tile.vectors * tile.lanes)

        # what does not change from entry to entry
        mine = [tile.get(fixed, v) for v in range(tile.vectors)]
        sums = tile.variables(total)
        ahead = tile.in_sight(start, count, ahead, last)
        with tile.loop(count) as loop:
            # prefetch a later entry
            after = builder.add(builder.add(start, loop.index), ahead)
            for base in (moving, lse, dot):
                tile.ask(base, stride, columns, after, 1)
            i = tile.column(columns, builder.add(start, loop.index))
            of_row = builder.mul(i, stride)
            at = builder.mul(loop.index, padded)
            for v in range(tile.vectors):
                # alpha, and its part of the gradient of the score
                z, shift, dots = (tile.get(builder.gep(base, [of_row]), v)
                                  for base in (moving, lse, dot))
                score, positive = tile.leaky(builder.fadd(mine[v], z), slope)
                alpha = tile.exp(builder.fsub(score, shift))
                part = builder.fmul(alpha, dots)
                part = tile.choose(positive, part, builder.fmul(part, slope))
                builder.store(builder.fadd(builder.load(sums[v]), part), sums[v])

                # weights with dropout
                weight = tile.kept(alpha, bits, loop.index, v, num_bytes, scale)
                tile.put(weight, builder.gep(weights, [at]), v, True)
                tile.put(tile.choose(positive, weight, tile.zero), builder.gep(above, [at]), v,
                         True)

        # store the sum
        for v in range(tile.vectors):
            tile.put(builder.load(sums[v]), total, v, True)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def tile_sums(typingctx, columns, start, count, ahead, last, weights, padded, x, ldx, stride, width,
              out, other_weights, other_out, factors, zero, sides, group, vectors, lanes, lines,
              full):
    """Add a tile to sums over columns: out = factor out + sum of weight[t] x[columns[start + t]].

    With two `sides`, the same is done for second weights and sums. A pass has `group`
    heads, whose columns lie `stride` numbers apart, and `width` columns of each.
    Addresses: weights (count, padded), x and out at the first column of the pass,
    factors (group). Rows of x are prefetched `ahead` entries before use.
    """
    signature = types.void(columns, start, count, ahead, last, weights, padded, x, ldx, stride,
                           width, out, other_weights, other_out, factors, zero, sides, group,
                           vectors, lanes, lines, full)
    heads, count_lines = group.count, lines.count

    def codegen(context, builder, signature, args):
        # operands
        columns, start, count, ahead, last, weights, padded, x, ldx, stride, width, out = args[:12]
        tile = Tile(context, builder, signature.args[15], vectors.count, lanes.count, width,
                    full.count == 2)
        x, factors = tile.pointer_to(x), tile.pointer_to(args[14])
        pairs = ((weights, out), args[12:14])[:sides.count]
        pairs = [tuple(map(tile.pointer_to, pair)) for pair in pairs]

        # begin with the earlier sums, rescaled
        begins = [builder.mul(I64(h), stride) for h in range(heads)]
        sums = []
        for h in range(heads):
            factor = splat(builder, builder.load(builder.gep(factors, [I64(h)])), tile.lanes)
            sums.append([[cgutils.alloca_once_value(builder, builder.fmul(
                factor, tile.get(builder.gep(out, [begins[h]]), v))) for v in range(tile.vectors)]
                for _, out in pairs])

        # add weighted rows of x
        ahead = tile.in_sight(start, count, ahead, last)
        with tile.loop(count) as loop:
            k = builder.add(start, loop.index)
            tile.ask(x, ldx, columns, builder.add(k, ahead), count_lines)
            row = builder.gep(x, [builder.mul(tile.column(columns, k), ldx)])
            at = builder.mul(loop.index, padded)
            for h in range(heads):
                weight = [splat(builder, builder.load(builder.gep(
                    weights, [builder.add(at, I64(h))])), tile.lanes) for weights, _ in pairs]
                of_head = builder.gep(row, [begins[h]])
                for v in range(tile.vectors):
                    part = tile.get(of_head, v)
                    for side in range(len(pairs)):
                        slot = sums[h][side][v]
                        builder.store(tile.fma(weight[side], part, builder.load(slot)), slot)

        # store the sums
        for h in range(heads):
            for side, (_, out) in enumerate(pairs):
                for v in range(tile.vectors):
                    tile.put(builder.load(sums[h][side][v]), builder.gep(out, [begins[h]]), v)
        return context.get_dummy_value()

    return signature, codegen

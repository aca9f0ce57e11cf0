"""Building blocks for vector code that is emitted through LLVM."""
import functools

from llvmlite import binding, ir
from numba.core import cgutils, config

from hpgcn.kernels.cpu.tuning import maker

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
BYTES = I8.as_pointer()
FIRST, SECOND, ONCE = 3, 2, 0  # caches of llvm.prefetch; ONCE is for data of a single use
AVX512 = {"skylake-avx512", "icelake-server", "sapphirerapids", "znver4", "znver5"}
AVX2 = {"haswell", "skylake", "znver1", "znver2", "znver3"}


def cpu_name():
    """Return LLVM's name of the CPU for which Numba compiles."""
    return config.CPU_NAME or binding.get_host_cpu_name()


@functools.cache
def vector_bytes():
    """Return the bytes of a vector register: 64 with AVX-512, 32 with AVX2, else 16."""
    name = config.CPU_NAME
    if name is None or name == "host":
        features = {feature for feature, has in binding.get_host_cpu_features().items() if has}
    else:
        features = set((config.CPU_FEATURES or "").replace("+", "").split(","))
    if name in AVX512 or "avx512f" in features:
        return 64
    return 32 if name in AVX2 or "avx2" in features else 16


@functools.cache
def has_dots():
    """Return whether CPU and Numba have dot products of bfloat16 pairs with float32 sums."""
    host = config.CPU_NAME in (None, "host")
    return host and vector_bytes() == 64 and bool(
        binding.get_host_cpu_features().get("avx512bf16"))


def uses_dots():
    """Return whether products use dot products; on Intel's cores two fma are as fast."""
    return has_dots() and maker() != "GenuineIntel"


class Bfloat(ir.Type):
    """The LLVM type bfloat, which llvmlite lacks."""

    def _to_string(self):
        return "bfloat"

    def __eq__(self, other):
        return isinstance(other, Bfloat)

    def __hash__(self):
        return hash(Bfloat)


def splat(builder, value, lanes):
    """Return a vector with one value in all lanes."""
    undefined = ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined)
    first = builder.insert_element(undefined, value, I32(0))
    places = ir.Constant(ir.VectorType(I32, lanes), [0] * lanes)
    return builder.shuffle_vector(first, undefined, places)


class Emitter:
    """Emitter of code for vectors of `lanes` numbers of one type."""

    def __init__(self, builder, real, itemsize, vectors, lanes):
        self.builder = builder
        self.real = real
        self.itemsize = itemsize
        self.vectors = vectors
        self.lanes = lanes
        self.vector = ir.VectorType(real, lanes)
        self.zero = ir.Constant(self.vector, [0.0] * lanes)

    def call(self, name, returns, *args):
        """Call an LLVM intrinsic; * in its name is replaced by the vector type."""
        name = name.replace("*", f"v{self.lanes}f{8 * self.itemsize}")
        kind = ir.FunctionType(returns, [arg.type for arg in args])
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, args)

    def place(self, row, v):
        """Return the address of vector v in a row."""
        at = self.builder.gep(row, [I64(v * self.lanes)])
        return self.builder.bitcast(at, self.vector.as_pointer())

    def keep(self, mask, v, num_bytes):
        """Return the keep bits of vector v, as an integer; no byte past `num_bytes` is read."""
        last = v + 1 == self.vectors
        return self.keep_from(mask, v * self.lanes, self.lanes, last, num_bytes)

    def keep_from(self, mask, column, lanes, masked, num_bytes):
        """Return the keep bits of `lanes` columns from `column` on, as an integer.

        With `masked`, the last bytes may be missing.
        """
        builder = self.builder
        first = column // 8
        count = max(1, lanes // 8)
        word = ir.IntType(8 * count)
        if not masked or count == 1:
            at = builder.gep(mask, [I64(first)])
            bits = builder.load(builder.bitcast(at, word.as_pointer()), align=1)
        else:  # bytes of the last vector may be missing
            bits = word(0)
            for i in range(count):
                at = I64(first + i)
                exists = builder.icmp_signed("<", at, num_bytes)
                at = builder.select(exists, at, I64(0))  # any byte
                byte = builder.zext(builder.load(builder.gep(mask, [at])), word)
                bits = builder.or_(bits, builder.shl(byte, word(8 * i)))
        if lanes < 8:
            shifted = builder.lshr(bits, word(column % 8))
            bits = builder.trunc(shifted, ir.IntType(lanes))
        return bits

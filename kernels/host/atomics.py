"""Intrinsics of compiled code: atomic words in memory, clock, futex, and calls of trampolines.

Words are int64 at addresses. A futex is a word whose waiting threads sleep in the system
(Linux); elsewhere they sleep for a fixed time.
"""
import platform
import sys

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# number of the system call, if this system has it
FUTEX = {"x86_64": 202, "aarch64": 98, "ppc64le": 221, "riscv64": 98}.get(platform.machine(), 0)
FUTEX *= sys.platform == "linux"
WAIT, WAKE = 128, 129  # operations on a futex of one process
NAP = 50  # microseconds between two looks at a word without futexes
WORD = ir.IntType(64)
HALF = ir.IntType(32)
BYTES = ir.IntType(8).as_pointer()


def _pointer(builder, address):
    return builder.inttoptr(address, WORD.as_pointer())


@intrinsic
def add(typingctx, address, value):
    """Add a value to a word; return the old word."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def load(typingctx, address):
    """Return a word."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_pointer(builder, args[0]), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store(typingctx, address, value):
    """Set a word."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], _pointer(builder, args[0]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def exchange(typingctx, address, expected, value):
    """Set a word that is still `expected` to a value; return the old word."""

    def codegen(context, builder, signature, args):
        pair = builder.cmpxchg(_pointer(builder, args[0]), args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 0)

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def now(typingctx):
    """Return nanoseconds of a clock that never goes back."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(HALF, [HALF, WORD.as_pointer()])
        function = _external(builder, kind, "clock_gettime")
        time = cgutils.alloca_once(builder, WORD, 2)  # once, even within a loop
        builder.call(function, [HALF(6 if sys.platform == "darwin" else 1), time])
        seconds, rest = (builder.load(builder.gep(time, [HALF(k)])) for k in (0, 1))
        return builder.add(builder.mul(seconds, WORD(10**9)), rest)

    return types.int64(), codegen


@intrinsic
def sleep_while(typingctx, address, value):
    """Sleep until another thread wakes this word's threads, unless it is no longer `value`.

    The thread may also wake for no reason.
    """

    def codegen(context, builder, signature, args):
        if FUTEX:
            _system_call(builder, args[0], WAIT, builder.trunc(args[1], HALF))
        else:
            kind = ir.FunctionType(HALF, [HALF])
            builder.call(_external(builder, kind, "usleep"), [HALF(NAP)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def wake(typingctx, address, count):
    """Let threads that sleep on a word continue, `count` or fewer."""

    def codegen(context, builder, signature, args):
        if FUTEX:
            _system_call(builder, args[0], WAKE, builder.trunc(args[1], HALF))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def run(typingctx, trampoline, words, counters):
    """Call a trampoline of hpgcn.kernels.host.trampolines; return 0 if it succeeded."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(WORD, [WORD, WORD])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def relax(typingctx):
    """Mark for the core that this thread waits in a loop."""
    hint, numbers = {"x86_64": ("llvm.x86.sse2.pause", ()),
                     "aarch64": ("llvm.aarch64.hint", (HALF(1),))}.get(platform.machine(), ("", ()))

    def codegen(context, builder, signature, args):
        if hint:
            kind = ir.FunctionType(ir.VoidType(), [each.type for each in numbers])
            builder.call(_external(builder, kind, hint), numbers)
        return context.get_dummy_value()

    return types.void(), codegen


def _external(builder, kind, name):
    module = builder.module
    return module.globals.get(name) or ir.Function(module, kind, name)


def _system_call(builder, address, operation, number):
    """Call futex(address, operation, number, no timeout)."""
    kind = ir.FunctionType(WORD, [WORD], var_arg=True)
    number = builder.zext(number, WORD)
    builder.call(_external(builder, kind, "syscall"),
                 [WORD(FUTEX), address, WORD(operation), number, WORD(0)])

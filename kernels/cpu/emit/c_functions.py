"""C functions that are compiled for one shape each, and called by their address.

Numba takes a second or more to compile a loop over chunks of rows, and the code of a
row is needed for many shapes. So the loop is compiled once, and calls the code of a
range of rows by its address. That code compiles in a fifth of a second.
"""
import inspect

from llvmlite import ir
from numba import types
from numba.core import event
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from hpgcn.kernels.host.jit import compile_c_function


class CompiledFunction(CFunc):
    """A C function that triggers Numba's compile event like other kernels."""

    def _compile_uncached(self):
        details = {"dispatcher": self._compiler, "args": self._sig.args,
                   "return_type": self._sig.return_type}
        with event.trigger_event("numba:compile", data=details):
            return super()._compile_uncached()


def c_function(**kinds):
    """Return a decorator that compiles a function immediately.

    `kinds` are the Numba types of arguments; other arguments are integers of 64 bits.
    The function returns nothing. Variables of enclosing functions become constants.
    Keep the result for as long as its `address` is called.
    """
    def decorate(function):
        names = inspect.signature(function).parameters
        arguments = [kinds.get(name, types.int64) for name in names]
        return compile_c_function(function, types.void(*arguments), CompiledFunction,
                                  nopython=True, nogil=True, error_model="numpy")

    return decorate


@intrinsic
def call(typingctx, address, first, rest):
    """Call the C function at an address with the numbers of two tuples; it returns nothing.

    The numbers are floats, or integers of 64 bits, such as addresses.
    """
    signature = types.void(address, first, rest)

    def codegen(context, builder, signature, args):
        numbers = [builder.extract_value(each, k)
                   for each, kind in zip(args[1:], (first, rest)) for k in range(len(kind))]
        kind = ir.FunctionType(ir.VoidType(), [number.type for number in numbers])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), numbers)
        return context.get_dummy_value()

    return signature, codegen

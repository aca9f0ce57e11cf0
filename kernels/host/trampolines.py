"""Call compiled kernels by addresses: arguments are words in memory, read by trampolines.

Each kernel of Numba has a machine signature of its own. A trampoline is a small function
whose signature is the same for all of them. It reads the address of a kernel and its
arguments, words of 64 bits, and calls the kernel.
"""
import functools
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba._dispatcher import compute_fingerprint
from numba.core.registry import cpu_target

from hpgcn.kernels.host.pointers import pointer_of

WORD = ir.IntType(64)
WORDS = 24  # size of the array of counters of a call: see hpgcn.kernels.host.team
EVERY_BIT = (1 << 64) - 1
COUNTERS = types.Array(types.int64, 1, "C")


def words_of(kernel: Callable, arguments: tuple) -> tuple[list[int], int, list, list]:
    """Return the words of a call, and the address of the trampoline that reads them.

    Then follow the places of the arguments among the words, and their writers.

    The first argument of a kernel is missing in `arguments`: it is the array of
    counters, whose address is the last argument of the trampoline. The words are valid
    for as long as the arrays in `arguments` exist.
    """
    prints = tuple(map(compute_fingerprint, arguments))  # faster than Numba's types
    found = _found.get((kernel, prints))
    if found is None:
        kinds = tuple(map(kernel.typeof_pyval, arguments))
        found = _found[kernel, prints] = (*_addresses(kernel, kinds), [*map(_writer, kinds)])
    trampoline, address, writers = found
    words, starts = [address], []
    for write, value in zip(writers, arguments):
        starts.append(len(words))
        words += write(value)
    return words, trampoline, starts, writers


_found: dict = {}  # what `words_of` found by kernel and fingerprints of arguments


def _addresses(kernel: Callable, kinds: tuple) -> tuple[int, int]:
    """Return the addresses of the trampoline and of the kernel for arguments of some types."""
    signature = COUNTERS, *kinds
    if signature not in kernel.overloads:
        kernel.compile(signature)
    compiled = kernel.overloads[signature]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    flat = cpu_target.target_context.get_arg_packer(kinds).argument_types
    return _trampoline(tuple(map(str, flat)))[0], address


def _writer(kind: types.Type) -> Callable:
    """Return a function from an argument to its words, in the order in which Numba passes them."""
    if isinstance(kind, types.Array):
        return _words_of_array
    if isinstance(kind, types.BaseTuple):
        writers = [*map(_writer, kind)]
        return lambda value: [word for write, part in zip(writers, value) for word in write(part)]
    if isinstance(kind, types.Float):
        pack = struct.Struct("<d" if kind.bitwidth == 64 else "<f").pack
        return lambda value: (int.from_bytes(pack(value), "little"),)
    if isinstance(kind, (types.Integer, types.Boolean)):
        return lambda value: (int(value) & EVERY_BIT,)
    if isinstance(kind, types.NoneType):
        return lambda value: (0,)
    raise TypeError(f"no words for arguments of type {kind}")


def _words_of_array(array: np.ndarray) -> tuple[int, ...]:
    # without an owner: the caller holds the array
    return 0, 0, array.size, array.itemsize, pointer_of(array), *array.shape, *array.strides


@functools.cache
def _trampoline(flat: tuple[str, ...]) -> tuple[int, Any]:
    """Return the address of a trampoline for LLVM types of arguments, and its owner."""
    module = ir.Module()
    module.triple = binding.get_process_triple()
    function = ir.Function(module, ir.FunctionType(WORD, [WORD, WORD]), "trampoline")
    builder = ir.IRBuilder(function.append_basic_block())
    place, counters = function.args
    words = builder.inttoptr(place, WORD.as_pointer())

    # the result and the error of Numba's calling convention, and the array of counters
    byte = ir.IntType(8).as_pointer()
    results = [builder.alloca(byte, 2), builder.alloca(byte)]
    array = [byte(None), byte(None), WORD(WORDS), WORD(8),
             builder.inttoptr(counters, WORD.as_pointer()), WORD(WORDS), WORD(8)]

    # the arguments
    given = []
    for number, name in enumerate(flat):
        word = builder.load(builder.gep(words, [WORD(1 + number)]))
        given.append(_converted(builder, word, name))

    arguments = [*results, *array, *given]
    kind = ir.FunctionType(ir.IntType(32), [each.type for each in arguments])
    kernel = builder.inttoptr(builder.load(words), kind.as_pointer())
    builder.ret(builder.sext(builder.call(kernel, arguments), WORD))

    # machine code
    parsed = binding.parse_assembly(str(module))
    machine = binding.Target.from_default_triple().create_target_machine(opt=1)
    engine = binding.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    return engine.get_function_address("trampoline"), engine


def _converted(builder: ir.IRBuilder, word: ir.Value, name: str) -> ir.Value:
    """Return a word as a value of the LLVM type that has a name."""
    if name.endswith("*"):
        return builder.inttoptr(word, ir.IntType(8).as_pointer())
    if name == "i64":
        return word
    if name == "double":
        return builder.bitcast(word, ir.DoubleType())
    if name == "float":
        return builder.bitcast(builder.trunc(word, ir.IntType(32)), ir.FloatType())
    return builder.trunc(word, ir.IntType(int(name[1:])))

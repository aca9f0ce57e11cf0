"""Check the arguments of public kernels: arrays are converted or refused.

An array that is only read is copied if its order or byte order is not that of the
kernel. An array that is written is refused in that case. A check costs microseconds
plus one pass over indptr and indices. The result is cached for read-only arrays, so do
not write to an array after marking it read-only.

A kernel that reads indptr and indices in order has a function `validate_inline`. That
function checks them while it multiplies, and calls `validate` to raise the error.
"""
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from hpgcn.kernels import Array
from hpgcn.kernels.bits16 import BF16, number_dtype
from hpgcn.kernels.content_checks import (
    check_bits,
    check_chosen,
    check_once,
    check_pointers,
    check_range,
    frozen,
)
from hpgcn.kernels.host.pointers import pointer_of
from hpgcn.kernels.masks import ORDER
from hpgcn.kernels.specs import (
    LENGTHS,
    NUMBERS,
    SPECS,
    TRANSPOSED,
    Argument,
    length_of,
    parse,
)

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
INTEGERS = (np.dtype(np.int32), np.dtype(np.int64))
BITS = (np.dtype(np.uint8),)
SEARCH: Any = 10_000  # steps of a search for common memory (stubs of NumPy have only 0 and -1)
MOST_LAYOUTS = 64  # layouts of the arguments of a kernel that are remembered
VERTICES = 1 << 48  # the counter of a random draw has no room for larger numbers
# The first array of one of these kinds gives the other arrays their dtype. If it has 16 bits,
# the others have float32.
LEADING = {"real", "rows", "strided", "like", "into", "into_rows"}
HALVES = "16"  # ends the name of a kind that may be stored in 16 bits
READ = {  # kinds read in C order: valid dtypes, and the dtype of converted arrays
    "real": (FLOATS, None), "like": (FLOATS, None), "float": (FLOATS, FLOATS[1]),
    "wide": (FLOATS[1:], FLOATS[1]), "bits": (BITS, None),
    **dict.fromkeys(("index", "pointers", "once", "classes"), (INTEGERS, INTEGERS[1]))}
MATRIX = {"indptr", "indices"}
ALIKE = {"alike", "same"}  # with the dtype of the first array, which may have 16 bits
WRITTEN = {  # kinds that are written: the order in memory that they need
    "into": lambda array: _aligned(array) and array.flags.c_contiguous,
    "into_bits": lambda array: array.flags.c_contiguous,
    "into_rows": lambda array: _aligned(array) and _own_rows(array),
    "alike": lambda array: _aligned(array) and array.flags.c_contiguous,
    "into_moved": lambda array: _own_rows(array),  # noqa: PLW0108 - defined below
    "into_strided": lambda array: _own_rows(array) or _own_rows(array.T)}


class Layout(NamedTuple):
    """The checks that remain for arguments whose layout has passed before."""

    contents: list  # (function, name of the array, *further arguments) each
    names: list  # the arguments that are arrays
    # (written array, another one, low, high) each, arrays as places in `names`. Their memory
    # may overlap if the distance of the addresses lies between low and high.
    pairs: list


def checked(name: str, kernel: Callable, xp: Callable) -> Callable:
    """Return a function that checks its arguments and then calls the kernel.

    It raises TypeError if an argument is no array or has a wrong dtype. It raises
    ValueError for a wrong shape, order, index or number, and for a written array that
    overlaps another. Types and shapes that have passed are remembered, so that a small
    product is not slower than its checks.
    """
    spec = parse(SPECS[name])
    signature = inspect.signature(kernel)
    names = tuple(signature.parameters)
    validate_inline = getattr(kernel, "validate_inline", None)
    known: dict[tuple, Layout] = {}

    @functools.wraps(kernel)
    def call(*args: float | Array, **options: Any) -> Any:
        try:  # faster than a context manager
            key = _layout_key(args, options)
            try:
                layout = known.get(key)
            except TypeError:  # an argument is a list, or an array of another library
                key = layout = None
            if layout is not None:
                given = dict(zip(names, args))
                given.update(options)
                contents = layout.contents
                if _may_overlap(layout, given):
                    _check_overlaps(spec, given)
            else:
                given = signature.bind(*args, **options).arguments
                passed = dict(given)
                contents = _check_layout(spec, given, signature.parameters, xp())
                if key and all(given[each] is passed[each] for each in given):
                    if len(known) >= MOST_LAYOUTS:
                        known.clear()
                    known[key] = Layout(contents, *_find_pairs(spec, given))

            # the kernel may validate the matrix while it multiplies
            later = []
            for check, array, *more in contents:
                if validate_inline and array in MATRIX and not frozen(given[array]):
                    later.append((check, array, *more))
                else:
                    check(array, given, *more)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None
        if not later:
            return kernel(**given)

        def validate() -> None:
            with prefix_errors(name):
                for check, array, *more in later:
                    check(array, given, *more)

        return validate_inline(**given, validate=validate)

    return call


def _layout_key(args: tuple, options: dict[str, Any]) -> tuple:
    """Return types, shapes and other values of arguments, which may not be hashable."""
    key: list = [len(args), *options]
    for value in (*args, *options.values()):
        if type(value) is np.ndarray:
            key += value.dtype, value.shape, value.strides, value.flags.num
        else:
            key += type(value), value
    return tuple(key)


def _check_layout(spec: list[Argument], given: dict[str, Any], parameters: Mapping,
                  xp: ModuleType) -> list:
    """Check arguments except for contents, and convert arrays in `given`.

    Return the checks of contents, as in Layout.
    """
    if "e" in given and given.get("op", "copylhs") == "copylhs":
        given["e"] = None  # copylhs does not read e
    _check_numbers(given)
    lengths = {"V": VERTICES} | {letter: given.get(argument, 1)
                                 for argument, letter in LENGTHS.items() if argument in parameters}
    contents: list = []
    _check_arrays(spec, given, lengths, xp, contents)
    _check_pairs(given, lengths, contents)
    return contents


def _find_pairs(spec: list[Argument], given: dict[str, Any]) -> tuple[list, list]:
    """Return the names of arrays, and the pairs that may not overlap; see Layout."""
    arrays = [argument for argument in spec if given.get(argument.name) is not None]
    names = [argument.name for argument in arrays]
    spans = []  # first byte, and the one after the last, from the address on
    for array in map(given.get, names):
        start = _start(array)
        spans.append([end - start if array.size else 0 for end in _span(array)])
    written = [place for place, argument in enumerate(arrays)
               if argument.kind.removesuffix(HALVES) in WRITTEN]
    return names, [(out, other, spans[other][0] - spans[out][1], spans[other][1] - spans[out][0])
                   for out in written for other in range(len(arrays)) if other != out]


def _may_overlap(layout: Layout, given: dict[str, Any]) -> bool:
    """Return whether the memory between first and last byte of two arrays overlaps."""
    if not layout.pairs:
        return False
    found = [pointer_of(given[name]) for name in layout.names]
    for out, other, low, high in layout.pairs:  # noqa: SIM110 - any() takes a microsecond more
        if low < found[out] - found[other] < high:
            return True
    return False


@contextlib.contextmanager
def prefix_errors(name: str) -> Iterator[None]:
    """Context manager: put the name of a kernel before an error's message."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def _check_arrays(spec: list[Argument], given: dict[str, Any], lengths: dict[str, int],
                  xp: ModuleType, contents: list) -> None:
    """Check the arrays of a spec; replace converted ones in `given`, fill `lengths`.

    Checks of contents are added to `contents`, as in Layout.
    """
    dtype = stored = None
    for argument in spec:
        name, kind = argument.name, argument.kind
        base = kind.removesuffix(HALVES)
        array = given.get(name)
        if array is None:
            if name in given and not argument.optional:
                raise TypeError(f"{name} is None, expected an array")
            continue

        # type and shape
        if kind == "words" and isinstance(array, (list, tuple)):
            array = xp.array(array)
        if not isinstance(array, xp.ndarray) or isinstance(array, (np.ma.MaskedArray, np.matrix)):
            owner = type(array).__module__
            raise TypeError(f"{name} is a {owner}.{type(array).__name__}, expected an array of "
                            f"{xp.__name__}")
        if kind == "bits" and array.dtype == bool:
            raise TypeError(f"{name} has dtype bool, expected the uint8 bits of {ORDER}")
        _check_shape(name, array.shape, argument.shape, lengths)

        # dtype and order; the first array gives the others their dtype
        array = _fit(name, array, kind, stored if base in ALIKE else dtype)
        given[name] = array
        if dtype is None and base in LEADING:
            stored = array.dtype
            dtype = stored if base == kind else number_dtype(stored)

        # contents
        if argument.limit in lengths:
            contents.append((check_range, name, lengths[argument.limit]))
        if kind == "pointers":
            contents.append((check_pointers, name, lengths["k"], argument.covers))
        elif kind == "once":
            contents.append((check_once, name, xp))
        elif kind == "bits":
            contents.append((check_bits, name, lengths[argument.shape[1][0]]))
        elif kind == "classes":
            contents.append((check_chosen, name, lengths["f"]))

    # relations between arrays
    _check_overlaps(spec, given)

    if given.get("transposed") is not None and given.get("x") is not None:
        parts = dict(zip(("indptr", "indices", "edge"), given["transposed"], strict=True))
        shape = {"n": lengths["n"], "m": lengths["m"], "e": lengths["k"]}
        of_parts: list = []
        _check_arrays(parse(TRANSPOSED), parts, shape, xp, of_parts)
        for check, name, *more in of_parts:
            check(name, parts, *more)
        given["transposed"] = tuple(parts.values())


def _check_shape(name: str, shape: tuple, expected: tuple[str, ...],
                 lengths: dict[str, int]) -> None:
    """Compare a shape with a spec's; record the lengths of new letters."""
    if expected and expected[0] == "...":
        shape = shape[-1:]
        expected = expected[1:]
    right = len(shape) == len(expected)
    for length, word in zip(shape, expected):
        if word[0].isalpha():
            lengths.setdefault(word[0], length - (word[1:] == "+1"))
        right = right and _fits(length, word, lengths)
    if not right:
        letters = sorted({word[0] for word in expected} & set(lengths))
        known = "".join(f", {letter} = {lengths[letter]}" for letter in letters)
        raise ValueError(f"{name} has shape {tuple(shape)}, expected ({', '.join(expected)})"
                         f"{known}")


def _fits(length: int, word: str, lengths: dict[str, int]) -> bool:
    """Return whether a length fits a word of a spec."""
    if word == "*":
        return True
    fits = length == length_of(word, lengths) and lengths.get(word[0], 0) >= 0
    return fits or (word[1:] == "|1" and length == 1)


def _fit(name: str, array: Array, kind: str, dtype: np.dtype | None) -> Array:
    """Return an array as kernels need it; `dtype` is that of the first array."""
    # arrays that are never copied
    native = array.dtype.newbyteorder("=")
    base = kind.removesuffix(HALVES)
    halves = (BF16,) if base != kind and dtype in (None, np.float32) else ()
    if base in WRITTEN:
        return _check_written(name, array, base, dtype, halves)
    if kind == "words":
        return array if native.kind in "iu" else _refuse_dtype(name, array, INTEGERS)
    if base == "strided":
        taken = ((dtype,) if dtype else FLOATS) + halves
        return array.astype(native, copy=False) if native in taken else _refuse_dtype(
            name, array, taken)

    # arrays that are converted if need be
    if base == "rows":  # any numbers, in any memory
        if native.hasobject:
            raise TypeError(f"{name} has dtype {array.dtype}, expected numbers")
        in_order = _packed_rows(array)
    else:
        taken, cast = ((dtype,), dtype) if base in ("like", "same") and dtype else READ[base]
        taken += halves
        integral = taken is INTEGERS
        numeric = native.kind in ("iu" if integral else "biuf")
        if native not in taken:
            if cast is None or cast == BF16 or not numeric or (integral and native == np.uint64):
                _refuse_dtype(name, array, taken)
            native = cast
        in_order = array.flags.c_contiguous and _aligned(array)
    return array if array.dtype == native and in_order else array.astype(native, order="C")


def _refuse_dtype(name: str, array: Array, taken: tuple) -> None:
    expected = " or ".join(map(str, taken))
    raise TypeError(f"{name} has dtype {array.dtype}, expected {expected}")


def _check_written(name: str, array: Array, kind: str, dtype: np.dtype | None,
                   halves: tuple) -> Array:
    """Return an array to be written, or refuse it; `halves` are further valid dtypes."""
    taken = (BITS if kind == "into_bits" else (dtype,) if dtype else FLOATS) + halves
    if array.dtype not in taken:
        _refuse_dtype(name, array, taken)
    if not WRITTEN[kind](array):
        raise ValueError(f"{name} has strides {array.strides}, expected C order: it is written in "
                         "place")
    if not getattr(array.flags, "writeable", True):
        raise ValueError(f"{name} is read-only, expected an array that can be written")
    return array


def _aligned(array: Array) -> bool:
    """Return whether numbers lie at multiples of their size; true on a GPU."""
    return getattr(array.flags, "aligned", True)


def _packed_rows(array: Array) -> bool:
    """Return whether the numbers of a row lie next to each other in memory."""
    return array.shape[1] < 2 or array.strides[1] == array.itemsize


def _own_rows(array: Array) -> bool:
    """Return whether rows are packed (`_packed_rows`) and no two rows share memory."""
    row_bytes = array.shape[1] * array.itemsize
    return _packed_rows(array) and (array.shape[0] < 2 or abs(array.strides[0]) >= row_bytes)


def _check_overlaps(spec: list[Argument], given: dict[str, Any]) -> None:
    for argument in spec:
        out = given.get(argument.name)
        if out is None or argument.kind.removesuffix(HALVES) not in WRITTEN:
            continue
        for other in spec:
            array = given.get(other.name)
            if array is None or other is argument or not _overlap(out, array):
                continue
            same = _span(array) == _span(out) and array.strides == out.strides
            if other.name not in argument.aliases or not same:
                raise ValueError(f"{argument.name} overlaps {other.name} in memory")


def _overlap(out: Array, array: Array) -> bool:
    low, high = _span(out)
    first, last = _span(array)
    if not (low < last and first < high):
        return False
    return not isinstance(out, np.ndarray) or np.may_share_memory(out, array, max_work=SEARCH)


def _span(array: Array) -> tuple[int, int]:
    """Return the addresses of an array's first byte, and of the one after its last."""
    if array.size == 0:
        return 0, 0
    start = _start(array)
    steps = [(length - 1) * stride for length, stride in zip(array.shape, array.strides)]
    before = sum(step for step in steps if step < 0)
    after = sum(step for step in steps if step > 0)
    return start + before, start + after + array.itemsize


def _start(array: Array) -> int:
    if isinstance(array, np.ndarray):
        return pointer_of(array)
    return array.data.ptr


def _check_numbers(given: dict[str, Any]) -> None:
    for name in filter(given.__contains__, NUMBERS):
        number = given[name]
        low, high = NUMBERS[name]
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
            raise TypeError(f"{name} is {number!r}, expected an integer")
        if not low <= number < high:
            raise ValueError(f"{name} is {number}, expected {low}..{high - 1}")
        given[name] = int(number)
    if "p" in given and not 0 <= given["p"] < 1 - 2.0**-17:  # else all are dropped
        raise ValueError(f"p is {given['p']}, expected 0 <= p < 1")
    if "slope" in given and not given["slope"] >= 0:  # else scores change sign
        raise ValueError(f"slope is {given['slope']}, expected 0 or more")


def _check_pairs(given: dict[str, Any], lengths: dict[str, int], contents: list) -> None:
    """Check conditions between arguments, such as the largest class of labels."""
    if given.get("target") is not None and "first" in given:  # target has all classes
        classes, last = given["target"].shape[1], given["first"] + given["logits"].shape[1]
        if last > classes:
            raise ValueError(f"target has {classes} classes, but the block of logits ends at class "
                             f"{last}")
        contents.append((check_chosen, "labels", classes))

    # dropout draws by the numbers of vertices, or applies bits that were drawn before
    keys = (("z", "vertex"), ("col_score", "vertex"), ("col_score", "neighbor"))
    for leading, name in keys:
        draws = given.get("p") and not given.get("drawn")
        if leading in given and draws and given.get(name) is None:
            raise ValueError(f"{name} is None, expected vertex numbers: dropout with p > 0 depends "
                             "on them")
    if given.get("drawn") and given.get("mask") is None:
        raise ValueError("mask is None: with drawn it holds the bits that dropout keeps")

    # heads share the columns equally
    width, heads = lengths.get("f", 0), lengths.get("h", 1)
    if heads == 0 or width % heads:
        raise ValueError(f"{width} columns cannot be divided into {heads} heads of equal width")

    pulled = given.get("pulled")
    if pulled is not None and pulled.shape[1] != width + 3 * heads:
        raise ValueError(f"pulled has {pulled.shape[1]} columns, expected {width} + 3 x {heads}")

    _check_attention(given)
    if given.get("decayed", 0) > getattr(given.get("w"), "size", 0):
        raise ValueError(f"decayed is {given['decayed']}, expected at most {given['w'].size}, the "
                         "size of w")


def _check_attention(given: dict[str, Any]) -> None:
    """Check that sums of `attend` that belong together are given together."""
    names = ("above", "share", "part_above", "part_share")
    if "part_lse" not in given:
        names = names[:2]
    if "row_score" in given or "part_lse" in given:
        held = [name for name in names if given.get(name) is not None]
        if held and len(held) < len(names):
            raise ValueError(f"{held[0]} is given without {', '.join(sorted({*names} - {*held}))}")
    if "col_score" in given and given.get("accumulate"):
        results = ("dx", "dcol_score") if "pulled" in given else ("out", "lse")
        absent = next((name for name in results if given.get(name) is None), None)
        if absent:
            raise ValueError(f"{absent} is None, expected an array: accumulate adds to it")

"""The door of the public kernels: what they are given is made right, or refused, before a kernel trusts it.

`guard` puts it before all kernels of a backend. Arrays that are only read are copied where their order, or that of
their bytes, is not the kernel's; arrays that are written are refused there. This costs microseconds, and a pass over
row pointers and indices. Of an array that is read-only, as all that it is a view of, the pass is made once as long as
it lives: who marks an array read-only must not write to it any more.
"""
import functools
import inspect
import types
import weakref

import numpy as np

from hpgcn.kernels.specs import NUMBERS, SPECS, TRANSPOSED, parse

FLOATS = np.dtype(np.float32), np.dtype(np.float64)
INTEGERS = np.dtype(np.int32), np.dtype(np.int64)
VERTICES = 1 << 48  # more have no place in the counter that keys a draw
LEADING = {"real", "rows", "strided", "like", "into", "into_rows"}  # the first of these gives the others its dtype


def guard(names, kernels, xp=lambda: np):
    """Put the door before each kernel of a backend that `SPECS` knows.

    Parameters
    ----------
    names : list of str
    kernels : dict
        Globals of the backend's package, changed.
    xp : callable
        Returns the module whose arrays the kernels take.

    Returns
    -------
    types.SimpleNamespace
        All `names` without the door, for callers whose arrays are right by construction.
    """
    trusted = types.SimpleNamespace(**{name: kernels[name] for name in names})
    kernels.update({name: checked(name, kernels[name], xp) for name in names if name in SPECS})
    return trusted


def checked(name, kernel, xp):
    """Return the kernel behind the door.

    Raises
    ------
    TypeError
        By what is returned: an argument is no array, or of a dtype that the kernel does not take.
    ValueError
        A shape, an order, an index or a number that does not fit; an array that is written and overlaps another.
    """
    spec, names = parse(SPECS[name]), tuple(inspect.signature(kernel).parameters)
    needed = {argument.name for argument in spec if not argument.optional}

    @functools.wraps(kernel)
    def call(*args, **options):
        given = {**dict(zip(names, args)), **options}
        if len(given) < len(args) + len(options) or not needed <= given.keys():
            return kernel(*args, **options)  # which refuses an argument too many, or too few
        try:
            if "e" in given and given.get("op", "copylhs") == "copylhs":
                given["e"] = None  # it is not read
            _check_numbers(given)
            _check_arrays(spec, given, {"V": VERTICES, **({"n": given["n"]} if "n" in given else {})}, xp())
            _check_pairs(given)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name}: {error}") from None
        return kernel(**given)

    return call


def _check_arrays(spec, given, lengths, xp):
    """Check the arrays of a spec; what has to be copied is replaced in `given`, lengths are added to `lengths`."""
    dtype = None
    for argument in spec:
        name, kind, array = argument.name, argument.kind, given.get(argument.name)
        if array is None:
            if name in given and not argument.optional:
                raise TypeError(f"{name} is None, expected an array")
            continue
        if kind == "words" and isinstance(array, (list, tuple)):
            array = np.array(array)
        if not isinstance(array, xp.ndarray) or isinstance(array, (np.ma.MaskedArray, np.matrix)):
            raise TypeError(f"{name} is a {type(array).__module__}.{type(array).__name__}, expected an array of "
                            f"{xp.__name__}")
        _check_shape(name, array.shape, argument.shape, lengths)
        given[name] = array = KINDS[kind](name, array, dtype)
        dtype = array.dtype if dtype is None and kind in LEADING else dtype
        if argument.limit in lengths:
            _check_range(name, array, lengths[argument.limit])
        if kind == "pointers":
            _check_pointers(name, array, lengths["k"], argument.covers)
        elif kind == "once" and int(xp.bincount(array, minlength=1).max()) > 1:
            raise ValueError(f"{name} has a row twice")
        elif kind == "classes":
            _check_range(f"{name} at rows", array[given["rows"]], lengths["f"])
    _check_overlaps(spec, given)
    if given.get("transposed") is not None and given.get("x") is not None:
        names = "indptr", "indices", "edge"
        parts = dict(zip(names, given["transposed"], strict=True))
        _check_arrays(parse(TRANSPOSED), parts, {"n": lengths["n"], "m": lengths["m"], "e": lengths["k"]}, xp)
        given["transposed"] = tuple(parts[name] for name in names)


def _check_shape(name, shape, expected, lengths):
    """Hold a shape against that of a spec; bind letters that are new."""
    if expected and expected[0] == "...":
        shape, expected = shape[-1:], expected[1:]
    right = len(shape) == len(expected)
    for length, word in zip(shape, expected):
        known = lengths.get(word[0])
        if known is None and word[0].isalpha():
            known = lengths[word[0]] = length - (word[1:] == "+1")
        if length != known or len(word) > 1:
            right = right and _fits(length, word, known)
    if not right:
        raise ValueError(f"{name} has shape {tuple(shape)}, expected ({', '.join(expected)})" + "".join(
            f", {letter} = {lengths[letter]}" for letter in sorted({word[0] for word in expected} & set(lengths))))


def _fits(length, word, known):
    """Whether a length is what a word other than a letter says, its letter being known."""
    letter, rest = word[0], word[1:]
    if not letter.isalpha():
        return word == "*" or length == int(word)
    wanted = {"": known, "|1": known, "+1": known + 1, "/8": -(-known // 8)}[rest]
    return (length == wanted and known >= 0) or (rest == "|1" and length == 1)


def _input(name, array, choose):
    """Return an array that is only read, of the dtype that `choose` gives for its own, in C order."""
    native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    if native.kind not in "biuf":
        raise TypeError(f"{name} has dtype {array.dtype}, expected real numbers")
    dtype = choose(name, native)
    if array.dtype == dtype and array.flags.c_contiguous and _aligned(array):
        return array
    return array.astype(dtype, order="C")


def _float(name, dtype):
    if dtype not in FLOATS:
        raise TypeError(f"{name} has dtype {dtype}, expected float32 or float64")
    return dtype


def _integer(name, dtype):
    if dtype.kind not in "iu" or dtype == np.uint64:
        raise TypeError(f"{name} has dtype {dtype}, expected int32 or int64")
    return dtype if dtype in INTEGERS else INTEGERS[1]


def _byte(name, dtype):
    if dtype != np.uint8:
        raise TypeError(f"{name} has dtype {dtype}, expected uint8")
    return dtype


def _index(name, array, dtype):
    return _input(name, array, _integer)


def _rows(name, array, dtype):
    """An array of any numbers whose rows may lie anywhere."""
    if array.dtype.hasobject:
        raise TypeError(f"{name} has dtype {array.dtype}, expected numbers")
    native = array.dtype.newbyteorder("=")
    return array if array.dtype == native and _packed_rows(array) else array.astype(native, order="C")


def _strided(name, array, dtype):
    native = _float(name, array.dtype.newbyteorder("="))
    if native != (dtype or native):
        raise TypeError(f"{name} has dtype {native}, expected {dtype}")
    return array.astype(native, copy=False)


def _aligned(array):
    """Whether numbers begin at multiples of their size; those of a GPU do."""
    return getattr(array.flags, "aligned", True)


def _packed_rows(array):
    """Whether numbers of one row follow each other."""
    return array.shape[1] < 2 or array.strides[1] == array.itemsize


def _own_rows(array):
    """Whether that is so, and no two rows share memory."""
    return _packed_rows(array) and (array.shape[0] < 2 or abs(array.strides[0]) >= array.shape[1] * array.itemsize)


def _output(name, array, dtype, ordered):
    """Return an array that is written: as it is, or not at all."""
    if array.dtype != dtype:
        raise TypeError(f"{name} has dtype {array.dtype}, expected {dtype}")
    if not ordered:
        raise ValueError(f"{name} has strides {array.strides}, expected C order: it is written in place")
    if not getattr(array.flags, "writeable", True):
        raise ValueError(f"{name} is read-only, and would be written")
    return array


KINDS = {
    "real": lambda name, array, dtype: _input(name, array, _float),
    "like": lambda name, array, dtype: _input(name, array, (lambda _, own: dtype) if dtype else _float),
    "float": lambda name, array, dtype: _input(name, array, lambda _, own: own if own in FLOATS else FLOATS[1]),
    "wide": lambda name, array, dtype: _input(name, array, lambda _, own: FLOATS[1]),
    "bits": lambda name, array, dtype: _input(name, array, _byte),
    "index": _index, "pointers": _index, "once": _index, "classes": _index, "rows": _rows, "strided": _strided,
    "words": lambda name, array, dtype: array if array.dtype.kind in "iu" else _index(name, array, dtype),
    "into": lambda name, array, dtype: _output(name, array, dtype or _float(name, array.dtype),
                                               _aligned(array) and array.flags.c_contiguous),
    "into_bits": lambda name, array, dtype: _output(name, array, np.dtype(np.uint8), array.flags.c_contiguous),
    "into_rows": lambda name, array, dtype: _output(name, array, dtype or _float(name, array.dtype),
                                                    _aligned(array) and _own_rows(array)),
    "into_moved": lambda name, array, dtype: _output(name, array, dtype, _own_rows(array)),
    "into_strided": lambda name, array, dtype: _output(name, array, dtype, _own_rows(array) or _own_rows(array.T)),
}


def _check_range(name, array, limit):
    largest = _facts(array)[0]
    if largest >= limit:
        where = int(((array < 0) | (array >= limit)).argmax())
        raise ValueError(f"{name}[{where}] is {int(array.ravel()[where])}, expected 0..{limit - 1}")


def _check_pointers(name, array, entries, covers):
    largest, rising = _facts(array)
    if not rising or largest > entries or (covers and (int(array[0]), int(array[-1])) != (0, entries)):
        raise ValueError(f"{name} does not rise from {0 if covers else '0 or more'} to {'' if covers else 'at most '}"
                         f"the {entries} entries of indices")


def _facts(array):
    """Return the largest of an array's integers, of which negative ones count as huge, and whether they never fall."""
    if not _frozen(array):
        return _scan(array)
    key = id(array)
    held, facts = _known.get(key, (None, None))
    if held is None or held() is not array:
        facts = _scan(array)
        _known[key] = weakref.ref(array, lambda _: _known.pop(key, None)), facts
    return facts


def _scan(array):
    if array.size == 0:
        return -1, True
    return int(array.view(f"u{array.itemsize}").max()), bool((array[1:] >= array[:-1]).all())


def _frozen(array):
    """Whether nobody can write to an array, nor to what it is a view of, unless flags are set back."""
    while isinstance(array, np.ndarray) and not array.flags.writeable:
        array = array.base
    return array is None or isinstance(array, bytes)


_known = {}  # facts of read-only arrays, by identity


def _check_overlaps(spec, given):
    for argument in spec:
        out = given.get(argument.name) if argument.kind.startswith("into") else None
        if out is None:
            continue
        for other in spec:
            array = given.get(other.name)
            if array is None or other is argument or not _overlap(out, array):
                continue
            if other.name not in argument.aliases or _span(array) != _span(out) or array.strides != out.strides:
                raise ValueError(f"{argument.name} overlaps {other.name} in memory")


def _overlap(out, array):
    if isinstance(out, np.ndarray) and not np.may_share_memory(out, array):
        return False
    (low, high), (first, last) = _span(out), _span(array)
    if not (low < last and first < high):
        return False
    try:
        return not isinstance(out, np.ndarray) or np.shares_memory(out, array, max_work=10_000)
    except np.exceptions.TooHardError:
        return True


def _span(array):
    """First byte of an array, and the one after its last."""
    if array.size == 0:
        return 0, 0
    start = array.__array_interface__["data"][0] if isinstance(array, np.ndarray) else array.data.ptr
    steps = [(length - 1) * stride for length, stride in zip(array.shape, array.strides)]
    return start + sum(s for s in steps if s < 0), start + sum(s for s in steps if s > 0) + array.itemsize


def _check_numbers(given):
    for name in filter(given.__contains__, NUMBERS):
        low, high = NUMBERS[name]
        if isinstance(given[name], (bool, np.bool_)) or not isinstance(given[name], (int, np.integer)):
            raise TypeError(f"{name} is {given[name]!r}, expected an integer")
        given[name] = int(given[name])
        if not low <= given[name] < high:
            raise ValueError(f"{name} is {given[name]}, expected {low}..{high - 1}")
    if "p" in given and not 0 <= given["p"] < 1 - 2.0**-17:  # above it every number would be dropped
        raise ValueError(f"p is {given['p']}, expected 0 <= p < 1")


def _check_pairs(given):
    """Check what no array says alone."""
    if "z" in given and given.get("p") and given.get("vertex") is None:
        raise ValueError("vertex is None: with p > 0 it keys the draw")
    if given.get("decayed", 0) > getattr(given.get("w"), "size", 0):
        raise ValueError(f"decayed is {given['decayed']}, of {given['w'].size} numbers")

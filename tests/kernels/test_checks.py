"""Argument checks of the public kernels: any array gives the reference's result or an error."""
import functools

import numpy as np
import pytest
from cases import case, outcome

from hpgcn.kernels import checks, content_checks, cpu, reference
from hpgcn.kernels.host.threads import threshold
from hpgcn.kernels.specs import LENGTHS, SPECS, length_of, parse, parse_results, result_dtype

M, N, F = 12, 10, 9
MOVED = ("rows", "strided", "words", "into_rows", "into_moved", "into_strided")  # at any address
WITH_ARRAYS = [name for name in SPECS if parse(SPECS[name])]


def strided(array):
    wide = np.zeros([2 * length for length in array.shape], array.dtype)
    every_other = wide[tuple(slice(None, None, 2) for _ in array.shape)]
    every_other[...] = array
    return every_other


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)
    memory[1:] = array.view(np.uint8).ravel() if array.flags.c_contiguous else 0
    return memory[1:].view(array.dtype).reshape(array.shape)


def spoiled(array, value):
    if array.dtype.kind == "i":
        array = array.copy()
        array.flat[array.size // 2] = value
    return array


def read_only(array):
    array.flags.writeable = False
    return array


DTYPES = ("float16", "float32", "complex64", "int16", "int64", "uint64", "bool", "object", "U9")
CHANGES = {
    "fortran": np.asfortranarray, "strided": strided, "unaligned": unaligned,
    "reversed": lambda a: np.flip(np.flip(a).copy()),
    "columns": lambda a: np.repeat(a, 2, -1)[..., ::2], "flat": np.ravel,
    "one more axis": lambda a: a[None], "short": lambda a: a[:-1],
    "long": lambda a: np.r_[a, a[:1]], "narrow": lambda a: a[..., :-1].copy(),
    "empty": lambda a: a[:0],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    **{dtype: lambda a, dtype=dtype: a.astype(dtype) for dtype in DTYPES},
    "list": np.ndarray.tolist, "masked": np.ma.masked_array, "number": lambda a: 3,
    "read-only": read_only, "negative": lambda a: spoiled(a, -2),
    "too large": lambda a: spoiled(a, 10**6), "twice": lambda a: np.broadcast_to(a[:1], a.shape)}


def clean(given, usual):
    """Copy arguments to C-ordered native arrays, of floats where the reference has floats."""
    cleaned = {}
    for key, value in given.items():
        if isinstance(value, np.ndarray):
            real = usual[key].dtype.kind == "f" and value.dtype.kind in "biu"
            dtype = usual[key].dtype if real else value.dtype
            value = np.array(value, dtype.newbyteorder("="), order="C")
        cleaned[key] = value
    return cleaned


def held_against_the_reference(name, given):
    """Compare a kernel with the reference; return True if it raised a one-line error instead."""
    expected_from = clean(given, case(name))
    try:
        results = outcome(cpu, name, given)
    except (TypeError, ValueError) as error:
        assert str(error).startswith(f"{name}: "), error
        assert "\n" not in str(error)
        return True
    for result, expected in zip(results, outcome(reference.trusted, name, expected_from),
                                strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-3, atol=1e-4)
    return False


@pytest.mark.parametrize("name", SPECS)
def test_what_is_right_is_taken(name):
    assert not held_against_the_reference(name, case(name))
    with pytest.raises(TypeError):
        getattr(cpu, name)()


@pytest.mark.parametrize("kernels", [reference, cpu])
@pytest.mark.parametrize("name", SPECS)
def test_new_results_have_the_shape_and_dtype_of_the_specs(name, kernels):
    spec, results = parse(SPECS[name]), parse_results(SPECS[name])
    given = case(name)
    lengths = {letter: given[number] for number, letter in LENGTHS.items() if number in given}
    for argument in spec:
        if given[argument.name] is not None:
            lengths |= {word: length for word, length in zip(
                argument.shape, given[argument.name].shape) if word.isalpha()}
    for result in results:
        if result.optional and result in spec:
            given[result.name] = None
    if results and results[0].name == "pulled":  # its width follows from no other array
        lengths["w"] = lengths["f"] + 3 * lengths["h"]
    made = getattr(kernels, name)(**given)
    made = made if isinstance(made, tuple) else (made,) * len(results)
    assert len(made) == len(results)
    first = given[spec[0].name].dtype if spec else None
    for result, array in zip(results, made):
        if result.kind in ("number", "count"):
            assert np.ndim(array) == 0
        elif array is not None or not result.optional:
            shape = tuple(3 if word == "..." else length_of(word, lengths)
                          for word in result.shape)
            dtype = result_dtype(result, first)
            if name == "transpose_pattern":  # the dtype of its indices
                dtype = array.dtype
            assert (array.shape, array.dtype) == (shape, dtype)


def handed_on(name, given):
    """Return the arrays that the checks pass to the reference kernel; None if they raise."""
    kernel = getattr(reference.trusted, name)
    held = {}

    @functools.wraps(kernel)
    def run(**arguments):
        held.update((key, each) for key, each in arguments.items() if isinstance(each, np.ndarray))
        kernel(**{**arguments, **{key: array.copy() for key, array in held.items()}})

    try:
        checks.checked(name, run, lambda: np)(**given)
    except (TypeError, ValueError) as error:
        assert str(error).startswith(f"{name}: "), error
        assert "\n" not in str(error)
        return None
    return held


@pytest.mark.long
@pytest.mark.parametrize("name", WITH_ARRAYS)
def test_any_array_in_any_place(name):
    """An unusual array for an argument is refused, or converted for compiled code."""
    spec = parse(SPECS[name])
    kinds = {each.name: each.kind.removesuffix("16") for each in spec}
    limited = {each.name for each in spec if each.limit not in ("", "V") or each.kind == "pointers"}
    usual = handed_on(name, case(name))
    for argument, value in case(name).items():
        for what, change in CHANGES.items() if isinstance(value, np.ndarray) else ():
            given = case(name)
            given[argument] = change(given[argument])
            with np.errstate(all="ignore"):
                found = handed_on(name, given)
            assert found is None or argument not in limited or what not in (
                "negative", "too large"), f"{argument} may be {what}"
            for key, array in (found or {}).items():
                np.testing.assert_array_equal(array, np.asarray(given[key]).astype(array.dtype))
                assert kinds[key] in MOVED or (array.flags.c_contiguous and array.flags.aligned)
                if kinds[key] not in ("rows", "words"):  # any numbers are valid
                    assert array.dtype.isnative and array.dtype.kind == usual[key].dtype.kind
                    assert array.dtype in (usual[key].dtype, *checks.FLOATS, *checks.INTEGERS)
            assert len({found[key].dtype for key, kind in kinds.items()
                        if key in (found or ()) and kind in ("real", "like", "into")}) <= 1


@pytest.mark.long
@pytest.mark.parametrize("name", WITH_ARRAYS)
def test_compiled_code_takes_each_kind_of_array(name):
    """Read-only, non-contiguous and other integer arrays give the results of usual arrays."""
    written = {each.name for each in parse(SPECS[name])
               if each.kind.startswith(("into", "alike"))}
    other = {np.dtype(np.int32): np.int64, np.dtype(np.int64): np.int32}
    given = case(name)
    for key, array in given.items():
        if isinstance(array, np.ndarray) and key not in written:
            given[key] = read_only(array.astype(other.get(array.dtype, array.dtype)))
    assert not held_against_the_reference(name, given)
    for change in strided, np.asfortranarray, CHANGES["reversed"], CHANGES["columns"]:
        for argument, value in case(name).items():
            if isinstance(value, np.ndarray):
                given = case(name)
                given[argument] = change(value)
                held_against_the_reference(name, given)


@pytest.mark.parametrize("name", [name for name in SPECS if " into" in SPECS[name]])
def test_an_array_that_is_written_may_not_be_another(name):
    for argument in parse(SPECS[name]):
        for other, value in case(name).items():
            given = case(name)
            out = given[argument.name]
            alike = isinstance(value, np.ndarray) and (value.shape, value.dtype) == (
                out.shape, out.dtype)
            mine = other in (argument.name, *argument.aliases)
            if argument.kind.startswith("into") and alike and not mine:
                given[other] = out
                with pytest.raises(ValueError, match="overlaps"):
                    getattr(cpu, name)(**given)


@pytest.mark.parametrize("name", [name for name in SPECS if "? into" in SPECS[name]])
def test_what_is_written_is_not_read(name):
    """Output arrays full of NaN give the reference's results, so kernels do not read them."""
    results = []
    for kernels in (cpu, reference):
        given = case(name)
        for argument in parse(SPECS[name]):
            out = given.get(argument.name)
            if argument.optional and argument.kind.startswith("into") and out.dtype.kind == "f":
                out.fill(np.nan)
        results.append(outcome(kernels, name, given))
    for result, expected in zip(*results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("name, changed, message", [
    ("spmm", {"x": np.ones((N, F), int)}, "spmm: x has dtype int64, expected float32 or float64"),
    ("spmm", {"x": np.ones(N)}, r"spmm: x has shape \(10,\), expected \(n, f\)"),
    ("spmm", {"x": np.ones((3, F)), "col_scale": None},
     r"spmm: indices\[\d+\] is \d, expected 0..2"),
    ("spmm", {"rows": np.array([1, 1])}, "spmm: rows lists a row twice"),
    ("spmm", {"indptr": case("spmm")["indptr"][::-1].copy()},
     "spmm: indptr does not rise from 0 or more to at most 40, the length"),
    ("softmax_cross_entropy", {"labels": np.full(M, F)},
     r"labels at rows\[0\] is 9, expected 0..8"),
    ("spread_gradient", {"labels": np.full(M, F + 3)},
     r"labels at rows\[0\] is 12, expected 0..11"),
    ("spread_gradient", {"first": 4}, "target has 12 classes, but the block of logits ends"),
    ("activate", {"vertex": None}, "vertex is None, expected vertex numbers"),
    ("activate", {"mask": None, "drawn": True}, "mask is None: with drawn it holds the bits"),
    ("dropout_bits", {"p": 1.5}, "p is 1.5, expected 0 <= p < 1"),
    ("dropout_bits", {"seed": -1}, "seed is -1, expected 0..18446744073709551615"),
    ("dropout_bits", {"width": 2.5}, "width is 2.5, expected an integer"),
    ("adam", {"decayed": 21}, "decayed is 21, expected at most 20"),
    ("adam", {"step": 0}, "step is 0, expected 1"),
    ("aggregate_backward", {"transposed": (np.arange(3), np.arange(2), np.arange(2))},
     "indptr has shape")])
def test_refusals_say_what_and_where(name, changed, message):
    with pytest.raises((TypeError, ValueError), match=message):
        getattr(cpu, name)(**{**case(name), **changed})


def product():
    given = case("spmm")
    return {key: given[key] for key in ("indptr", "indices", "data", "x")}


def test_indices_are_looked_at_again_while_they_can_change():
    given = product()
    cpu.spmm(**given)
    given["indices"][3] = N
    with pytest.raises(ValueError, match=r"indices\[3\] is 10"):
        cpu.spmm(**given)
    view = read_only(given["indices"][:])
    given["indices"][3] = 0
    reference.spmm(**{**given, "indices": view})
    given["indices"][3] = -1
    with pytest.raises(ValueError, match=r"indices\[3\] is -1"):
        reference.spmm(**{**given, "indices": view})


def test_read_only_indices_are_looked_at_once(monkeypatch):
    scan = content_checks._largest
    sizes = []
    given = case("gather")
    monkeypatch.setattr(content_checks, "_largest",
                        lambda array: sizes.append(array.size) or scan(array))
    read_only(given["index"])
    for _ in range(3):
        reference.gather(**given)
    assert sizes == [given["index"].size]
    known = functools.partial(len, content_checks._facts_of)
    before = known()
    del given
    assert known() == before - 1


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_many_indices_are_looked_at_by_all_threads(dtype):
    index = np.arange(3 * content_checks.LARGE, dtype=dtype)[::-1] % 1000
    x = np.zeros((1000, 1))
    with threshold(0):
        reference.gather(x, index)
        for wrong in (1000, -1):
            place = 2 * content_checks.LARGE
            index[place] = wrong
            with pytest.raises(ValueError, match=rf"index\[{place}\] is {wrong}"):
                reference.gather(x, index)


def test_accumulating_into_nothing_begins_with_zeros():
    for _ in range(3):
        result = cpu.spmm(**product(), accumulate=True)
        np.testing.assert_allclose(result, reference.spmm(**product()), rtol=1e-5)

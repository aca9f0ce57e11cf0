"""The door of the public kernels: whatever an array is like, the result is the reference's, or a refusal."""
import functools

import numpy as np
import pytest

from hpgcn.kernels import checks, cpu, reference

M, N, F, K = 12, 10, 9, 40
INDPTR = np.array([0, 5, 5, 9, 12, 13, 20, 22, 25, 30, 33, 36, 40])


def arrays(seed=0):
    """One fresh array of each kind that the cases take."""
    rng = np.random.default_rng(seed)
    real = {"x": (N, F), "y": (N, F), "z": (M, F), "g": (M, F), "out": (M, F), "col": N, "row": M, "f": F, "e": (K, F),
            "w": 20, "v": 20, "average": 20, "slope": 20, "W": (F, 4), "data": K}
    found = {name: (rng.random(shape) + 0.5).astype(np.float32) for name, shape in real.items()}
    return {**found, "indptr": INDPTR.copy(), "indices": rng.integers(0, N, K).astype(np.int32),
            "rows": rng.permutation(M)[:5], "index": np.sort(rng.integers(0, N, M)), "vertex": rng.permutation(M),
            "mask": reference.pack(rng.random((M, F)) < 0.5), "labels": rng.integers(0, F, M),
            "wide": rng.random(M) + 1, "bits": np.zeros((M, 2), np.uint8), "xhat": np.empty((M, F), np.float32),
            "means": rng.random((M, 2)), "many": rng.integers(0, 2, (M, F)).astype(np.float32),
            "counter": rng.integers(0, 99, (3, 4)), "key": np.array([3, 4])}


KEY = {"seed": 3, "epoch": 2, "layer": 1, "p": 0.5}
CSR = {"indptr": "indptr", "indices": "indices"}
SPMM = {**CSR, "data": "data", "x": "x", "out": "out", "row_scale": "row", "col_scale": "col", "rows": "rows",
        "mask": "mask"}
ROWS = {"logits": "z", "labels": "labels", "rows": "rows", "grad": "out"}
NORM = {"inv_std": "wide", "gain": "f", "out": "out", "xhat": "xhat"}
CASES = {  # kernel: argument to the name of an array above, or to itself
    "activate": {"z": "z", "bias": "f", "vertex": "vertex", "mask": "bits", **KEY},
    "adam": {"w": "w", "g": "slope", "mean": "average", "variance": "v", "step": 2, "lr": 0.1, "decay": 0.1,
             "decayed": 5},
    "aggregate": {**CSR, "x": "x", "e": "e", "out": "out", "op": "mul", "reduce": "max"},
    "aggregate_backward": {**CSR, "x": "x", "e": "e", "grad": "g", "op": "div", "reduce": "mean"},
    "apply_mask": {"x": "z", "mask": "mask"},
    "column_sum": {"x": "x"},
    "dropout": {"x": "z", "vertex": "vertex", "out": "out", **KEY},
    "dropout_bits": {"vertex": "vertex", "width": F, **KEY},
    "dropout_csr": {**CSR, "data": "data", "vertex": "vertex", "out": "e0", **KEY},
    "dropout_scale": {"p": 0.5},
    "gather": {"x": "x", "index": "index", "out": "out"},
    "inner": {"x": "x", "y": "y"},
    "layer_norm": {"x": "z", "mean": "row", "bias": "f", **NORM},
    "layer_norm_backward": {"g": "g", "means": "means", **NORM, "xhat": "z"},
    "layer_norm_backward_sums": {"g": "g", "xhat": "z", "gain": "f"},
    "matmul": {"x": "z", "y": "W", "out": "o4"},
    "philox": {"counter": "counter", "key": "key"},
    "row_squares": {"x": "z", "mean": "wide"},
    "row_sum": {"x": "x"},
    "scatter_add": {"x": "z", "index": "index", "out": "x"},
    "sgd": {"w": "w", "g": "slope", "lr": 0.1, "decay": 0.1, "decayed": 5},
    "sigmoid_cross_entropy": {**ROWS, "labels": "many"},
    "softmax_cross_entropy": ROWS,
    "spmm": SPMM,
    "spread_argmax": {"logits": "z", "first": 3, "top": "row"},
    "spread_gradient": {**ROWS, "first": 3, "top": "row", "total": "row"},
    "spread_max": {"logits": "z"},
    "spread_sum": {"logits": "z", "top": "row"},
    "sspmm": SPMM,
    "transpose_pattern": {**CSR, "n": N},
}

def strided(array):
    wide = np.zeros([2 * length for length in array.shape], array.dtype)
    wide[tuple(slice(None, None, 2) for _ in array.shape)] = array
    return wide[tuple(slice(None, None, 2) for _ in array.shape)]


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)
    memory[1:] = array.view(np.uint8).ravel() if array.flags.c_contiguous else 0
    return memory[1:].view(array.dtype).reshape(array.shape)


def spoiled(array, value):
    array = array.copy()
    array.flat[array.size // 2] = value
    return array


def read_only(array):
    array.flags.writeable = False
    return array


CHANGES = {
    "fortran": np.asfortranarray, "strided": strided, "unaligned": unaligned,
    "reversed": lambda a: np.flip(np.flip(a).copy()), "columns": lambda a: np.repeat(a, 2, -1)[..., ::2],
    "flat": np.ravel, "one more axis": lambda a: a[None], "short": lambda a: a[:-1], "long": lambda a: np.r_[a, a[:1]],
    "narrow": lambda a: a[..., :-1].copy(), "empty": lambda a: a[:0],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    **{dtype: lambda a, dtype=dtype: a.astype(dtype)
       for dtype in ("float16", "float64", "complex64", "int16", "int64", "uint64", "bool", "object", "U9")},
    "list": np.ndarray.tolist, "masked": np.ma.masked_array, "number": lambda a: 3, "read-only": read_only,
    "negative": lambda a: spoiled(a, -2) if a.dtype.kind == "i" else a,
    "too large": lambda a: spoiled(a, 10**6) if a.dtype.kind == "i" else a,
    "twice": lambda a: np.broadcast_to(a[:1], a.shape)}


def case(name):
    """Arguments of a kernel, fresh."""
    known = arrays()
    known["e0"], known["o4"] = np.zeros(K, np.float32), np.zeros((M, 4), np.float32)
    return {key: known[value] if isinstance(value, str) and value in known else value
            for key, value in CASES[name].items()}


def outcome(kernels, name, given):
    """What a kernel returns and what it leaves in each array."""
    result = getattr(kernels, name)(**given)
    found = list(result) if isinstance(result, tuple) else [result]
    return [np.asarray(one, np.float64) for one in (*found, *given.values())
            if isinstance(one, (np.ndarray, np.generic, float, int)) and not isinstance(one, np.ma.MaskedArray)
            and np.asarray(one).dtype.kind in "biuf"]


def clean(given, usual):
    """The same numbers, in the order and, where they were floats, in the dtype that the reference expects."""
    found = {}
    for key, value in given.items():
        if isinstance(value, np.ndarray):
            dtype = usual[key].dtype if usual[key].dtype.kind == "f" and value.dtype.kind in "biu" else value.dtype
            value = np.array(value, dtype.newbyteorder("="), order="C")
        found[key] = value
    return found


def held_against_the_reference(name, given):
    """Run a kernel; True if it refused, in one line that begins with its name."""
    expected_from = clean(given, case(name))
    try:
        found = outcome(cpu, name, given)
    except (TypeError, ValueError) as error:
        assert str(error).startswith(f"{name}: "), error
        assert "\n" not in str(error)
        return True
    expected = outcome(reference.trusted, name, expected_from)
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-4)
    return False


def test_each_kernel_has_a_case_and_a_spec():
    assert set(CASES) == set(cpu.__all__) == set(checks.SPECS)


@pytest.mark.parametrize("name", CASES)
def test_what_is_right_is_taken(name):
    assert not held_against_the_reference(name, case(name))
    with pytest.raises(TypeError):
        getattr(cpu, name)()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [name for name in CASES if checks.SPECS[name]])
def test_any_array_in_any_place(name, change):
    for argument, value in case(name).items():
        if isinstance(value, np.ndarray):
            given = case(name)
            given[argument] = CHANGES[change](given[argument])
            with np.errstate(all="ignore"):
                held_against_the_reference(name, given)


@pytest.mark.parametrize("name", [name for name in CASES if " into" in checks.SPECS[name]])
def test_an_array_that_is_written_may_not_be_another(name):
    for argument in checks.parse(checks.SPECS[name]):
        for other, value in case(name).items():
            given = case(name)
            out = given[argument.name]
            same = isinstance(value, np.ndarray) and value.shape == out.shape and value.dtype == out.dtype
            if argument.kind.startswith("into") and same and other not in (argument.name, *argument.aliases):
                given[other] = out
                with pytest.raises(ValueError, match="overlaps"):
                    getattr(cpu, name)(**given)


@pytest.mark.parametrize("name, changed, message", [
    ("spmm", {"x": np.ones((N, F), int)}, "spmm: x has dtype int64, expected float32 or float64"),
    ("spmm", {"x": np.ones(N, np.float32)}, r"spmm: x has shape \(10,\), expected \(n, f\)"),
    ("spmm", {"x": np.ones((3, F), np.float32)}, r"spmm: indices\[\d+\] is \d, expected 0..2"),
    ("spmm", {"rows": np.array([1, 1])}, "spmm: rows has a row twice"),
    ("spmm", {"indptr": INDPTR[::-1].copy()}, "spmm: indptr does not rise from 0 or more to at most the 40 entries"),
    ("softmax_cross_entropy", {"labels": np.full(M, F)}, r"labels at rows\[0\] is 9, expected 0..8"),
    ("activate", {"vertex": None}, "vertex is None: with p > 0 it keys the draw"),
    ("dropout_bits", {"p": 1.5}, "p is 1.5, expected 0 <= p < 1"),
    ("dropout_bits", {"seed": -1}, "seed is -1, expected 0..18446744073709551615"),
    ("dropout_bits", {"width": 2.5}, "width is 2.5, expected an integer"),
    ("adam", {"decayed": 21}, "decayed is 21, of 20 numbers"), ("adam", {"step": 0}, "step is 0, expected 1"),
    ("aggregate_backward", {"transposed": (np.arange(3), np.arange(2), np.arange(2))}, "indptr has shape")])
def test_refusals_say_what_and_where(name, changed, message):
    with pytest.raises((TypeError, ValueError), match=message):
        getattr(cpu, name)(**{**case(name), **changed})


def test_indices_are_looked_at_again_while_they_can_change():
    given = {key: value for key, value in case("spmm").items() if key in ("indptr", "indices", "data", "x")}
    cpu.spmm(**given)
    given["indices"][3] = N
    with pytest.raises(ValueError, match=r"indices\[3\] is 10"):
        cpu.spmm(**given)
    view = given["indices"][:]
    view.flags.writeable = False
    given["indices"][3] = 0
    cpu.spmm(**{**given, "indices": view})
    given["indices"][3] = -1
    with pytest.raises(ValueError, match=r"indices\[3\] is -1"):
        cpu.spmm(**{**given, "indices": view})


def test_read_only_indices_are_looked_at_once(monkeypatch):
    looked, given = [], case("gather")
    monkeypatch.setattr(checks, "_scan", lambda array, scan=checks._scan: looked.append(array.size) or scan(array))
    given["index"].flags.writeable = False
    for _ in range(3):
        cpu.gather(**given)
    known = functools.partial(len, checks._known)
    assert looked == [M]
    before = known()
    del given
    assert known() == before - 1


def test_accumulating_into_nothing_begins_with_zeros():
    given = {key: value for key, value in case("spmm").items() if key in ("indptr", "indices", "data", "x")}
    for _ in range(3):
        np.testing.assert_allclose(cpu.spmm(**given, accumulate=True), reference.spmm(**given), rtol=1e-5)

"""Valid arguments for every kernel, and options that tests of several kernels share."""
import functools

import numpy as np
import pytest

from hpgcn.kernels import pack_mask
from hpgcn.kernels.specs import SPECS, length_of, parse


def long(*values):
    """Return a test case marked long, because it compiles its own kernels."""
    return pytest.param(*values, marks=pytest.mark.long)


DTYPES = pytest.mark.parametrize("dtype", [np.float64, long(np.float32)])
CUTS = [[], [0], [5], [0, 0, 3, 3, 8, 11], [*range(1, 11)]]  # cuts of 11 columns into blocks
KEY = {"seed": 3, "epoch": 2, "layer": 1, "p": 0.5}
STEP = {"lr": 0.1, "decay": 0.1, "decayed": 5}
OPTIONS = {  # arguments that are no arrays, or left out; all others are made from SPECS
    "activate": KEY, "activate_smooth": {"kind": "gelu", **KEY}, "adam": {"step": 2, **STEP},
    "aggregate": {"op": "mul", "reduce": "max"},
    "aggregate_backward": {"op": "div", "reduce": "mean", "arg": None}, "attend": KEY,
    "attend_backward": KEY, "attention_bits": {"heads": 9, **KEY}, "dropout": KEY,
    "dropout_bits": {"width": 9, **KEY}, "dropout_csr": KEY, "dropout_scale": {"p": 0.5},
    "edge_dot": {"heads": 3}, "elu_backward": {"scale": 2.0}, "sgd": STEP,
    "spread_argmax": {"first": 3}, "spread_gradient": {"first": 3}, "transpose_pattern": {"n": 10}}


def tolerance(dtype):
    single = dtype == np.float32
    return {"rtol": 2e-6 if single else 1e-13, "atol": 1e-7 if single else 1e-14}


@functools.cache
def arrays(name, scale):
    """Return all array arguments of a kernel: 12 `scale` rows, 10 columns, 9 features."""
    rng = np.random.default_rng(0)
    lengths = {"m": 12 * scale, "n": 10, "f": 9, "k": 40 * scale, "u": 40 * scale, "h": 3, "d": 3,
               "r": 5 * scale, "s": 20 * scale, "w": 18}
    made = {}
    for argument in parse(SPECS[name]):
        shape = tuple({"...": 3, "*": lengths["f"] + 3}.get(word) or length_of(word, lengths)
                      for word in argument.shape)
        limit = lengths.get(argument.limit, shape[0] if argument.limit else lengths["f"])
        made[argument.name] = values(rng, argument, shape, limit, lengths)
    return made


def values(rng, argument, shape, limit, lengths):
    """Return random contents that an argument of a kernel may have."""
    kind = argument.kind.removesuffix("16")
    if kind == "pointers":  # the second row is empty
        indptr = np.sort(rng.integers(0, lengths["k"], shape[0]))
        indptr[0], indptr[2], indptr[-1] = 0, indptr[1], lengths["k"]
        return indptr
    if kind in ("index", "once", "classes"):
        numbers = rng.permutation(limit) if shape[0] <= limit else rng.integers(0, limit, shape[0])
        dtype = np.int32 if argument.name == "indices" else np.int64
        return numbers[:shape[0]].astype(dtype)
    if kind == "words":
        return rng.integers(0, 99, shape)
    if kind == "bits":
        return pack_mask(rng.random((shape[0], lengths[argument.shape[1][0]])) < 0.5)
    if kind == "into_bits":
        return np.zeros(shape, np.uint8)
    if argument.name == "labels":
        return rng.integers(0, 2, shape).astype(np.float64)
    return rng.random(shape) + 0.5


def case(name, scale=1):
    """Return valid arguments of the kernel `name`, with new copies of all arrays."""
    given = {key: array.copy() for key, array in arrays(name, scale).items()}
    return {**given, **OPTIONS.get(name, {})}


def outcome(kernels, name, given):
    """Run a kernel; return its results, then its arguments after the call, as float64 arrays."""
    result = getattr(kernels, name)(**given)
    results = result if isinstance(result, tuple) else (result,)
    numbers = [np.asarray(value) for value in (*results, *given.values())
               if isinstance(value, (np.ndarray, np.generic, float, int))
               and not isinstance(value, np.ma.MaskedArray)]
    return [array.astype(np.float64) for array in numbers if array.dtype.kind in "biuf"]

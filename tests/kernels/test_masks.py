"""Packed bit masks: `pack_mask` makes the documented bit order; other masks are refused."""
import doctest
import importlib
import inspect
import itertools

import numpy as np
import pytest
from cases import case

from hpgcn.kernels import cpu, cuda, pack_mask, reference, unpack_mask
from hpgcn.kernels.checks import SPECS, parse
from hpgcn.kernels.cuda.gpu_device import Device, using

READ = {name: [each.name for each in parse(spec) if each.kind == "bits"]
        for name, spec in SPECS.items()}
MASKED = [name for name, arguments in READ.items() if arguments]
GIVE = {name for name, spec in SPECS.items() if "into_bits" in spec} | {"dropout_bits"}


@pytest.mark.parametrize("width", [0, 1, 7, 8, 9, 16, 21])
def test_pack_mask_and_its_inverse(width):
    keep = np.random.default_rng(width).random((5, width)) < 0.5
    mask = pack_mask(keep)
    assert (mask.shape, mask.dtype) == ((5, -(-width // 8)), np.uint8)
    for i, j in itertools.product(range(5), range(width)):
        assert mask[i, j // 8] >> j % 8 & 1 == keep[i, j]
    np.testing.assert_array_equal(unpack_mask(mask, width), keep)


@pytest.mark.parametrize("call, error, message", [
    (lambda: pack_mask(np.ones((2, 3))), TypeError, "keep has dtype float64, expected bool"),
    (lambda: pack_mask(np.ones((2, 3), np.uint8)), TypeError, "keep has dtype uint8, expected"),
    (lambda: pack_mask([True]), ValueError, r"keep has shape \(1,\), expected \(m, f\)"),
    (lambda: unpack_mask(np.ones((2, 1), bool), 3), TypeError, "mask has dtype bool"),
    (lambda: unpack_mask(np.ones((2, 1), np.uint8), 9), ValueError, r"expected \(m, 2\) for 9 col"),
    (lambda: unpack_mask(np.array([[1], [8]], np.uint8), 3), ValueError,
     r"mask\[1\] has bits beyond its 3 columns, .*little")])
def test_what_is_no_mask_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("kernels", [reference, cpu, cuda])
@pytest.mark.parametrize("name", MASKED)
def test_a_mask_in_the_other_order_is_refused(name, kernels):
    (argument,) = READ[name]
    given = case(name)
    width = {"matmul": 10}.get(name, 9)
    keep = unpack_mask(given[argument], width)
    keep[1:, -1] = True
    big = np.packbits(keep, axis=1)
    spaced = np.zeros((len(big), 2 * big.shape[1]), np.uint8)[:, ::2]  # copied to C order first
    spaced[...] = big
    spaced[0] = pack_mask(keep)[0]
    with using(Device()):
        for row, mask in (int(~keep[0, -1]), big), (1, spaced):
            with pytest.raises(ValueError, match=rf"{name}: {argument}\[{row}\] has bits beyond "
                               rf"its {width} columns, .*bitorder=\"little\".*pack_mask"):
                getattr(kernels, name)(**{**given, argument: mask})
        with pytest.raises(TypeError, match=f"{argument} has dtype bool, .*pack_mask"):
            getattr(kernels, name)(**{**given, argument: keep})


@pytest.mark.parametrize("name", ["activate", "activate_smooth", "dropout_bits"])
def test_what_kernels_write_has_no_bits_beyond(name):
    given = case(name)
    made = given.get("mask")
    result = cpu.__dict__[name](**given)
    unpack_mask(result if made is None else made, 9)


@pytest.mark.parametrize("kernels", [reference, cpu, cuda])
@pytest.mark.parametrize("name", sorted({*MASKED, *GIVE}))
def test_docstrings_name_the_order(name, kernels):
    text = inspect.getdoc(getattr(kernels, name))
    assert "little" in text and ("pack_mask" in text or "packbits" in text)


@pytest.mark.parametrize("module", ["masks", "reference.spmm"])
def test_examples(module):
    found = importlib.import_module(f"hpgcn.kernels.{module}")
    failed, tried = doctest.testmod(found)
    assert tried and not failed

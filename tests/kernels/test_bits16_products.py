"""Dense bf16 products by each method that this CPU supports: tiles, pairs, or widening."""
import numpy as np
import pytest
from arrays import assert_all
from test_bits16 import (  # noqa: F401 - run here once more
    random,
    stored,
    test_dense_products,
    test_long_sums_are_in_float32_and_in_an_order_of_their_own,
)

from hpgcn.kernels import cpu, pack_mask
from hpgcn.kernels.bits16 import BF16, to_float32
from hpgcn.kernels.cpu.dense import gemm
from hpgcn.kernels.cpu.emit import amx_intrinsics, emitter

pytestmark = pytest.mark.long  # test_bits16 multiplies by the method that this CPU uses

@pytest.fixture(autouse=True, params=["tiles", "pairs", "widened"])
def way(request, monkeypatch):
    has = {"tiles": amx_intrinsics.has_tiles(), "pairs": emitter.has_dots(), "widened": True}
    if not has[request.param]:
        pytest.skip(f"this CPU multiplies no {request.param} of 16 bits")
    monkeypatch.setattr(gemm, "has_tiles", lambda: request.param == "tiles")
    monkeypatch.setattr(gemm, "uses_dots", lambda: request.param == "pairs")


SHAPES = pytest.mark.parametrize("k, n", [(31, 16), (32, 17), (33, 64), (1, 130)])


@SHAPES
def test_a_row_has_the_same_bits_wherever_it_lies(k, n):
    x, W = stored((97, k)), random((k, n), 1)
    for kind in (BF16, np.float32):
        whole = cpu.matmul(x, W, np.empty((97, n), kind))
        for first, last in ((0, 16), (13, 50), (96, 97)):
            part = cpu.matmul(x[first:last], W, np.empty((last - first, n), kind))
            np.testing.assert_array_equal(part, whole[first:last])


@SHAPES
def test_numbers_of_other_rows_are_not_read(k, n):
    x, W = stored((50, k)), random((k, n), 1)
    expected = cpu.matmul(x, W)
    x[[0, 17, 49]] = 0x7FC0  # NaN
    found = cpu.matmul(x, W)
    sick = np.isin(np.arange(50), [0, 17, 49])
    assert_all(np.isnan(found[sick]))
    np.testing.assert_array_equal(found[~sick], expected[~sick])
    others = np.delete(np.arange(50), [0, 17, 49])
    x, g = stored((50, k)), stored((50, n), 2)
    x[[0, 17, 49]] = g[[0, 17, 49]] = 0
    total = to_float32(x[others]).T.astype(float) @ to_float32(g[others])
    np.testing.assert_allclose(cpu.matmul(x.T, g), total, rtol=1e-5, atol=1e-4)


@SHAPES
@pytest.mark.parametrize("m", [15, 100, 1000])
def test_masks_of_products(m, k, n):
    x, W = stored((m, k)), random((k, n), 1)
    mask = pack_mask(np.random.default_rng(m).random((m, n)) < 0.5)
    keep = np.unpackbits(mask, axis=1, bitorder="little")[:, :n].astype(bool)
    for kind in (BF16, np.float32):
        whole = cpu.matmul(x, W, np.empty((m, n), kind))
        found = cpu.matmul(x, W, np.empty((m, n), kind), mask=mask)
        np.testing.assert_array_equal(found, np.where(keep, whole, 0))


@pytest.mark.parametrize("m", [126, 127, 129, 400, 9000])
@pytest.mark.parametrize("k, n", [(16, 16), (15, 17), (40, 64), (17, 130)])
def test_sums_over_rows_of_any_number(m, k, n):
    x, g = stored((m, k)), stored((m, n), 1)
    total = to_float32(x).T.astype(float) @ to_float32(g)
    scale = np.abs(to_float32(x)).T @ np.abs(to_float32(g))
    assert_all(np.abs(cpu.matmul(x.T, g) - total) <= 2e-6 * scale + 1e-30)

"""Dense products on a GPU are one call of cuBLAS, with the numbers of the CPU."""
import fake_cupy
import numpy as np
import pytest
from shim import COMPILER, shared_folder

from hpgcn.kernels import cpu, cuda
from hpgcn.kernels.bits16 import BF16, numbers, to_bf16
from hpgcn.kernels.cuda import cublas

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
M, K, N = 37, 12, 5


@pytest.fixture(params=["", "all"])
def gpu(request):
    with fake_cupy.installed(shared_folder(), late=request.param) as device:
        yield device.xp


def operands(across, dtype):
    """Return whole numbers, whose sums are exact: x or its transpose in rows, and y."""
    rng = np.random.default_rng(0)
    x = to_bf16(rng.integers(-9, 9, (K, M) if across else (M, K)).astype(np.float32))
    y = rng.integers(-9, 9, (K, N)).astype(np.float32)
    return x, to_bf16(y) if dtype == BF16 else y


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("dtype", [BF16, np.float32])
@pytest.mark.parametrize("out", [BF16, np.float32, None])
def test_products(gpu, across, dtype, out):
    x, y = operands(across, dtype)
    found = None if out is None else gpu.asarray(np.full((M, N), 7, out))
    given = gpu.asarray(x)
    for each in (BF16, np.float32):  # the first call tries a product
        cublas.multiply(gpu.empty((1, 2), each), gpu.empty((2, 3), each),
                        gpu.empty((1, 3), np.float32))
    before = fake_cupy.Device.products
    found = cuda.matmul(given.T if across else given, gpu.asarray(y), found)
    # rows of x round y, as on the CPU; a sum over rows reads the numbers that y has
    assert fake_cupy.Device.products - before == (dtype == BF16 or not across)
    expected = numbers(x.T if across else x) @ numbers(y)
    np.testing.assert_array_equal(found.get(), to_bf16(expected) if out == BF16 else expected)
    np.testing.assert_array_equal(
        cpu.matmul(x.T if across else x, y, None if out is None else np.empty((M, N), out)),
        found.get())


def test_weights_across_rows_and_empty_operands(gpu):
    x, y = operands(False, BF16)
    turned = gpu.asarray(np.ascontiguousarray(y.T)).T
    np.testing.assert_array_equal(cuda.matmul(gpu.asarray(x), turned).get(),
                                  numbers(x) @ numbers(y))
    for rows, width in ((0, K), (3, 0)):
        empty = cuda.matmul(gpu.empty((rows, width), BF16), gpu.empty((width, N), BF16))
        np.testing.assert_array_equal(empty.get(), np.zeros((rows, N)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("turned", [False, True])
def test_rows_with_gaps(gpu, dtype, turned):
    """Columns of a wider array, or rows of a taller one, are multiplied where they are."""
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((M, K + 3), (K + 2, N + 4)))
    given = [gpu.asarray(np.ascontiguousarray(each.T)).T if turned else gpu.asarray(each)
             for each in (x, y)]
    before = fake_cupy.Device.products
    out = gpu.empty((M, N), dtype)
    assert cublas.multiply(given[0][:, 3:], given[1][:K, 2:2 + N], out)
    assert fake_cupy.Device.products > before
    np.testing.assert_array_equal(out.get(), x[:, 3:] @ y[:K, 2:2 + N])
    assert not cublas.multiply(given[0][:, :K:2], given[1][:K:2, :N], out[:, ::2])


@pytest.mark.parametrize("failure", [ValueError("CUBLAS_STATUS_NOT_SUPPORTED"), None])
def test_products_where_cublas_fails(gpu, failure, monkeypatch, caplog):
    def refuse(*_):
        if failure:
            raise failure

    gpu.cuda.cublas.gemmEx = refuse
    monkeypatch.setattr(cublas, "load_library", lambda major: None)
    caplog.set_level("DEBUG", logger="hpgcn")
    x, y = operands(False, BF16)
    found = cuda.matmul(gpu.asarray(x), gpu.asarray(y))
    np.testing.assert_array_equal(found.get(), numbers(x) @ numbers(y))
    assert str(failure or "a product is wrong") in caplog.text


def test_a_library_of_another_place_is_tried_through_cupy(gpu, monkeypatch):
    monkeypatch.setattr(cublas, "load_library", lambda major: None)
    x, y = operands(False, BF16)
    before = fake_cupy.Device.products
    found = cuda.matmul(gpu.asarray(x), gpu.asarray(y))
    np.testing.assert_array_equal(found.get(), numbers(x) @ numbers(y))
    assert fake_cupy.Device.products == before + 2  # with the product that is tried

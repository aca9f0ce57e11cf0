"""Dense products of 16 bits on a GPU are one call of cuBLAS, with the numbers of the CPU."""
import fake_cupy
import numpy as np
import pytest
from shim import COMPILER, shared_folder

from hpgcn.kernels import cpu, cuda
from hpgcn.kernels.bits16 import BF16, numbers, to_bf16
from hpgcn.kernels.cuda import tensor_cores

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
    tensor_cores.multiply(gpu.empty((1, 2), BF16), gpu.empty((2, 3), BF16),
                          gpu.empty((1, 3), np.float32))  # the first call tries a product
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


@pytest.mark.parametrize("failure", [ValueError("CUBLAS_STATUS_NOT_SUPPORTED"), None])
def test_products_in_float32_where_tensor_cores_fail(gpu, failure, monkeypatch, caplog):
    def refuse(*_):
        if failure:
            raise failure

    gpu.cuda.cublas.gemmEx = refuse
    caplog.set_level("DEBUG", logger="hpgcn")
    x, y = operands(False, BF16)
    found = cuda.matmul(gpu.asarray(x), gpu.asarray(y))
    np.testing.assert_array_equal(found.get(), numbers(x) @ numbers(y))
    assert str(failure or "a product is wrong") in caplog.text

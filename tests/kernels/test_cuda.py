"""CUDA kernels on a GPU pass the tests of the CPU kernels, however threads share the rows."""
import numpy as np
import pytest
from shim import host_twin, twins

from hpgcn.kernels import backend, cuda, pack_mask, reference
from hpgcn.kernels.cuda.gpu_device import CupyDevice, using

cupy = pytest.importorskip("cupy", reason="no CuPy")
try:
    count = cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError:  # no driver, or one that is too old
    count = 0
if not count:
    pytest.skip("no GPU", allow_module_level=True)
pytestmark = pytest.mark.usefixtures("device")
globals().update(twins(host_twin(cuda, cupy)))
DEVICES = [CupyDevice(warps) for warps in (False, True)]


@pytest.fixture(params=DEVICES, ids=["threads", "warps"])
def device(request):
    """Set the device of a test: one with independent threads, or one with warps."""
    with using(request.param):
        yield request.param


def graph(m, n, *, longest, seed=0):
    """Return CSR arrays with rows of 0 to 29 nonzeros; one row in a hundred has up to `longest`."""
    rng = np.random.default_rng(seed)
    count = np.where(rng.random(m) < 0.01, rng.integers(0, longest, m), rng.integers(0, 30, m))
    indptr = np.r_[0, count.cumsum()]
    indices = rng.integers(0, n, indptr[-1]).astype(np.int32)
    return indptr, indices, rng.standard_normal(indptr[-1]).astype(np.float32)


@pytest.mark.parametrize("f", [1, 7, 16, 32, 41, 64, 128, 256, 602])
@pytest.mark.parametrize("longest", [60, 6000])
@pytest.mark.parametrize("masked", [False, True])
def test_large_products(f, longest, masked):
    indptr, indices, data = graph(3000, 2000, longest=longest)
    rng = np.random.default_rng(f)
    x = rng.standard_normal((2000, f)).astype(np.float32)
    mask = pack_mask(rng.random((3000, f)) < 0.5) if masked else None
    expected = reference.spmm(indptr, indices, data.astype(float), x.astype(float), mask=mask)
    operands = [None if a is None else cupy.asarray(a) for a in (indptr, indices, data, x, mask)]
    one, two = (cuda.spmm(*operands[:4], mask=operands[4]).get() for _ in range(2))
    np.testing.assert_allclose(one, expected, rtol=0, atol=3e-6 * np.abs(expected).max())
    assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("f", [3, 16, 41, 100, 256])
def test_lanes_do_not_change_the_bits(f):
    indptr, indices, data = map(cupy.asarray, graph(500, 400, longest=3000))
    x = cupy.asarray(np.random.default_rng(f).standard_normal((400, f)).astype(np.float32))
    bits = set()
    for device in DEVICES:
        with using(device):
            bits.add(cuda.spmm(indptr, indices, data, x).get().tobytes())
    assert len(bits) == 1


def test_long_rows_of_attention_and_of_messages():
    indptr, indices, _ = graph(3000, 3000, longest=6000)
    rng = np.random.default_rng(0)
    x, features, grad = (rng.standard_normal(shape).astype(np.float32)
                         for shape in ((3000, 64), (indices.size, 11), (3000, 64)))
    scores = rng.standard_normal((3000, 4)).astype(np.float32)
    pulled = rng.standard_normal((3000, 64 + 3 * 4)).astype(np.float32)
    edge = rng.permutation(indices.size)
    weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((11, 64), 64))
    calls = {"attend": (indptr, indices, x, scores, scores),
             "attend_backward": (indptr, indices, pulled, x, scores),
             "edge_relu": (indptr, indices, edge, x, features, weight, bias),
             "edge_relu_backward": (indptr, indices, edge, x, features, weight, bias, grad)}
    for name, given in calls.items():
        on_gpu = [cupy.asarray(array) for array in given]
        one, two = (getattr(cuda, name)(*on_gpu) for _ in range(2))
        expected = getattr(reference, name)(*given)
        together = [each if isinstance(each, tuple) else (each,) for each in (one, two, expected)]
        for mine, again, other in zip(*together):
            scale = np.abs(other[np.isfinite(other)]).max()
            np.testing.assert_allclose(mine.get(), other, rtol=0, atol=1e-5 * scale)
            assert mine.tobytes() == again.tobytes()


def test_bits_are_those_of_the_reference():
    vertex = np.random.default_rng(0).integers(0, 2**45, 10_000)
    key = {"seed": 2**63 + 5, "epoch": 9, "layer": 3, "p": 0.3, "first": 13}
    bits = cuda.dropout_bits(cupy.asarray(vertex), 100, **key)
    np.testing.assert_array_equal(bits.get(), reference.dropout_bits(vertex, 100, **key))


def test_arrays_stay_on_the_gpu():
    x = cupy.ones((4, 3), np.float32)
    assert backend(x) is cuda.trusted and isinstance(cuda.column_sum(x), cupy.ndarray)
    assert cuda.activate(x, cupy.zeros(3, np.float32)) is x
    loss, correct = cuda.softmax_cross_entropy(x, cupy.zeros(4, np.int64), cupy.arange(4))
    assert isinstance(loss, cupy.ndarray)
    assert (float(loss), int(correct)) == (pytest.approx(4 * np.log(3)), 4)

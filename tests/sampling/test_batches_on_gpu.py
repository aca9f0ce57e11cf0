"""Batches cut on a GPU equal those of the CPU to the bit, at any number of ranks."""
import numpy as np
import pytest
from cuda_ranks import cuda, gpu
from graphs import dealt, make, scattered

from hpgcn import store
from hpgcn.comm import SerialComm, as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.kernels.cuda import submatrix
from hpgcn.partition import Partition
from hpgcn.runtime.device import HOST
from hpgcn.sampling import SAMPLERS, keyed_draws, submatrix_kernels
from hpgcn.strategies import STRATEGIES
from hpgcn.training.trainer import make_trainer

__all__ = ["cuda", "gpu"]
STRATEGIES_OF_BATCHES = [name for name, each in STRATEGIES.items() if each.supports_minibatches]
# a batch of every vertex, of one, and batches that leave ranks without rows
BATCHES = ["vertices:60", "vertices:1", "parts:3:FILE", "neighbors:3,2:25", "neighbors:-1,4:1000",
           "neighbors:300,1:2"]


def bits(array):
    """Return dtype, shape and bytes of an array of the host or of a GPU."""
    array = array if isinstance(array, np.ndarray) else array.get()
    return array.dtype, array.shape, array.tobytes()


def map_of(each):
    """Return all arrays of the map of a batch: its blocks, their transposes and its messages."""
    blocks = [*each.product.all_blocks(), *each.back.all_blocks()]
    transfers = each.product.pull, each.product.push
    plans = [transfer.plan for transfer in transfers if hasattr(transfer, "plan")]
    arrays = [array for block in blocks for array in (
        block.indptr, block.indices, block.data, block.nonempty_rows,
        block.ordered_transpose().edges)]
    arrays += [array for plan in plans for array in (
        plan.ghosts, plan.recv_offsets, plan.send_rows, plan.send_offsets)]
    return [bits(array) for array in arrays]


def batches_of(source, config, comm, device):
    """Return the arrays of all batches of two epochs, and the losses of the epochs."""
    comm.use(device)
    found = []
    with make_trainer(source, config.replace(device=device.name), comm, warm=False) as trainer:
        builder = trainer.batches.builder
        for epoch in (1, 2):
            for number in range(builder.sampler.batches):
                batch = builder.batch(epoch, number)
                found.append([batch.totals, batch.share, *map(bits, batch.rows)])
                for each in dict.fromkeys(batch.maps):
                    found.append(map_of(each))
                    each.close()
        losses = [trainer.train_epoch(epoch)["loss"] for epoch in (1, 2)]
    return found, losses


@pytest.mark.parametrize("ranks, strategy", [
    (1, "p2p"), *((ranks, name) for ranks in (2, 3) for name in STRATEGIES_OF_BATCHES)])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("directed, dtype, model", [
    (False, "float64", "gcn"), (True, "float32", "sage-mean"), (True, "float64", "gcn")])
def test_batches_are_those_of_the_cpu(gpu, tmp_path, ranks, strategy, batch, directed, dtype,
                                      model):
    graph = make(directed=directed, weighted=directed)
    path = tmp_path / "parts.h5"
    part = np.random.default_rng(3).integers(0, 10, graph.num_rows)
    store.write_partitioned(path, graph, Partition.from_parts(part, 10))
    config = Config(strategy=strategy, layers=2, hidden=6, dropout=0.3, seed=3, dtype=dtype,
                    batch=batch.replace("FILE", str(path)), model=model)

    def compare(comm):
        comm = as_comm(comm)
        parts = dealt if STRATEGIES[strategy].accepts_nonzero_owners else scattered
        source = parts(graph, comm) if comm.size > 1 else graph
        expected, losses = batches_of(source, config, comm, HOST)
        found, on_gpu = batches_of(source, config, comm, gpu)
        assert found == expected
        np.testing.assert_allclose(on_gpu, losses, 1e-12 if dtype == "float64" else 1e-5)

    if ranks == 1:
        compare(SerialComm())
    else:
        run_on_ranks(compare, ranks)


@pytest.mark.parametrize("batch", ["vertices:60", "neighbors:3,2:25"])
@pytest.mark.parametrize("sparse", [False, True])
def test_only_sizes_pass_between_host_and_gpu(cuda, gpu, monkeypatch, batch, sparse):
    """On one rank a batch reads and writes single numbers: neither the matrix nor its rows."""
    if cuda is None:
        pytest.skip("only the functions of the fake CuPy can be replaced")
    graph = make(n=600, directed=True, sparse=sparse)
    comm = SerialComm()
    comm.use(gpu)
    config = Config(batch=batch, strategy="p2p", layers=2, hidden=6, device="cuda", dtype="float64")
    with make_trainer(graph, config, comm, warm=False) as trainer:
        trainer.batches.builder.batch(1, 0)  # the order of the epoch is drawn once
        passed = []
        for name in ("asarray", "asnumpy"):
            monkeypatch.setattr(gpu.xp, name, noting(getattr(gpu.xp, name), passed))
        monkeypatch.setattr(gpu.xp.ndarray, "get", noting(gpu.xp.ndarray.get, passed))
        for number in (1, 2):
            trainer.batches.view(number)
    assert max(passed, default=0) <= 2, passed


def noting(function, passed):
    """Return a function that notes the sizes of arrays that pass between host and GPU."""
    def call(array, *args, **options):
        result = function(array, *args, **options)
        if isinstance(array, np.ndarray) or isinstance(result, np.ndarray):
            passed.append(array.size)
        return result

    return call


@pytest.mark.parametrize("n", [1, 4096, 4097, 70_001])
def test_positions_are_those_of_the_cpu(gpu, n):
    numbers, key = np.random.default_rng(n).integers(0, n, 500), keyed_draws.key_of(2**40, 7)
    expected = keyed_draws.permuted(numbers, n, key)
    np.testing.assert_array_equal(keyed_draws.permuted(gpu.put(numbers), n, key).get(), expected)
    for sampler in (kind(n, 30, 4, *[(2, 3)] * (not kind.induced)) for kind in SAMPLERS.values()):
        number = sampler.batch_of(numbers, 3).astype(np.int32)
        on_gpu = sampler.batch_of(gpu.put(numbers), 3).astype(np.int32)
        offsets, order = submatrix_kernels.by_batch(number, sampler.batches)
        found, places = submatrix.by_batch(on_gpu, sampler.batches)
        np.testing.assert_array_equal(found, offsets)
        np.testing.assert_array_equal(places.get(), order)


@pytest.mark.parametrize("count", [-1, 1, 7, 150, 199])
@pytest.mark.parametrize("held", [1.0, 0.4])
def test_draws_of_long_rows_are_those_of_the_cpu(gpu, count, held):
    """Rows of 0 to 200 entries, of which this rank may store a share, without their order."""
    rng = np.random.default_rng(1)
    degrees = np.array([0, 1, 7, 8, 150, 200, 200, 3])
    stored = [np.flatnonzero(rng.random(degree) < held) for degree in degrees]
    indptr = np.r_[0, np.cumsum([each.size for each in stored])]
    columns = rng.integers(0, 1000, indptr[-1]).astype(np.int32)
    values = rng.standard_normal(columns.size).astype(np.float32)
    positions = np.concatenate(stored) if held < 1 else np.empty(0, np.int64)
    rows = np.array([6, 0, 5, 4, 3, 2, 1, 7])
    given = (indptr[rows], indptr[rows + 1], columns, values, positions, degrees,
             rng.integers(0, 2**40, degrees.size), rows)
    key = keyed_draws.key_of(5, 3, 1, 0)
    expected = submatrix_kernels.sample_entries(*given, count, key, 200)
    found = submatrix.sample_entries(*map(gpu.put, given), count, key, 200)
    assert [bits(array) for array in found] == [bits(array) for array in expected]


def test_positions_without_a_batch_are_left_out(gpu):
    number = np.array([2, -1, 0, 2, -1, 0], np.int32)
    offsets, order = submatrix.by_batch(gpu.put(number), 4)
    assert (offsets.tolist(), order.tolist()) == ([0, 2, 2, 4, 4], [2, 5, 0, 3])
    out = gpu.put(np.zeros(3, np.int32))
    pointers, witnesses, rows = map(gpu.put, (np.array([0, 2, 2, 3]),
                                              np.array([1, 4, 4], np.int32),
                                              np.array([4, 4, 1], np.int32)))
    submatrix.agreeing(pointers, witnesses, rows, out)
    assert out.tolist() == [4, -1, -1]

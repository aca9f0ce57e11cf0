"""Collectives and exchanges of GPU arrays have the bits of those on the host, by every route.

Without a real GPU there is a fake one that delays its work, either all of it or only
kernels. A missing wait therefore shows old numbers. A real one is sent from straight if
its MPI library can.
"""
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from cuda_ranks import real, real_or_fake
from fake_cupy import Stream, installed
from mpi4py import MPI
from shim import COMPILER, shared_folder
from simulated import halo_plans
from test_collectives import block, several_at_once

from hpgcn.comm import as_comm, collectives, staging
from hpgcn.kernels import backend
from hpgcn.parallel.halo_exchange import HaloExchange
from hpgcn.parallel.transfers import LOCAL
from hpgcn.parallel.workspace import HaloBuffers
from hpgcn.runtime.device import Cuda, choose

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")]
ROUTES = {"pinned": (), "messages straight": ("message",), "straight": ("message", "bcast")}
LATE = ("all", "kernels")
DTYPES = [np.float32, np.float64, np.uint8]
SIZES = [5, 0, 300, 1, 0, 7, 2]  # elements of each rank's block


@pytest.fixture(scope="module")
def taken():
    """Return the operations that take memory of the real GPU, by MPI's answer; None for a fake."""
    if not real():
        return None
    ranks = as_comm(MPI.COMM_WORLD, timeout=60)
    return ranks.use(choose("cuda", ranks)).direct


@pytest.fixture(ids=", late: ".join, params=[
    *[("pinned", late) for late in LATE], ("messages straight", "kernels"), ("straight", "all")])
def gpu(request, comm, taken, monkeypatch):
    """Return the GPU of `comm`, with messages set to one of the routes."""
    monkeypatch.setattr(staging, "CHUNK_BYTES", 64)
    route, late = request.param
    direct = frozenset(ROUTES[route])
    if taken is not None and not direct <= taken:
        pytest.skip("MPI takes no such memory of the GPU")
    with real_or_fake(late=late):
        device = choose("cuda", comm)
        comm.use(device, aware="0")
        if comm.size > 1:
            comm.stager.direct = direct
        yield device


def computed(device, array):
    """Return a GPU array that a kernel fills with `array`, over other numbers."""
    numbers = device.put(np.arange(array.size)[::-1].copy())
    source = device.put(np.ascontiguousarray(array[::-1]).reshape(-1, 1))
    out = device.put(np.full((array.size, 1), 77, array.dtype))
    return backend(source).gather(source, numbers, out).reshape(-1)


def doubled(device, array):
    """Return a copy of a GPU array, made by a kernel; then overwrite the original with zeros."""
    rows = array.reshape(-1, 1)
    copied = backend(rows).gather(rows, device.put(np.arange(rows.shape[0])))
    zero = device.put(np.zeros((1, 1), array.dtype))
    backend(zero).gather(zero, device.put(np.zeros(rows.shape[0], np.int64)), rows)
    return copied


def bcast(comm, dtype, salt, made, kept):
    array = made(block(comm.rank, 99, dtype, salt))
    comm.start_bcast(array, salt % comm.size, "a").wait("a broadcast")
    return [kept(array)]


def reduce(comm, dtype, salt, made, kept):
    array = made(block(comm.rank, 99, dtype, salt))
    root = salt % comm.size
    out = made(np.zeros(99, dtype)) if salt % 3 and comm.rank == root else None
    comm.start_reduce(array, out, root, "a").wait("a reduction")
    return [kept(array if out is None else out)] if comm.rank == root else []


def allreduce(comm, dtype, salt, made, kept):
    array = made(block(comm.rank, 99, dtype, salt))
    comm.allreduce(array, "a", "max" if salt % 2 else "sum")
    return [kept(array)]


def counts_of(comm, salt):
    """Return the number of elements of each rank's block, and the offset of this rank's block."""
    counts = [SIZES[(rank + salt) % 7] for rank in range(comm.size)]
    return counts, sum(counts[:comm.rank])


def allgather(comm, dtype, salt, made, kept):
    counts, begin = counts_of(comm, salt)
    out = made(np.zeros(sum(counts), dtype))
    own = made(block(comm.rank, counts[comm.rank], dtype, salt))
    if salt % 2:
        place = out[begin:begin + own.size]
        place[...] = own
        own = place
    comm.start_allgather(own, out, counts, "a").wait("an allgather")
    return [kept(out)]


def alltoall(comm, dtype, salt, made, kept):
    ranks = range(comm.size)
    outgoing = [SIZES[(comm.rank + 2 * q + salt) % 7] for q in ranks]
    incoming = [SIZES[(q + 2 * comm.rank + salt) % 7] for q in ranks]
    send = made(block(comm.rank, sum(outgoing), dtype, salt))
    recv = made(np.zeros(sum(incoming), dtype))
    comm.start_alltoall(send, outgoing, recv, incoming, "a").wait("an exchange")
    return [kept(recv)]


def reduce_scatter(comm, dtype, salt, made, kept):
    counts, begin = counts_of(comm, salt)
    packed = made(block(comm.rank, sum(counts), dtype, salt))
    size = counts[comm.rank]
    out = packed[begin:begin + size] if salt % 2 else made(np.zeros(size, dtype))
    comm.start_reduce_scatter(packed, out, counts, "a").wait("a reduce_scatter")
    return [kept(out)]


def several(comm, dtype, salt, made, kept):
    return [kept(array) for array in several_at_once(comm, comm.rank, dtype, salt, made)]


CASES = [bcast, reduce, allreduce, allgather, alltoall, reduce_scatter, several]


def adds_by_messages(comm):
    return comm.stager is not None and comm.stager.by_messages("reduce")


def same_as_on_host(comm, gpu, case, dtype, salts):
    """Compare results and counters of a case on the GPU with those on the host."""
    results = []
    expected = []
    for salt in salts:
        comm.counters.phase = f"host {salt}"
        expected += case(comm, dtype, salt, np.copy, np.copy)
        comm.counters.phase = f"gpu {salt}"
        results += case(comm, dtype, salt, lambda array: computed(gpu, array),
                        lambda array: doubled(gpu, array))
        assert comm.counters.total(f"gpu {salt}") == comm.counters.total(f"host {salt}")
        assert comm.counters.sent.get(f"gpu {salt}") == comm.counters.sent.get(f"host {salt}")
    assert len(results) == len(expected)
    # sums by messages are in rank order, those of MPI in an order of its own
    other_order = case in (reduce, allreduce, several) and adds_by_messages(comm)
    bound = 8 * other_order * (4e-7 if dtype == np.float32 else 1e-15)
    for array, other in zip(results, expected):
        np.testing.assert_allclose(gpu.get(array)[:, 0], other, rtol=bound, atol=100 * bound)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_by_messages_are_in_rank_order(comm, gpu, dtype):
    if not adds_by_messages(comm):
        pytest.skip("sums are MPI's own")
    parts = [block(rank, 99, dtype, 4) for rank in range(comm.size)]
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    for root in range(comm.size):
        array = computed(gpu, parts[comm.rank])
        comm.start_reduce(array, None, root, "a").wait("a reduction")
        np.testing.assert_array_equal(gpu.get(array), total if comm.rank == root
                                      else parts[comm.rank])
    for op, expected in (("sum", total), ("max", np.max(parts, 0))):
        array = computed(gpu, parts[comm.rank])
        comm.allreduce(array, "a", op)
        np.testing.assert_array_equal(gpu.get(array), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_collectives_give_the_bits_of_the_host(comm, gpu, case, dtype):
    # buffers come back: nothing of the last call may be left over, nor be overwritten too soon
    same_as_on_host(comm, gpu, case, dtype, range(6))


@pytest.mark.parametrize("limit", [16, 1])
@pytest.mark.parametrize("case", [several, reduce_scatter])
def test_pieces_change_no_bit(comm, gpu, case, limit, monkeypatch):
    monkeypatch.setattr(collectives, "MAX_MESSAGE_BYTES", limit)
    same_as_on_host(comm, gpu, case, np.float32, [3])


def test_a_message_that_waits_for_the_gpu_leaves_while_another_is_waited_for(comm, gpu):
    """A broadcast that waits for the GPU progresses while its rank waits in another group."""
    if comm.size < 2:
        pytest.skip("needs two ranks")
    second = comm._among(tuple(range(comm.size)))
    array = computed(gpu, block(comm.rank, 50, np.float32, 1))
    pending = comm.start_bcast(array, 0, "a")
    if comm.rank == 0:
        second.barrier()
    pending.wait("the first")
    if comm.rank:
        second.barrier()
    np.testing.assert_array_equal(gpu.get(array), block(0, 50, np.float32, 1))


N = 40  # vertices of the exchange below


def test_the_first_piece_leaves_while_the_next_is_copied(comm, monkeypatch):
    if comm.size < 2:
        pytest.skip("needs two ranks")
    monkeypatch.setattr(staging, "CHUNK_BYTES", 64)
    with installed(shared_folder(), late="all"):
        comm.use(Cuda(), aware="0")
        array = computed(comm.device, np.arange(32.0))  # 256 bytes: four pieces
        pending = comm.start_bcast(array, 0, "a")
        left = []
        while comm.rank == 0 and comm.stager.waiting:
            left.append((len(comm.stager.waiting), len(comm.stager.down.tasks)))
            pending.test()
        pending.wait("a broadcast")
        assert {number for number, _ in left} == ({4, 3, 2, 1} if comm.rank == 0 else set())
        # the last pieces are not copied yet
        assert all(copies for number, copies in left if number > 1)
        np.testing.assert_array_equal(comm.device.get(array), np.arange(32.0))


@pytest.mark.long
def test_a_launched_rank_proves_its_route_in_a_process_of_its_own(comm, tmp_path, monkeypatch):
    tests = Path(__file__).parents[1]
    paths = [str(tests / "support"), str(tests / "kernels")]
    (tmp_path / "cupy.py").write_text(f"import sys\nsys.path[:0] = {paths}\nimport fake_cupy\n"
                                      "sys.modules['cupy'] = fake_cupy.module()\n")
    monkeypatch.syspath_prepend(tmp_path)  # the probe's path as well
    with installed(tmp_path):
        route = comm.use(Cuda(), aware="1")
    assert ("message" in route.direct) == (comm.size > 1)
    assert comm.allgather(route.reason) == [route.reason] * comm.size


def plans(size, part):
    """Return the halo plans of all ranks for a random matrix, or for a part of its entries."""
    matrix = sp.random_array((N, N), density=0.2, rng=np.random.default_rng(0), format="coo")
    if part:
        matrix.data[(matrix.coords[0] + matrix.coords[1]) % 3 == 0] = 0
    pattern = matrix.tocsr()
    pattern.eliminate_zeros()
    offsets = np.linspace(0, N, size + 1).astype(np.int64)
    return halo_plans(pattern.indptr, pattern.indices, offsets)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exchange_gives_the_rows_of_others_and_returns_sums(comm, gpu, dtype):
    buffers = HaloBuffers(gpu, comm.stager, dtype)
    whole, part = (HaloExchange(plans(comm.size, some)[comm.rank], comm, buffers)
                   for some in (False, True))
    whole.reserve(5)
    arrived = []  # rows of the GPU, and what they are
    for turn in range(8):
        exchange = (whole, part)[turn % 2]
        width = (5, 3, 4)[turn % 3]
        plan = exchange.plan
        H = block(0, N * width, dtype, turn).reshape(N, width)
        own = H[plan.layout.start:plan.layout.stop]
        mine = computed(gpu, own.reshape(-1)).reshape(-1, width)
        exchange.start(mine, "a test")
        zero = gpu.put(np.zeros((1, width), dtype))  # overwrites the array while it is sent
        backend(mine).gather(zero, gpu.put(np.zeros(len(mine), np.int64)), mine)
        exchange.progress()
        for source, rows in exchange.received_rows([LOCAL, *plan.sources.tolist()], "a test"):
            if source == LOCAL:
                assert rows is mine
                continue
            ghosts = plan.ghosts[plan.recv_offsets[source]:plan.recv_offsets[source + 1]]
            arrived.append((doubled(gpu, rows.reshape(-1)), H[ghosts]))
        if turn < 4:  # the next one receives where this one did
            continue

        sums = block(comm.rank, plan.ghosts.size * width, dtype, 9 + turn)
        partials = computed(gpu, sums).reshape(-1, width)
        total = own.copy()
        out = gpu.put(own.copy())
        for source, buffer in exchange.partial_sums(out, "a test"):
            if source != LOCAL:
                rows = np.arange(*plan.recv_offsets[source:source + 2])
                backend(partials).gather(partials, gpu.put(rows), buffer)
            exchange.send(source)
        exchange.finish(out, "a test")
        for source in plan.destinations.tolist():
            theirs = plans(comm.size, exchange is part)[source]
            sent = block(source, theirs.ghosts.size * width, dtype, 9 + turn).reshape(-1, width)
            ours = slice(*theirs.recv_offsets[comm.rank:comm.rank + 2])
            rows = plan.send_rows[slice(*plan.send_offsets[source:source + 2])]
            np.add.at(total, rows, sent[ours])
        arrived.append((doubled(gpu, out.reshape(-1)), total))
    for rows, expected in arrived:
        np.testing.assert_array_equal(gpu.get(rows)[:, 0], expected.reshape(-1))
    assert len(arrived) == sum(4 * each.plan.sources.size + 2 for each in (whole, part))
    for exchange in (whole, part):
        exchange.close()


@pytest.mark.parametrize("late", LATE)
def test_the_fake_gpu_is_late(late):
    """On the fake GPU a copy that does not wait for a kernel reads the old numbers."""
    with installed(shared_folder(), late=late):
        gpu = Cuda()
        array = computed(gpu, np.arange(9.0))
        host = np.zeros(9)
        early = gpu.stream()
        right = gpu.stream()
        gpu.copy(host.ctypes.data, array.data.ptr, 72, early)
        early.synchronize()
        np.testing.assert_array_equal(host, np.full(9, 77.0))
        right.wait_event(gpu.event())
        gpu.copy(host.ctypes.data, array.data.ptr, 72, right)
        assert Stream.null.tasks
        right.synchronize()
        np.testing.assert_array_equal(host, np.arange(9.0))

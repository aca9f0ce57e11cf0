"""The choice of devices for ranks and of routes for messages, for all answers of an MPI."""
import re
import sys
from pathlib import Path
from types import SimpleNamespace as Namespace

import numpy as np
import pytest
from fake_cupy import installed

from hpgcn.comm import SerialComm, as_comm, communicator, route, run_on_ranks
from hpgcn.errors import MissingError, UsageError
from hpgcn.runtime import device
from hpgcn.runtime.device import Cuda, Host, choose, start_gpu

TESTS = Path(__file__).parents[1]


class Ranks(SerialComm):
    """A fake communicator of one rank of a node, with given messages from the other ranks."""

    def __init__(self, rank=0, size=4, others=()):
        super().__init__()
        self.rank = self.local_rank = rank
        self.size = size
        self.ranks = tuple(range(size))
        self.others = others

    def max(self, values):
        return np.maximum(values, True in self.others)

    def allgather(self, thing):
        return [thing, *self.others]


@pytest.fixture
def cupy(tmp_path):
    """Install the fake CuPy without kernels; provide the module."""
    with installed(tmp_path):
        yield sys.modules["cupy"]


def test_ranks_of_a_node_take_its_gpus_in_turn(cupy):
    cupy.cuda.runtime.getDeviceCount = lambda: 3
    assert [choose("cuda", Ranks(rank)).number for rank in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert isinstance(choose("auto", Ranks(1)), Cuda)
    assert type(choose("auto", Ranks(others=[True]))) is Host  # another rank has no GPU
    assert choose("cpu", Ranks()).name == "cpu"


def test_without_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert type(choose("auto", SerialComm())) is Host
    with pytest.raises(MissingError, match="device='cuda' needs cupy") as caught:
        choose("cuda", SerialComm())
    assert caught.value.collective


def test_pinned_memory_and_streams(cupy):
    gpu = Cuda()
    memory = gpu.pinned(24)
    array = gpu.put(np.arange(3.0))
    stream = gpu.stream()
    gpu.copy(memory.ctypes.data, array.data.ptr, 24, stream)
    assert gpu.event(stream).done and memory.view(np.float64).tolist() == [0, 1, 2]


@pytest.fixture
def second(monkeypatch):
    """Set the variables of the second rank on a node."""
    for name, value in {"SIZE": 4, "RANK": 1, "LOCAL_RANK": 1}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", str(value))
    monkeypatch.setattr(device._Context, "number", None)


def test_the_context_is_created_before_mpi_starts(cupy, second, monkeypatch):
    calls = []
    cupy.cuda.runtime.getDeviceCount = lambda: 3
    cupy.cuda.runtime.free = lambda address: calls.append(("context", *cupy.cuda.Device.used))
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    monkeypatch.setattr(communicator, "require", lambda *_: calls.append("MPI") or mpi(size=4))
    monkeypatch.setattr(communicator, "as_comm", lambda *_: SerialComm())
    communicator.world(device="cpu")
    communicator.world(device="auto")
    assert calls == ["MPI", ("context", 1), "MPI"]

    # a device that is chosen after MPI started has the same number, and is not late
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    assert (choose("cuda", Ranks(1)).number, choose("cuda", Ranks(1)).late) == (1, False)


def test_another_gpu_than_that_of_the_context(cupy, second, caplog):
    cupy.cuda.runtime.getDeviceCount = lambda: 3
    start_gpu()
    assert choose("cuda", Ranks(2)).number == 2
    assert "uses GPU 2, but the launcher's variables named GPU 1" in caplog.text


def test_no_context_without_a_gpu_or_a_launcher(cupy, second, monkeypatch):
    cupy.cuda.runtime.getDeviceCount = lambda: 0
    start_gpu()
    monkeypatch.setitem(sys.modules, "cupy", None)
    start_gpu()
    monkeypatch.delenv("OMPI_COMM_WORLD_LOCAL_RANK")
    monkeypatch.delitem(sys.modules, "cupy")
    start_gpu()
    assert "cupy" not in sys.modules and device._Context.number is None


def gpu_query(answer):
    def query(kind, found):
        assert kind == 0
        found._obj.value = answer

    return query


def mpi(kinds=None, version="MPICH Version: 5", size=1, **answers):
    """Return a fake MPI library with these memory kinds, version and query functions."""
    info = Namespace(Get={"mpi_memory_alloc_kinds": kinds}.get)
    world = Namespace(Get_info=lambda: info, Get_size=lambda: size)
    return Namespace(COMM_WORLD=world, __file__=Namespace(**answers),
                     Get_library_version=lambda: version)


CUDA = "MPIX_Query_cuda_support"
GPU = "MPIX_GPU_query_support"
NAMED = "MPI names the memory kinds"
ANSWERS = [  # variable, kinds, functions of the library, (claimed, source)
    ("0", "cuda", {CUDA: lambda: 1}, (False, "HPGCN_GPU_AWARE_MPI=0")),
    ("1", None, {}, (True, "HPGCN_GPU_AWARE_MPI=1")),
    ("auto", "mpi,system,cuda:device", {}, (True, f"{NAMED} mpi,system,cuda:device")),
    (None, "system, cuda", {}, (True, f"{NAMED} system, cuda")),
    (None, "mpi,system", {CUDA: lambda: 1}, (True, f"{CUDA} says yes")),
    (None, "mpi,system", {CUDA: lambda: 0}, (False, f"{CUDA} says no")),
    (None, None, {GPU: gpu_query(1)}, (True, f"{GPU} says yes")),
    (None, None, {GPU: gpu_query(0)}, (False, f"{GPU} says no")),
    (None, "cudagraph", {}, (False, "the MPI library has no function that tells")),
]


@pytest.mark.parametrize(("variable", "kinds", "functions", "expected"), ANSWERS)
def test_who_says_that_mpi_takes_gpu_memory(variable, kinds, functions, expected, monkeypatch):
    monkeypatch.delenv(route.VARIABLE, raising=False)
    monkeypatch.setattr(route.ctypes, "CDLL", lambda library: library)
    assert route.query_gpu_support(mpi(kinds, **functions), variable) == expected
    if variable is not None:
        monkeypatch.setenv(route.VARIABLE, variable)
        assert route.query_gpu_support(mpi(kinds, **functions)) == expected


def test_a_switch_of_cray_mpich_is_believed(monkeypatch):
    monkeypatch.setenv("MPICH_GPU_SUPPORT_ENABLED", "0")
    library = Namespace(**{GPU: gpu_query(1)})
    assert route.library(library) == (False, "MPICH_GPU_SUPPORT_ENABLED=0")


def test_another_value_of_the_variable_is_refused(monkeypatch):
    monkeypatch.setenv(route.VARIABLE, "yes")
    with pytest.raises(UsageError, match="HPGCN_GPU_AWARE_MPI=yes: expected 0, 1 or auto"):
        route.query_gpu_support(mpi())


ASKED = "HPGCN_GPU_AWARE_MPI=1"
YES = ((True, ASKED), "", False)
CHOICES = [  # what the other rank says, this rank's probe, library, (direct, words, warned)
    (YES, "", "MPICH", ({"message", "bcast"}, f"{ASKED}; probe passed", False)),
    (YES, "", "Open MPI v5.0.8", ({"message"}, f"{ASKED}; probe passed", False)),
    (YES, "signal 11", "MPICH",
     (set(), f"{ASKED}, but the probe of rank 0 failed: signal 11", True)),
    ((YES[0], "", True), "", "MPICH", ({"message", "bcast"}, f"{ASKED}; probe passed", False)),
    ((YES[0], "signal 6", False), "", "MPICH",
     (set(), f"{ASKED}, but the probe of rank 1 failed: signal 6", True)),
    (((False, f"{CUDA} says no"), "", False), "", "MPICH", (set(), f"{CUDA} says no", False)),
]


@pytest.mark.parametrize(("other", "failure", "version", "expected"), CHOICES)
def test_all_ranks_take_one_route(cupy, other, failure, version, expected, monkeypatch, caplog):
    monkeypatch.setattr(route, "probe", lambda number: failure)
    comm = Ranks(size=2, others=[other])
    comm.MPI = mpi(version=version)
    gpu = Cuda()
    gpu.late = False  # whether or not another test has started MPI
    taken = comm.use(gpu, aware="1")
    direct, reason, warned = expected
    assert (taken.direct, taken.reason) == (direct, reason)
    assert comm.stager.direct == direct and bool(caplog.records) == warned
    assert all(reason in record.getMessage() for record in caplog.records)
    assert str(taken).endswith(reason)


def test_a_context_that_open_mpi_did_not_find(cupy, monkeypatch, caplog):
    monkeypatch.setattr(route, "probe", lambda number: "")
    monkeypatch.setattr(device._Context, "number", None)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", None)
    comm = Ranks(size=2, others=[YES])
    comm.MPI = mpi(version="Open MPI v5.0.8")
    assert comm.use(Cuda(), aware="1").direct == {"message"}
    assert "before the CUDA context of 1 of 2 ranks" in caplog.text
    caplog.clear()
    comm.use(Cuda(), aware="1")  # the script has used the GPU
    assert not caplog.records


def test_no_route_without_others_or_without_a_gpu(cupy):
    alone = SerialComm()
    assert not alone.use(Cuda()).direct and alone.device.name == "cuda"
    assert alone.stager is None
    several = Ranks()
    several.use(Host())
    assert several.stager is None


CUPY = """
import sys
sys.path[:0] = [{tests!r}, {kernels!r}]
import fake_cupy, time
fake = fake_cupy.module()
{more}
sys.modules["cupy"] = fake
"""
PROBES = {"works": ("", ""),
          "crashes": ("fake_cupy.ndarray.__cuda_array_interface__ = property(lambda self: dict("
                      "self.memory.__array_interface__, version=3, data=(64, False)))",
                      r"signal 11|exit code \d+ .*"),
          "loses": ("import numpy as np\nlost = []\n"
                    "def elsewhere(self):\n    lost.append(np.zeros(self.shape, self.dtype))\n"
                    "    return dict(lost[-1].__array_interface__, version=3)\n"
                    "fake_cupy.ndarray.__cuda_array_interface__ = property(elsewhere)",
                    r"exit code 1 \(a message of 64 bytes did not arrive\)"),
          "hangs": ("time.sleep(60)", "no answer within 1 s"),
          "has no GPU": ("raise ImportError('libcuda')",
                         r"exit code 1 \(ImportError: libcuda\)")}


@pytest.mark.long
@pytest.mark.parametrize("name", PROBES)
def test_the_probe_finds_out_in_a_process_of_its_own(name, tmp_path, monkeypatch):
    pytest.importorskip("mpi4py")
    more, expected = PROBES[name]
    code = CUPY.format(tests=str(TESTS / "support"), kernels=str(TESTS / "kernels"), more=more)
    (tmp_path / "cupy.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)  # the probe's path as well
    monkeypatch.setenv("PMI_RANK", "1")  # a launcher sets it, but did not start this process
    monkeypatch.setenv("PMI_FD", "9")
    if name == "hangs":
        monkeypatch.setattr(route, "PROBE_SECONDS", 1)
    assert re.fullmatch(expected, route.probe(0))


def test_a_probe_that_cannot_start(monkeypatch):
    monkeypatch.setattr(route, "PROBE", ("no such program",))
    assert "no such program" in route.probe(0)


def test_local_ranks_on_a_gpu_are_not_for_speed(cupy, caplog):
    run_on_ranks(lambda comm: as_comm(comm).use(Cuda()), 2)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "2 ranks in one process share a GPU and take turns"]

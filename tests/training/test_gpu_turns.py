"""Local ranks that take turns on a GPU, real or fake, with arrays at home in host memory."""
import fake_cupy
import numpy as np
import pytest
from cuda_ranks import cuda, real_or_fake
from graphs import make, scattered

from hpgcn import Config, predict, run_on_ranks, train
from hpgcn.comm import as_comm, run_on_gpu
from hpgcn.runtime.gpu import gpu_turns
from hpgcn.runtime.gpu.gpu_turns import GpuTurns, Homes
from hpgcn.runtime.gpu.spans import is_within, overlap

__all__ = ["cuda"]
SETTINGS = {"layers": 3, "hidden": 24, "epochs": 4, "eval_every": 2, "dropout": 0.3,
            "device": "cuda", "strategy": "p2p"}
SLOT = 4 << 20


@pytest.fixture
def poisoned(monkeypatch):
    """Let most arrays have homes; what is read though it is not there is 0xFF, a NaN."""
    monkeypatch.setattr(gpu_turns, "THRESHOLD", 1 << 11)
    empty, take = GpuTurns._empty, Homes.take

    def fill(turns, slot):
        empty(turns, slot)
        turns.up.wait_event(slot.ready)
        ones = np.full(slot.nbytes, 255, np.uint8)
        turns.gpu.copy(slot.begin, ones.ctypes.data, ones.size, turns.up)
        fake_cupy.Stream.alive.append(ones)

    def fill_home(homes, nbytes):
        home = take(homes, nbytes)
        home.wait()
        home.memory[:] = 255
        return home

    monkeypatch.setattr(fake_cupy.ndarray, "check", staticmethod(check_access))
    monkeypatch.setattr(GpuTurns, "_empty", fill)
    monkeypatch.setattr(Homes, "take", fill_home)


def check_access(array, written):
    """Fail if an array is accessed that is not on the GPU, or written without being noted."""
    block = getattr(array.data.mem, "block", None)
    if block is not None and array.size:
        _, span = block.arena.turns.find(array)
        assert block.arena.slot.holder is block.arena
        assert is_within(span if written else overlap(span, block.contents),
                         block.dirty if written else block.here)


def results(graph, config, ranks, turns=None):
    """Train, evaluate and predict; return the history, the weights and the logits."""
    def work(comm):
        source = scattered(graph, as_comm(comm))
        result = train(source, config, comm)
        found = predict(source, result, comm, device="cuda")
        return result.history, result.weights, found and found["logits"]

    return (run_on_ranks(work, ranks) if turns is None else run_on_gpu(work, turns))[0]


def check(graph, config, ranks=3, slots=2):
    history, weights, logits = results(graph, config, ranks)
    turns = GpuTurns(ranks, slots, SLOT)
    found, found_weights, found_logits = results(graph, config, ranks, turns)
    assert [each["loss"] for each in found] == [each["loss"] for each in history]
    for name in weights:
        np.testing.assert_array_equal(found_weights[name], weights[name])
    np.testing.assert_array_equal(found_logits, logits)
    return turns


@pytest.mark.parametrize("ranks, slots", [(3, 2), (5, 2), (4, 3), (3, 1), (2, 2)])
def test_results_are_those_of_ranks_that_stay(cuda, poisoned, ranks, slots):
    turns = check(make(n=601, f=33, degree=12), Config(**SETTINGS), ranks, slots)
    assert all(sum(each) > 0 for each in turns.copied.values()) == (ranks > slots)


@pytest.mark.parametrize("strategy", ["p2p", "cover", "vertex-cut", "1d"])
@pytest.mark.parametrize("model", [
    {"model": "sage"}, {"model": "gat", "heads": 2}, {"model": "gin"}, {"norm": "batch"},
    {"dtype": "bf16"}, {"model": "appnp"}, {"residual": True}, {"model": "sgc"}], ids=str)
def test_every_model(cuda, poisoned, strategy, model):
    if strategy == "cover" and "dtype" in model:
        pytest.skip("cover has no rows of 16 bits")
    check(make(n=301, f=33, degree=12, directed=True),
          Config(**SETTINGS | {"strategy": strategy} | model))


@pytest.mark.parametrize("late", ["all", "kernels"])
def test_copies_and_kernels_wait_for_each_other(poisoned, late):
    with real_or_fake(late=late):
        check(make(n=601, f=33, degree=12), Config(**SETTINGS))

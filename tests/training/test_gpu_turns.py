"""Local ranks that take turns on a GPU, real or fake, with arrays at home in host memory."""
import gc

import fake_cupy
import numpy as np
import pytest
from commands import refused, succeed
from cuda_ranks import cuda, real_or_fake
from gpu_bytes import write_parts
from graphs import make, scattered, several_labels, with_edges, with_targets

from hpgcn import Config, predict, run_on_ranks, save, train
from hpgcn.comm import as_comm, run_on_gpu
from hpgcn.errors import ConfigError, DivergedError, UsageError
from hpgcn.partition import make_partition
from hpgcn.planning.answers.gpu_plan import plan_gpu
from hpgcn.planning.counts import touches
from hpgcn.runtime.gpu import gpu_turns
from hpgcn.runtime.gpu.gpu_turns import GpuTurns
from hpgcn.runtime.gpu.homes import PinnedHomes
from hpgcn.runtime.gpu.spans import is_within, overlap
from hpgcn.store import write_partitioned

__all__ = ["cuda"]
SETTINGS = {"layers": 3, "hidden": 24, "epochs": 4, "eval_every": 2, "dropout": 0.3,
            "device": "cuda", "strategy": "p2p"}
SLOT = 4 << 20
ONES = np.full(SLOT, 255, np.uint8)  # kept: copies that are late read it


@pytest.fixture
def poisoned(monkeypatch):
    """Let most arrays have homes; memory that must not be read is 0xFF, a NaN."""
    monkeypatch.setattr(gpu_turns, "THRESHOLD", 1 << 8)
    empty, take = GpuTurns._empty, PinnedHomes.take

    def fill(turns, slot):
        empty(turns, slot)
        turns.up.wait_event(slot.ready)
        turns.gpu.copy(slot.begin, ONES.ctypes.data, slot.nbytes, turns.up)

    def fill_home(homes, nbytes):
        home = take(homes, nbytes)
        if home.moved is not None:
            home.moved.synchronize()
        for piece in home.pieces:
            piece[:] = 255
        return home

    monkeypatch.setattr(fake_cupy.ndarray, "check", staticmethod(check_access))
    monkeypatch.setattr(GpuTurns, "_empty", fill)
    monkeypatch.setattr(PinnedHomes, "take", fill_home)


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
        return result.history, result.weights, found and found.get("logits", found.get("target"))

    return (run_on_ranks(work, ranks) if turns is None else run_on_gpu(work, turns))[0]


def check(graph, config, ranks=3, slots=2, scratch=None):
    history, weights, logits = results(graph, config, ranks)
    turns = GpuTurns(ranks, slots, SLOT, scratch=scratch)
    found, found_weights, found_logits = results(graph, config, ranks, turns)
    assert [each["loss"] for each in found] == [each["loss"] for each in history]
    for name in weights:
        np.testing.assert_array_equal(found_weights[name], weights[name])
    np.testing.assert_array_equal(found_logits, logits)
    return turns


@pytest.mark.parametrize("ranks, slots", [(3, 2), (5, 2), (4, 3), (3, 1), (2, 2)])
def test_results_are_those_of_ranks_that_stay(cuda, poisoned, ranks, slots):
    before = fake_cupy.DefaultPool.used
    turns = check(make(n=601, f=33, degree=12), Config(**SETTINGS), ranks, slots)
    assert all(sum(each) > 0 for each in turns.copied.values()) == (ranks > slots)
    gc.collect()
    assert fake_cupy.DefaultPool.used <= before  # the GPU is free, also while `turns` exist


def test_blocks_of_a_grid_that_move(cuda, poisoned):
    """On 2 x 2 ranks blocks of A are messages, whose row pointers each rank keeps."""
    check(make(n=301, f=33, degree=12, directed=True), Config(**SETTINGS | {"strategy": "2d"}), 4)


@pytest.mark.parametrize("strategy, changes", [
    *(("p2p", {"model": model}) for model in ("sage", "gin", "appnp", "sgc")),
    *(("p2p", changes) for changes in (
        {"norm": "batch"}, {"dtype": "bf16"}, {"residual": True, "activation": "elu"},
        {"jump": "max", "output_layer": True},
        {"input_layer": True, "output_layer": True, "ffn": True},
        {"embedding": 9, "clip_norm": 0.1, "optimizer": "adamw"}, {"training_graph": "train"})),
    *((strategy, {}) for strategy in ("cover", "1d", "1.5d:3", "2d", "mop+p2p+p2p")),
    *((strategy, {"masked_products": "always"}) for strategy in ("mop", "3d")),
    ("mop", {"model": "gat", "heads": 3}),
    *((strategy, {"model": "gat", "heads": 2, "attention_dropout": 0.3})
      for strategy in ("p2p", "vertex-cut"))], ids=str)
def test_models_and_strategies(cuda, poisoned, strategy, changes):
    check(make(n=301, f=33, degree=12, directed=True),
          Config(**SETTINGS | {"epochs": 3, "strategy": strategy} | changes))


@pytest.mark.parametrize("strategy", ["cover", "vertex-cut"])
def test_attention_on_a_symmetric_graph(cuda, poisoned, strategy):
    """Its backward has blocks of its own, which the rank before must not make."""
    check(make(n=301, f=33, degree=12), Config(**SETTINGS | {
        "epochs": 3, "strategy": strategy, "model": "gat", "heads": 2}), 5)


@pytest.mark.parametrize("graph", [
    make(n=301, sparse=True), make(n=301, train=9, degree=3), several_labels(make(n=301), 3),
    with_targets(make(n=301), 3), with_edges()], ids=range(5))
def test_graphs(cuda, poisoned, graph):
    model = "gcn" if graph.edge_features is None else "gine"
    check(graph, Config(**SETTINGS | {"epochs": 3, "model": model}))


@pytest.mark.parametrize("late, strategy, ranks", [
    ("all", "p2p", 3), ("kernels", "p2p", 3), ("kernels", "2d", 4), ("all", "mop", 3)])
def test_copies_and_kernels_wait_for_each_other(poisoned, late, strategy, ranks):
    with real_or_fake(late=late):
        check(make(n=601, f=33, degree=12), Config(**SETTINGS | {"strategy": strategy}), ranks)


def wide(path):
    """Write a graph whose features take most of the memory."""
    save(make(n=4001, f=512, degree=4), path)
    return str(path)


def small(monkeypatch):
    for module, name in ((gpu_turns, "THRESHOLD"), (touches, "LEAST")):
        monkeypatch.setattr(module, name, 1 << 11)


def test_a_run_chooses_its_ranks_and_stays_within_its_memory(cuda, monkeypatch, tmp_path):
    """A run in one piece if it fits, else on the fewest ranks that fit, to the same bits."""
    if cuda is None:
        pytest.skip("seen through the fake GPU")
    small(monkeypatch)
    path = wide(tmp_path / "g.h5")
    config = Config(hidden=8, epochs=2, device="cuda", strategy="p2p")
    assert plan_gpu(path, config.replace(gpu_memory="30M")).ranks == 1
    plan = plan_gpu(path, config.replace(gpu_memory="9M"))
    assert plan.ranks > 2 and plan.least <= 9 << 20 < plan.needed
    monkeypatch.setattr(fake_cupy.DefaultPool, "most", fake_cupy.DefaultPool.used)
    others = fake_cupy.DefaultPool().malloc(1 << 20)
    before = fake_cupy.DefaultPool.used
    found = train(path, config.replace(gpu_memory="9M"))
    assert 0 < fake_cupy.DefaultPool.most - before <= 9 << 20
    del others
    expected = train(path, config, ranks=plan.ranks)
    assert [each["loss"] for each in found.history] == [each["loss"] for each in expected.history]


@pytest.mark.parametrize("strategy", [
    "p2p", "1d", "mop", "3d", *(pytest.param(each, marks=pytest.mark.long) for each in (
        "cover", "vertex-cut", "1.5d", "2d"))])
def test_the_least_that_a_plan_takes_suffices(cuda, strategy, monkeypatch, tmp_path):
    """The fake GPU refuses more memory."""
    if cuda is None:
        pytest.skip("seen through the fake GPU")
    small(monkeypatch)
    path = str(tmp_path / "g.h5")
    write_parts(path, strategy, 4001, 4)
    config = Config(layers=2, hidden=64, epochs=1, device="cuda", strategy=strategy)
    plan = plan_gpu(path, config.replace(gpu_memory="1G"), [4])
    config = config.replace(gpu_memory=str(2 * plan.slot + plan.small))
    least = plan_gpu(path, config, [4])
    assert least.slots == 2 and least.gpu_memory == least.least
    assert train(path, config, ranks=4).history


def test_a_limit_that_is_too_small_is_refused(monkeypatch, tmp_path):
    """One line names the ranks that fit, or says that none do."""
    small(monkeypatch)
    path = wide(tmp_path / "g.h5")
    config = Config(hidden=8, device="cuda", strategy="p2p", gpu_memory="9M")
    with pytest.raises(ConfigError, match=r"g\.h5: 2 ranks need [\d,]+ bytes of GPU memory, but "
                       r"gpu_memory= is 9,437,184: 16 ranks fit$"):
        plan_gpu(path, config, [2])
    with pytest.raises(ConfigError, match=r"is 102,400: no number of ranks from 2 to 512 fits$"):
        plan_gpu(path, config.replace(gpu_memory="100K"))


def test_a_limit_is_what_is_free(cuda, monkeypatch, tmp_path):
    """Some of the free bytes are left for libraries."""
    if cuda is None:
        pytest.skip("seen through the fake GPU")
    small(monkeypatch)
    monkeypatch.setattr(fake_cupy.Device, "mem_info", (9 << 20, 1 << 30))
    config = Config(hidden=8, device="cuda", strategy="p2p", gpu_memory="free")
    plan = plan_gpu(wide(tmp_path / "g.h5"), config)
    assert plan.ranks > 2 and plan.gpu_memory == 9 * (1 << 20) * 15 // 16


@pytest.mark.parametrize("changes, words", [
    ({"device": "cpu"}, "needs device='cuda'"), ({"aggregate_on": "cpu"}, "needs device='cuda'"),
    ({"batch": "vertices:60"}, "needs full batches, but batch='vertices:60'")], ids=str)
def test_settings_that_do_not_go_together(changes, words):
    config = Config(**{"device": "cuda", "strategy": "mop", "gpu_memory": "8M", **changes})
    with pytest.raises(UsageError, match=f"gpu_memory='8M': {words}"):
        train(make(), config)


def test_commands_plan_the_strategy_that_is_given(tmp_path):
    save(make(n=203), tmp_path / "g.h5")
    plan = "plan", tmp_path / "g.h5", "--ranks", "3"
    files = "--memory", "1G", "--scratch", tmp_path
    for more in (["--gpu-memory", "1G"], files):
        for strategy in "cover", "mop":
            found = succeed(*plan, *more, "--strategy", strategy)
            assert f"strategy {strategy}" in found
        found = refused(2, *plan, *more, "--strategy", "p2p+cover")
        assert found.startswith("hpgcn: --strategy p2p+cover: does not combine with ")


def test_attention_is_planned_or_refused_as_the_strategy_computes_it(tmp_path):
    """The line is the same with and without turns; mop takes whole heads."""
    save(make(n=203), tmp_path / "g.h5")
    train = "train", tmp_path / "g.h5", "--model", "gat", "--dry-run", "--ranks", 3
    files = "--memory", "1G", "--scratch", tmp_path
    assert "strategy mop" in succeed(*train, *files, "--strategy", "mop", "--heads", 3,
                                      "--hidden", 18)
    for strategy, words in (("2d", "it computes no attention"), ("mop", "3 ranks cannot share 2")):
        for more in ([], files, ["--device", "cuda", "--gpu-memory", "1G"]):
            found = refused(2, *train, *more, "--strategy", strategy, "--heads", 2)
            assert found.startswith(f"hpgcn: --strategy {strategy}: {words}")


def test_a_number_of_ranks_without_parts(tmp_path):
    graph = make(n=203)
    write_partitioned(tmp_path / "p.h5", graph, make_partition(graph, 4, method="random"))
    for tier in (["--memory", "300M", "--scratch", tmp_path],
                 ["--device", "cuda", "--gpu-memory", "1G"]):
        assert "needs 5 ranks, but the file has parts for 4" in refused(
            78, "plan", tmp_path / "p.h5", "--strategy", "p2p", "--ranks", 5, *tier)


def test_plan_of_several_gpus(monkeypatch, tmp_path):
    """Each has a process with equally many ranks; the plan is that of the GPU with most."""
    small(monkeypatch)
    path = wide(tmp_path / "g.h5")
    config = Config(hidden=8, device="cuda", strategy="p2p", gpu_memory="9M")
    plan, one = (plan_gpu(path, config, gpus=gpus) for gpus in (2, 1))
    assert (plan.ranks, plan.turns) == (8, 4) and plan.least <= 9 << 20
    assert 0.4 * one.pinned < plan.pinned < 0.6 * one.pinned and one.sent == 0 < plan.sent
    assert plan_gpu(path, config, gpus=3).turns == 4
    assert plan_gpu(path, config.replace(gpu_memory="30M"), gpus=2).turns == 1
    with pytest.raises(ConfigError, match=r"2 ranks on each of 2 GPUs need [\d,]+ bytes of GPU "
                       r"memory, but gpu_memory= is 9,437,184: 4 ranks on each of 2 GPUs fit$"):
        plan_gpu(path, config, [4], gpus=2)
    with pytest.raises(ConfigError, match="ranks=5: 2 GPUs cannot divide them evenly"):
        plan_gpu(path, config, [5], gpus=2)
    graph = make(n=4001, f=512, degree=4)
    parts = str(tmp_path / "p.h5")
    write_partitioned(parts, graph, make_partition(graph, 8, method="random", refine=False))
    with pytest.raises(ConfigError, match=r"more ranks than 3 that 3 GPUs divide, but the file has "
                       "parts for 8$"):
        plan_gpu(parts, config, gpus=3)


def test_commands(tmp_path):
    save(make(n=203), tmp_path / "g.h5")
    assert "needs --gpu-memory" in refused(2, "plan", tmp_path / "g.h5", "--gpus", 2)
    several = "plan", tmp_path / "g.h5", "--gpu-memory", "1M", "--gpus"
    assert "on each of 2 GPUs" in succeed(*several, 2)
    assert "--gpus 0: expected a number from 1" in refused(2, *several, 0)
    said = succeed("plan", tmp_path / "g.h5", "--device", "cuda", "--gpu-memory", "1M")
    assert "none: the run fits" in said
    dry = succeed("train", tmp_path / "g.h5", "--device", "cuda", "--gpu-memory", "1M", "--dry-run")
    assert dry == said
    assert "is not a size" in refused(2, "train", tmp_path / "g.h5", "--gpu-memory", "1X")


def test_resume_in_memory(cuda, poisoned, monkeypatch, tmp_path):
    """A run goes on without its turns, and the reverse, to the same bits."""
    graph = make(n=601, f=33, degree=12)
    config = Config(**SETTINGS | {"epochs": 2}, checkpoint_every=1)
    straight = train(graph, config.replace(epochs=4, checkpoint_every=0), ranks=3)

    def run(in_turns, **changes):
        options = {"resume": changes["out"]} if changes.get("epochs") else {}
        given = graph, config.replace(**changes)
        if not in_turns:
            return train(*given, ranks=3, **options)
        return run_on_gpu(lambda comm: train(*given, comm, **options), GpuTurns(3, 2, SLOT))[0]

    for first in (True, False):
        out = str(tmp_path / str(first))
        run(first, out=out)
        resumed = run(not first, out=out, epochs=4)
        assert [each["loss"] for each in resumed.history] == [
            each["loss"] for each in straight.history]


def test_a_run_that_diverges_is_named(cuda, poisoned):
    """The error names the layer, whose arrays may be at home."""
    config = Config(**SETTINGS | {"optimizer": "sgd", "lr": 1e30})
    graph, said = make(n=301, f=33, degree=12), []
    for run in (run_on_ranks, lambda work, ranks: run_on_gpu(work, GpuTurns(ranks, 2, SLOT))):
        with pytest.raises(DivergedError) as found:
            run(lambda comm: train(scattered(graph, as_comm(comm)), config, comm), 3)
        said.append(str(found.value))
    assert said[0] == said[1]

"""Training on one GPU, real or fake, has the losses, metrics and predictions of the CPU."""
import gc
import sys

import numpy as np
import pytest
from commands import refused
from cuda_ranks import cuda, gpu, held_bytes
from graphs import make, several_labels, with_edges, with_targets
from stacks import KINDS, STACKS
from training import SETTINGS, assert_same_curves, run, start

import hpgcn
from hpgcn import store
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.errors import ConfigError, DeviceMemoryError, MissingError, UsageError
from hpgcn.kernels.cuda.gpu_device import _results as known
from hpgcn.planning.answers import dry_run
from hpgcn.planning.counts.footprint import ON_GPU
from hpgcn.runtime.device import choose
from hpgcn.strategies import STRATEGIES
from hpgcn.training.setup.placement import assign_rows
from hpgcn.training.steps.training_step import evaluate

__all__ = ["cuda", "gpu"]
OPTIONS = {"optimizer": "adamw", "clip_norm": 0.1, "schedule": "cosine", "warmup": 2,
           "label_smoothing": 0.2, "class_weight": "balanced"}
FLOAT32 = pytest.param("float32", marks=pytest.mark.long)  # needs kernels of its own
BOUND = {"float32": 1e-5, "float64": 1e-12}


def on(device):
    comm = SerialComm()
    comm.use(device)
    return comm


def check(graph, config, device):
    bound = BOUND[config.dtype]
    expected, flat = run(graph, config, epochs=3)
    history, weights = run(graph, config, on(device), 3)
    assert_same_curves(history, expected, bound)
    assert np.linalg.norm(weights - flat) <= 10 * bound * np.linalg.norm(flat)


@pytest.mark.parametrize("dtype", [FLOAT32, "float64"])
@pytest.mark.parametrize("model", SETTINGS)
@pytest.mark.parametrize("kind, options", [
    ({}, {"layer_norm": True}), ({"sparse": True, "directed": True}, {"optimizer": "sgd"}),
    ({"train": 9, "degree": 3}, {"input_dropout": 0.0}), ({"labels": 3}, {}),
    ({"train": 9, "degree": 3}, {"hidden": 20, "decay_layers": "all"}),
    ({"sparse": True, "train": 9, "degree": 3}, {}), ({}, OPTIONS),
    ({"labels": 3}, {"label_smoothing": 0.2, "clip_norm": 0.1, "optimizer": "sgd"})], ids=str)
def test_losses_and_metrics_are_those_of_the_cpu(gpu, model, kind, options, dtype):
    graph = make(**{key: value for key, value in kind.items() if key != "labels"})
    graph = several_labels(graph, kind["labels"]) if "labels" in kind else graph
    check(graph, Config(layers=3, dropout=0.4, lr=0.01, dtype=dtype, seed=3, **SETTINGS[model],
                        **{"hidden": 10, **options}), gpu)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind, stack", [*(("gcn", name) for name in STACKS), ("sgc", "elu"),
                                         ("appnp", "batch norm")])
def test_every_stack(gpu, kind, stack, dtype):
    config = Config(dropout=0.4, dtype=dtype, seed=3,
                    **{"hidden": 7, **KINDS[kind], **STACKS[stack]})
    graph = make(train=9, degree=3)
    bound = 1e-4 if dtype == "float32" else 1e-11
    expected, _ = run(graph, config, epochs=3)
    history, _ = run(graph, config, on(gpu), 3)
    for key in ("loss", "val_loss"):
        np.testing.assert_allclose([m[key] for m in history], [m[key] for m in expected], bound)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy(gpu, strategy, directed):
    check(make(directed=directed, weighted=True),
          Config(strategy=strategy, layers=2, hidden=7, dtype="float64"), gpu)


@pytest.mark.parametrize("strategy", ["p2p", "2d", "mop"])
@pytest.mark.parametrize("changes", [{"input_dropout": 0.0}, {"norm": "batch"}], ids=str)
def test_training_graph(gpu, strategy, changes):
    config = Config(strategy=strategy, training_graph="train", hidden=7, dtype="float64", **changes)
    check(make(directed=True, weighted=True), config, gpu)


@pytest.mark.parametrize("strategy", ["p2p", "2d", "mop"])
@pytest.mark.parametrize("kind, changes", [
    ({"train": 9, "degree": 3}, {"clip_norm": 0.1}), ({"sparse": True}, {"input_dropout": 0.0}),
    ({}, {"batch": "vertices:60", "strategy": "p2p"})], ids=str)
def test_embedding(gpu, strategy, kind, changes):
    config = Config(**{"strategy": strategy, "embedding": 9, "hidden": 7, "dtype": "float64",
                       **changes})
    check(make(**kind), config, gpu)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_edge_features(gpu, dtype):
    check(with_edges(), Config(model="gine", hidden=7, dropout=0.4, dtype=dtype), gpu)


@pytest.mark.long
@pytest.mark.parametrize("batch", ["vertices:60", "neighbors:3:25"])
@pytest.mark.parametrize("model, sparse", [("gcn", True), ("sage-mean", False), ("gat", False)])
@pytest.mark.parametrize("strategy", [
    name for name, each in STRATEGIES.items() if each.supports_minibatches])
def test_batches(gpu, batch, model, sparse, strategy):
    check(make(sparse=sparse, directed=True), Config(
        batch=batch, strategy=strategy, layers=2, hidden=6, dtype="float64", **SETTINGS[model]),
        gpu)


def test_aggregation_on_the_host(cuda):
    config = Config(strategy="mop", epochs=3, hidden=6, dtype="float64")
    expected = hpgcn.train(make(directed=True), config.replace(device="cpu"))
    for options in ({"device": "cuda", "aggregate_on": "cpu"},
                    {"device": "cpu", "update_on": "cuda"}):
        found = hpgcn.train(make(directed=True), config.replace(**options))
        assert found["device"] == "cuda, aggregation on cpu"
        assert found["final_loss"] == pytest.approx(expected["final_loss"], rel=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bf16"])
@pytest.mark.parametrize("loss", ["mse", "mae", "huber"])
def test_targets(cuda, loss, dtype):
    graph = with_targets(make(), 3)
    config = Config(epochs=4, hidden=6, loss=loss, dtype=dtype)
    expected, found = (hpgcn.train(graph, config.replace(device=name)) for name in ("cpu", "cuda"))
    tolerance = {"float32": 1e-4, "float64": 1e-10, "bf16": 0.02}[dtype]
    for key in ("final_loss", "best_val_acc", "test_mae", "test_r2"):
        assert found[key] == pytest.approx(expected[key], rel=tolerance, abs=tolerance)


def test_devices_that_make_no_sense():
    with pytest.raises(UsageError, match="aggregate_on = 'cuda': needs update_on = 'cuda'"):
        hpgcn.train(make(), Config(strategy="mop", aggregate_on="cuda", device="cpu"))


@pytest.mark.long
def test_a_run_and_its_prediction(cuda, tmp_path):
    graph, out = make(), tmp_path / "run"
    summary = hpgcn.train(graph, Config(out=str(out), epochs=4, hidden=6, device="cuda"))
    assert summary["device"] == "cuda" and "tf32" not in summary
    expected = hpgcn.train(graph, Config(epochs=4, hidden=6, device="cpu"))
    assert summary["final_loss"] == pytest.approx(expected["final_loss"], rel=1e-5)
    found = {name: hpgcn.predict(graph, out, device=name) for name in ("cpu", "cuda")}
    for key in ("logits", "embedding"):
        np.testing.assert_allclose(found["cuda"][key], found["cpu"][key], atol=1e-5)
    test = graph.masks["test"]
    right = found["cpu"]["label"][test] == graph.labels[test]
    assert np.mean(right) == pytest.approx(summary["test_acc"])


def test_a_run_says_that_products_have_fewer_bits(cuda, monkeypatch):
    monkeypatch.setenv("CUPY_TF32", "1")
    assert hpgcn.train(make(), Config(epochs=1, device="cuda"))["tf32"]
    assert "tf32" not in hpgcn.train(make(), Config(epochs=1, device="cpu"))


@pytest.mark.parametrize("options", [{}, OPTIONS], ids=["plain", "options"])
def test_the_host_waits_once_an_epoch(gpu, cuda, monkeypatch, options):
    """An epoch without evaluation waits for the GPU twice: step, then loss."""
    waits = []
    trainer = start(make(), Config(model="gin", layer_norm=True, dtype="float64", **options),
                    on(gpu))
    trainer.train_epoch(1)
    for name in ("__float__", "__int__", "__bool__", "item", "tolist", "get"):
        original = getattr(gpu.xp.ndarray, name)

        def told(*args, name=name, original=original, **options):
            waits.append(name)
            return original(*args, **options)

        monkeypatch.setattr(gpu.xp.ndarray, name, told)
    monkeypatch.setattr(gpu, "synchronize", lambda: waits.append("synchronize"))
    trainer.train_epoch(2)
    inside = ["get"] if cuda is None else []  # CuPy's tolist calls it
    assert waits == ["synchronize", "tolist", *inside]


def test_arrays_of_rows_are_kept_as_they_are(gpu, cuda):
    """Later epochs make no new row pointers, so their row divisions are computed once."""
    if cuda is None:
        pytest.skip("seen through the fake GPU")
    trainer = start(make(directed=True, train=9, degree=3),
                    Config(model="sage", layers=3, dtype="float64"), on(gpu))
    for epoch in (1, 2):
        trainer.train_epoch(epoch)
        evaluate(trainer.evaluation)
    before = set(known)
    trainer.train_epoch(3)
    evaluate(trainer.evaluation)
    assert set(known) == before


@pytest.mark.long
@pytest.mark.parametrize("model", ["gcn", "sage-mean", "sgc"])
@pytest.mark.parametrize("kind, options", [
    ({}, {}), ({"sparse": True, "directed": True}, {}),
    ({"directed": True}, {"input_dropout": 0.0}),
    ({"train": 9, "degree": 3}, {"hidden": 20})], ids=str)
def test_rows_of_16_bits_have_the_curve_of_the_cpu(gpu, model, kind, options):
    config = Config(layers=3, dropout=0.4, dtype="bf16", seed=3, **SETTINGS[model],
                    **{"hidden": 10, **options})
    graph = make(**kind)
    expected, _ = run(graph, config, epochs=3)
    history, _ = run(graph, config, on(gpu), 3)
    for key in ("loss", "val_loss"):  # a sum in another order may round to the next number
        np.testing.assert_allclose([entry[key] for entry in history],
                                   [entry[key] for entry in expected], rtol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("model, dtype", [
    ("gcn", "float32"), ("sage", "float32"), ("gin", "float32"),
    *(pytest.param(model, "bf16", marks=pytest.mark.long) for model in ("gcn", "sage"))])
@pytest.mark.parametrize("case", [{}, {"sparse": True}, {"train": 9, "degree": 3},
                                  {"directed": True}], ids=str)
def test_memory_is_what_was_told(gpu, cuda, model, dtype, case):
    """The arrays on the GPU after three epochs need exactly the predicted memory."""
    if cuda is None:
        pytest.skip("seen through the fake GPU")
    before = held_bytes()
    graph = make(n=3000, f=40, **case)
    config = Config(model=model, layers=3, hidden=24, device="cuda", dtype=dtype)
    comm = on(gpu)
    trainer = start(graph, config, comm)
    for epoch in (1, 2, 3):
        trainer.train_epoch(epoch)
        evaluate(trainer.evaluation)
    held = held_bytes() - before
    told, = dry_run.forecast(assign_rows(graph, comm, config), config, comm)["gpu_memory"]
    assert set(told) == {*ON_GPU, "total"} and held <= told["total"]
    # what is let go: by kernels, after a call; of sparse features, after a step, what dropout left
    dropped = 2 * graph.features.data.nbytes if case.get("sparse") else 0
    assert told["total"] - told["kernels"] - dropped <= 1.15 * held
    trainer.close()


def test_too_little_memory_is_said_before_the_first_epoch(gpu, cuda, monkeypatch):
    monkeypatch.setattr(type(gpu), "memory", lambda self: (1000, 1 << 20))
    for dtype in ("float64", "float32"):
        said = (r"^rank 0 of 1 needs [\d,]+ more bytes, but only 1,000 of 1,048,576 are free on "
                "GPU 0: let ranks take turns .* start more ranks.*units"
                + " or dtype='float32'" * (dtype == "float64")
                + ", or device=.cpu.$")
        with pytest.raises(DeviceMemoryError, match=said) as found:
            hpgcn.train(make(), Config(device="cuda", epochs=1, dtype=dtype))
        assert found.value.code == 70 and found.value.collective


@pytest.mark.parametrize("text, limit", [
    ("80MB", 80 << 20), ("1.5G", 3 << 29), ("50%", 2 << 30), ("1000000", 10**6), ("0", 0),
    ("", 0)])
def test_limits_of_gpu_memory(gpu, cuda, monkeypatch, text, limit):
    """CuPy itself fails on a size with a unit."""
    if cuda is None:
        pytest.skip("seen through the fake GPU")
    monkeypatch.setenv("CUPY_GPU_MEMORY_LIMIT", text)
    result = hpgcn.train(make(), Config(device="cuda", epochs=1))
    assert result["epochs"] == 1
    gc.collect()  # errors of other tests hold arrays
    assert choose("cuda", SerialComm()).memory() == (
        (min(limit, 2 << 30), limit) if limit else (2 << 30, 4 << 30))


@pytest.mark.parametrize("text", ["80MBs", "x", "150%", "-1", "%", "nan%"])
@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_limits_that_are_no_sizes_are_refused(gpu, monkeypatch, text, device):
    monkeypatch.setenv("CUPY_GPU_MEMORY_LIMIT", text)
    with pytest.raises(UsageError, match=r"CUPY_GPU_MEMORY_LIMIT=.*: expected bytes, a size"):
        hpgcn.train(make(), Config(device=device, epochs=1))


@pytest.mark.parametrize("call", [0, 40])
def test_a_gpu_that_is_full_is_named(gpu, cuda, monkeypatch, call):
    if cuda is None:
        pytest.skip("seen through the fake GPU")
    made, empty = [], gpu.xp.empty

    def full(shape, dtype=float):
        made.append(shape)
        if len(made) > call:
            raise gpu.xp.cuda.memory.OutOfMemoryError(4096, 512)
        return empty(shape, dtype)

    monkeypatch.setattr(gpu.xp, "empty", full)
    said = (r"^rank 0 of 1: Out of memory allocating 4,096 bytes \(allocated so far: 512 bytes\); "
            r"[\d,]+ of [\d,]+ bytes are free on GPU 0: let ranks take turns .* start more .* "
            "units or dtype='float32', or")
    with pytest.raises(DeviceMemoryError, match=said):
        hpgcn.train(make(), Config(device="cuda", epochs=2, dtype="float64"))


@pytest.mark.parametrize("strategy", [
    pytest.param(name, marks=[pytest.mark.long] * (name not in ("p2p", "mop")))
    for name in STRATEGIES])
def test_more_nonzeros_than_a_gpu_takes(gpu, monkeypatch, strategy):
    monkeypatch.setattr("hpgcn.runtime.gpu_limits.MAX_NONZEROS", 700)
    graph = make()
    nonzeros = graph.adjacency.nnz + 203 - int((graph.adjacency.diagonal() > 0).sum())
    ranks = -(-nonzeros // 700)
    other = " of a strategy that divides the matrix" if strategy == "mop" else ""
    said = (f"^a rank of 1 has {nonzeros:,} nonzeros, but a GPU supports at most 700: "
            f"start at least {ranks} ranks{other}, or use device=.cpu.")
    with pytest.raises(ConfigError, match=said) as found:
        hpgcn.train(graph, Config(device="cuda", strategy=strategy, dtype="float64"))
    assert found.value.code == 78


def test_without_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    said = r"device='cuda' needs cupy \(extra cuda12\): pip install '(cupy-cuda12x>=|.\[cuda)"
    with pytest.raises(MissingError, match=said) as found:
        hpgcn.train(make(), Config(device="cuda", epochs=1))
    assert found.value.code == 69
    assert hpgcn.train(make(), Config(device="auto", epochs=1))["device"] == "cpu"


@pytest.mark.long
def test_the_command_says_what_is_missing(tmp_path):
    store.write_graph(tmp_path / "graph.h5", make())
    said = refused(69, "train", tmp_path / "graph.h5", "--device", "cuda", cwd=tmp_path,
                   CUDA_VISIBLE_DEVICES="")
    assert "--device cuda" in said
    assert [path.name for path in tmp_path.iterdir()] == ["graph.h5"]

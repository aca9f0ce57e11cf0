"""scripts/benchmarks: every benchmark runs and prints; bytes by hand; refusals. No times."""
import importlib.util
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from checkout import ROOT
from commands import python, refused, run, succeed
from cuda_ranks import cuda, gpu

from benchmarks import (
    accuracy,
    checks,
    cluster,
    cuda_epoch,
    cuda_models,
    epoch,
    growth,
    kernels,
    roofline,
    thread_scaling,
)
from benchmarks import run as script
from benchmarks.kernel_cases import CASES, UNTIMED, Arrays, bytes_of
from benchmarks.processors import Processors
from hpgcn import store
from hpgcn.bench import host
from hpgcn.datasets.generators.generate import generate
from hpgcn.errors import InternalError, UsageError
from hpgcn.kernels import reference
from hpgcn.kernels.specs import SPECS

__all__ = ["cuda", "gpu"]

QUICK = "--scale-down", 4096, "--repeats", 1
ONE = "--threads", 1
FEW = "--hidden", 8, "--epochs", 2
SMOKE = {  # command -> its words; G: a graph file, needed from the fourth column on
    "spmm": ("--graphs", "road", "--widths", 7, *QUICK, *ONE),
    "sspmm": ("--graphs", "road", "--widths", 7, *QUICK, *ONE),
    "gather": ("--widths", 3, *QUICK, *ONE),
    "aggregate": ("--graphs", "dense", "--widths", 48, *QUICK, *ONE),
    "growth": ("--widths", 5, *QUICK, *ONE),
    "kernels": ("--widths", 8, "--scale-down", 1 << 14, "--repeats", 1, *ONE),
    "epoch": ("--graphs", "road", "--widths", "6,5,5,3", *QUICK, *ONE),
    "threads": ("--scale-down", 4096, *ONE),
    "torch": ("--graphs", "road", "--widths", 5, *QUICK, *ONE),
    "cuda": ("--graphs", "road", "--widths", 7, *QUICK),
    "cuda-models": ("--quick", "--widths", "5,8", *QUICK),
    "cuda-epoch": ("--widths", 5, *QUICK),
    "batches": ("G", "--ranks", 2, "--epochs", 2, *ONE),
    "accuracy": ("G", "--batch", "vertices:200", *FEW, *ONE),
    "drift": ("G", "--seeds", "0..1", *FEW, *ONE),
    "preparation": ("--entries", 16000, "--parts", 3, "--efforts", "fast", *ONE),
    "cluster": ("G", "--layouts", "2x1", "--rates", "1gbit", *FEW, "--repeats", 1),
    "nodes": ("G", "--strategies", "p2p", *FEW, "--turns", 1)}
NEEDS = {"torch": "torch_geometric", "batches": "mtkahypar"}


@pytest.fixture
def small(monkeypatch, tmp_path, request):
    """Measure with small arrays and graphs, and in this process, because no test checks times."""
    monkeypatch.setattr(host, "CACHES", 0)
    monkeypatch.setattr(host, "SMALLEST", 1 << 20)
    monkeypatch.setattr(growth, "FILL", (0.5, 0.5, 1))
    monkeypatch.setattr(kernels, "CASES", {name: CASES[name] for name in ("spmm", "column_sum")})
    for module in (accuracy, epoch, thread_scaling):
        monkeypatch.setattr(module, "alone", lambda label, hint, call, *args: call(*args))
    worker = tmp_path / "ranks.py"
    worker.write_text(f"""
import runpy
from hpgcn.bench import host, training_steps
host.CACHES, host.SMALLEST, host.GEMM_SIZE = 0, 1 << 20, 64
training_steps.SCALE, training_steps.EPOCHS = 8, 3
runpy.run_path({str(cluster.WORKER)!r}, run_name="__main__")
""")
    monkeypatch.setattr(cluster, "WORKER", worker)


class FakeGpu(Processors):
    """A GPU whose arrays are those of NumPy; its kernels are the reference."""

    xp = np
    kernels = reference
    torch_device = "cpu"

    def seconds(self, call):
        return super().seconds(call)[0], 2e-6

    def memory_limits(self, repeats):
        return {"memory_bytes_per_s": 16e6, "array_bytes": 4000}

    def product_peers(self, A, threads, absent):
        absent["torch"] = "ImportError: torch finds no GPU"
        return {"right": lambda x, out: lambda: A.matrix @ x}


@pytest.fixture
def fake_gpu(request, monkeypatch):
    if "cuda-epoch" in request.node.name:
        xp = request.getfixturevalue("gpu").xp
        if request.getfixturevalue("cuda") is None:
            pytest.skip("the GPU is real: run.py cuda-epoch measures it")
        monkeypatch.setattr(cuda_epoch, "FEATURES", 20)
        monkeypatch.setattr(cuda_epoch, "EDGE_FACTOR", 20)
        monkeypatch.setattr("benchmarks.gpu.Gpu", lambda: SimpleNamespace(
            xp=xp, release=lambda: None, describe=lambda: {"caches": [], "versions": {}}))
    elif "cuda" in request.node.name:
        if "models" in request.node.name:
            request.getfixturevalue("gpu")
            if request.getfixturevalue("cuda") is None:
                pytest.skip("the GPU is real: run.py cuda-models measures it")
            monkeypatch.setattr(cuda_models, "SIZES", cuda_models.SIZES[:1])
            monkeypatch.setattr(cuda_models, "FEW", 1)
            monkeypatch.setattr(cuda_models, "MODELS", {
                name: cuda_models.MODELS[name] for name in ("gcn", "gat")})
        monkeypatch.setattr("benchmarks.gpu.Gpu", FakeGpu)


@pytest.mark.long
@pytest.mark.usefixtures("small", "fake_gpu")
@pytest.mark.parametrize("command", [
    pytest.param(name, marks=[pytest.mark.release] * (name == "nodes")) for name in SMOKE])
def test_it_measures_and_prints(command, tmp_path, forked, monkeypatch):
    """Each benchmark writes JSON without NaN, with rows of positive numbers, and a table."""
    if command in NEEDS:
        pytest.importorskip(NEEDS[command])
    monkeypatch.setattr(sys, "executable", f"{forked}/python" if command == "preparation"
                        else sys.executable)
    graph = generate("sbm", scale=7, edge_factor=4, features=6, classes=3)
    store.write_graph(tmp_path / "g.h5", graph)
    words = [tmp_path / "g.h5" if word == "G" else word for word in SMOKE[command]]

    done = run(command, *words, "--json", program=script.main)
    if command in ("cluster", "nodes") and done.returncode == 69:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout, parse_constant=pytest.fail)
    rows = report["rows"] if "rows" in report else report["cases"][0]["rows"]
    assert rows and all(value >= 0 for row in rows for key, value in row.items()
                        if isinstance(value, float) and key != "gain")
    if command not in ("cluster", "nodes", "preparation"):
        assert report["bench"] == command
        assert len(script.format_report(report).splitlines()) > len(rows)


@pytest.mark.parametrize(("m", "n", "nnz", "width", "options", "least", "traffic"), [
    # 3 pointers of 8, 5 x (4 + 4), x 3 x 2 x 4, out 2 x 2 x 4
    (2, 3, 5, 2, {"cache_bytes": 1000}, 24 + 40 + 24 + 16, 24 + 40 + 24 + 16),
    # x (24 bytes) exceeds the cache: 5 rows of 8 bytes, a line of 64 each
    (2, 3, 5, 2, {"cache_bytes": 23}, 104, 24 + 40 + 5 * 64 + 16),
    # no values, int32 pointers, float64, scales of 7 bytes
    (2, 3, 5, 2, {"cache_bytes": 1000, "value": 0, "pointer": 4, "item": 8, "extra": 7},
     12 + 20 + 48 + 32 + 7, 119),
    # each line of out is read before it is stored: its 160 bytes once more
    (2, 3, 5, 20, {"cache_bytes": 0, "allocate": True}, 464, 24 + 40 + 5 * 128 + 2 * 160)])
def test_bytes_of_a_product(m, n, nnz, width, options, least, traffic):
    assert roofline.spmm_bytes(m, n, nnz, width, **options) == (least, traffic)


# 100 rows of 16 numbers: x has 6,400 bytes, a mask 200, int64 a row 800, 4 heads a row 1,600;
# 300 entries: 101 pointers of 8, columns 1,200, values 1,200, their 4 heads 4,800
@pytest.mark.parametrize(("name", "least"), [
    ("spmm", 101 * 8 + 1200 + 1200 + 2 * 6400 + 6400), ("gather", 6400 + 800 + 2 * 6400),
    ("edge_softmax", 808 + 4800 + 2 * 4800), ("matmul", 3 * 6400), ("adam", 7 * 6400),
    ("activate dropout", 2 * 6400 + 2 * 200 + 800), ("dropout_bits", 800 + 2 * 200)])
def test_bytes_of_a_kernel(name, least):
    indptr = np.r_[0, np.full(100, 300)]  # all entries are in row 0
    arrays = Arrays(indptr, (np.arange(300) % 100).astype(np.int32), np.ones(300, np.float32),
                    16, 0)
    assert bytes_of(CASES[name], arrays, 1 << 30) == (least, least)


def test_each_public_kernel_is_timed_or_there_is_a_reason():
    timed = {name.split()[0] for name in CASES}
    assert timed | set(UNTIMED) == set(SPECS) and not timed & set(UNTIMED)


@pytest.mark.parametrize("result", [[1, 2.01], [1, np.nan], [1, 2, 3]])
def test_a_wrong_kernel_is_an_error_and_a_wrong_peer_is_not(result):
    expected = np.array([1.0, 2.0])
    with pytest.raises(InternalError, match="test: the result of hpgcn has relative error"):
        checks.check_result("test", "hpgcn", np.array(result, float), expected)
    error = checks.check_result("test", "peer", np.array(result, float), expected)
    assert error == (pytest.approx(0.005) if result == [1, 2.01] else None)


@pytest.mark.long
def test_pyg_takes_both_forms_of_a_matrix():
    """Only edge features, and means with loops, have no layer of PyG on a sparse tensor."""
    pyg = pytest.importorskip("benchmarks.pyg_models", exc_type=ImportError)
    settings = script.settings_of("cuda-models", widths="5,8")
    graph, A = cuda_models.make(6, 2, settings, True)
    found = {(name, form): pyg.step_ms(name, form, A, graph, (5, 8, 16), "float32", "cpu", 1)
             for name in cuda_models.MODELS for form in cuda_models.FORMS
             if (name, form) != ("gat", "csr")}  # which some versions of PyG refuse
    missing = {("gine", "csr"), ("sage-gcn", "csr"), ("sage-gcn", "edge_index")}
    assert {case for case, time in found.items() if time is None} == missing


@pytest.mark.release  # PyG is slow to import
@pytest.mark.skipif(importlib.util.find_spec("torch_geometric") is None,
                    reason="needs PyTorch and PyG")
@pytest.mark.usefixtures("small")
def test_the_peer_learns_too(tmp_path):
    """PyG's GCN trains by full batch and by draws of neighbors beside ours."""
    graph = generate("sbm", scale=8, edge_factor=4, features=6, classes=3)
    store.write_graph(tmp_path / "g.h5", graph)
    text = succeed("accuracy", tmp_path / "g.h5", "--batch", "neighbors:3,2:50", "--peers",
                   "--hidden", 8, "--epochs", 12, "--lr", .05, *ONE, "--json", program=script.main)
    rows = [row for row in json.loads(text)["rows"] if row["library"] != "hpgcn"]
    assert len(rows) == 2 and all(row["val_acc"] > 0.6 for row in rows)


@pytest.mark.parametrize(("command", "options", "message"), [
    ("spmm", {"graphs": "dens"}, "'dens' is unknown, expected names among dense, prod, road"),
    ("spmm", {"widths": "16,x"}, "'x' is not a whole number"), ("spmm", {"widths": "0"}, "'0' is"),
    ("spmm", {"repeats": 0}, "repeats is 0"), ("spmm", {"scale_down": 0}, "scale-down is 0"),
    ("spmm", {"graph": "g.h5", "graphs": "road"}, "bench spmm GRAPH excludes --graphs"),
    ("batches", {"graph": "g.h5", "epochs": 0}, "epochs is 0"),
    ("epoch", {"widths": "16"}, "--widths 16: expected features, hidden widths"),
    ("cuda-models", {"widths": "64,6"}, "expected features and hidden width, a multiple of 4"),
    ("spmm", {"starved": True, "threads": 2}, "--starved needs --threads 1, not 2")])
def test_usage(command, options, message):
    with pytest.raises(UsageError, match=message):
        script.settings_of(command, **options)


def test_refusals_of_the_command_line():
    for words in (("gather", "--graphs", "road"), ("growth", "g.h5"), ("spmm", "--ranks", 3)):
        assert re.search("unknown|unrecognized", refused(2, *words, program=script.main))
    for words in (("batches",), ("cluster", "g.h5", "--layouts", "1x1"), ("nothing",),
                  ("preparation", "--parts", 1), ("drift", "g.h5", "--dtype", "float32")):
        refused(2, *words, program=script.main)


@pytest.mark.long
def test_without_a_gpu(tmp_path):
    """The benchmark `cuda` and gpu_check.sh exit with 69, also from another folder."""
    check = ROOT / "scripts" / "gpu_check.sh"
    done = python("-P", script.__file__, "cuda", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 69 and "cuda12" in done.stderr
    done = subprocess.run([check], cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""})
    line, = done.stderr.splitlines()
    assert done.returncode == 69 and line.startswith("gpu_check: bench cuda")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("flags", "limit", "parts"), [
    ((), 100, ["models", "bench", "epochs"]), (("--quick",), 100, ["models"]), ((), 0, [])])
def test_parts_of_the_check_of_a_gpu(tmp_path, flags, limit, parts):
    """gpu_check.sh runs its parts while time is left, and writes their reports."""
    stub = tmp_path / "python"  # finds a GPU but no pytest, and prints reports without measuring
    report = json.dumps({"bench": "x", "machine": {"caches": []}, "rows": [{"graph": "g", "a": 1}]})
    stub.write_text(f"""#!/usr/bin/env bash
case "$1 $#" in
    "- 1") ;;
    "-c "*) echo "no pytest" >&2; exit 1 ;;
    "-m "*) echo "$@" >> {tmp_path}/calls; echo '{report}' ;;
    *) exec {sys.executable} "$@" ;;
esac
""")
    stub.chmod(0o755)
    out = tmp_path / "found.json"
    done = subprocess.run(
        [ROOT / "scripts/gpu_check.sh", *flags, out, "--repeats", "2"], capture_output=True,
        text=True, check=False, env={**os.environ, "PYTHON": stub, "SECONDS_LEFT": str(limit)})
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert [name for name in ("models", "bench", "epochs") if found[name]] == parts
    assert done.stderr.count("left out, after") == (0 if limit else 3)
    if parts:
        first, *_ = (tmp_path / "calls").read_text().splitlines()
        assert first.endswith(" ".join([*flags, "--seconds 50 --repeats 2"]))

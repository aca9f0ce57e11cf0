"""Benchmark of training steps on a GPU beside PyG's layers, and of products beside cuSPARSE.

Graphs of growing size have skewed degrees.
"""

import time
from functools import partial
from importlib import import_module

import numpy as np

from benchmarks import cuda_epoch
from benchmarks.benchmark_graphs import normalized, scaled
from benchmarks.checks import OURS, TOLERANCE, checked_turns, tolerated
from benchmarks.cusparse import ALGORITHMS, CachedProduct
from benchmarks.epoch import with_all_in_training
from hpgcn.config import Config
from hpgcn.datasets.generators.generate import generate
from hpgcn.graphs.graph import Graph
from hpgcn.kernels import cpu
from hpgcn.kernels.bits16 import to_bf16, to_float32
from hpgcn.model import MODELS
from hpgcn.runtime.device import Cuda

SIZES = (8, 4), (12, 16), (17, 14), (19, 16), (20, 57)  # 2 k to 120 M entries
FEW = 3  # graphs of --quick, and those with features of edges
CLASSES = 16
BATCHES = "vertices:20000", "neighbors:5,5:2000"
FORMS = "csr", "edge_index"
PRODUCT = "A x"
ROUNDING = {"float32": TOLERANCE, "bf16": 2e-2}


def measure(settings, gpu, limits):
    """Time training steps of all models of two layers, and mini-batch epochs of gcn.

    All vertices train, with dropout .5 and Adam. A time is the median of a step, or of an
    epoch of batches. Numbers of 16 bits are hpgcn's bf16 and PyG's bfloat16. Results of
    models are not compared here. No case begins after `settings.seconds`.

    rows : graph, entries, model ("A x": one product), widths, dtype, hpgcn_ms, peer_ms (of the
        fastest form), form, ratio (of peer_ms to hpgcn_ms); the last three may be None.
    absent : libraries and forms that are missing or fail, and cases left out (name: reason).
    """
    end = time.perf_counter() + settings.seconds
    rows, absent, late = [], {}, []
    pyg = None
    with tolerated("pyg", absent):
        pyg = import_module("benchmarks.pyg_models")
        if gpu.torch_device == "cuda" and not pyg.torch.cuda.is_available():
            pyg = None
            raise ImportError("torch finds no GPU")

    for place, size in enumerate(SIZES[:FEW] if settings.quick else SIZES):
        if time.perf_counter() > end:
            late.append(f"rmat-{size[0]}")
            continue
        graph, A = make(*size, settings, place < FEW)
        for name, case in cases(place, settings):
            if time.perf_counter() > end:
                late.append(f"{name} on {graph.header.name}")
                continue
            here = {"graph": graph.header.name, "entries": graph.header.num_edges, "model": name}
            rows.append(here | case(graph, A, pyg, gpu, absent, settings))
            gpu.release()
    if late:
        absent[f"{len(late)} cases after {settings.seconds:g} s"] = ", ".join(late)
    return {"rows": rows, "absent": absent}


def make(scale, edge_factor, settings, edges):
    """Return an R-MAT graph whose vertices all train, and A-hat; `edges`: with edge features."""
    scale = scaled(scale, settings.scale_down)
    graph = with_all_in_training(generate(
        "rmat", scale=scale, edge_factor=edge_factor, features=settings.widths[0],
        classes=CLASSES, seed=settings.seed))
    if edges:
        features = np.random.default_rng(0).standard_normal((graph.indices.size, 8), np.float32)
        graph = Graph.from_scipy(graph.adjacency, graph.features, graph.labels, graph.masks,
                                 name=graph.header.name, edge_features=features, classes=True)
    return graph, normalized(graph)


def cases(place, settings):
    """Yield (name, function that returns the other fields of a row) for graph number `place`."""
    for dtype in ("float32",) if settings.quick else ("float32", "bf16"):
        yield PRODUCT, partial(time_product, dtype=dtype)
        for name, layer in MODELS.items():
            if (dtype == "float32" or layer.supports_bf16) and (
                    place < FEW or not layer.uses_edge_features):
                yield name, partial(time_model, name, dtype)
    if place == FEW - 1:
        for batch in BATCHES:
            yield f"gcn, {batch}", partial(time_batches, batch)


def row_of(widths, dtype, ours, peers):
    """Return the fields of a row from hpgcn's milliseconds and those of peers, a dict."""
    form = min(peers, key=peers.get, default=None)
    fastest = peers.get(form)
    return {"widths": ",".join(map(str, widths)), "dtype": dtype, "hpgcn_ms": ours,
            "peer_ms": fastest, "form": form, "ratio": fastest and fastest / ours}


def time_ours(graph, settings, **options):
    """Return the median milliseconds of an epoch."""
    config = Config(layers=2, hidden=settings.widths[1], dropout=0.5, seed=settings.seed,
                    eval_every=0, **options)
    _, seconds, trainer = cuda_epoch.train(graph, config, Cuda(), 2 + settings.repeats)
    trainer.close()
    return 1e3 * float(np.median(seconds[2:]))


def time_model(name, dtype, graph, A, pyg, gpu, absent, settings):
    model, _, aggregator = name.partition("-")
    options = {"model": model, "aggregator": aggregator} if aggregator else {"model": model}
    if MODELS[name].uses_attention:
        options |= {"heads": 4, "output_heads": 1}
    ours = time_ours(graph, settings, dtype=dtype, **options)
    gpu.release()

    widths, peers = (*settings.widths, CLASSES), {}
    for form in FORMS if pyg else ():
        with tolerated(f"pyg {form} {name} {dtype} on {graph.header.name}", absent):
            found = pyg.step_ms(name, form, A, graph, widths, dtype, gpu.torch_device,
                                settings.repeats)
            if found is not None:
                peers[f"pyg {form}"] = found
        gpu.release()
    return row_of(widths, dtype, ours, peers)


def time_batches(batch, graph, A, pyg, gpu, absent, settings):
    ours = time_ours(graph, settings, strategy="p2p", batch=batch)
    return row_of((*settings.widths, CLASSES), "float32", ours, {})


def time_product(graph, A, pyg, gpu, absent, settings, dtype):
    """Time A x by this package, and by cuSPARSE with each of its algorithms."""
    n, width = A.scale.size, settings.widths[1]
    x = np.random.default_rng(settings.seed).standard_normal((n, width), np.float32)
    values = A.values
    if dtype == "bf16":
        x, values = to_bf16(x), to_bf16(values)
    arrays = [gpu.put(array) for array in A[:3]]
    on_gpu = gpu.put(x)
    out = gpu.put(np.empty_like(x))

    calls = {OURS: partial(gpu.kernels.spmm, *arrays, on_gpu, out)}
    given = A.indptr.astype(np.int32), A.indices.astype(np.int32), values
    for algorithm in ALGORITHMS:
        with tolerated(f"cusparse {algorithm}", absent):
            product = CachedProduct(gpu.xp, given, (n, n), on_gpu, out, algorithm)
            calls[f"cusparse {algorithm}"] = product.call

    # results of the CPU, of which those of bf16 are rounded
    exact = cpu.spmm(*A[:3], to_float32(x) if dtype == "bf16" else x)
    for name, call in list(calls.items()):
        with tolerated(name, absent):
            out.fill(0)
            found = gpu.get(call())
            found = to_float32(found) if dtype == "bf16" else found
            error = np.abs(found - exact).max() / np.abs(exact).max()
            if not error <= ROUNDING[dtype]:
                raise ValueError(f"relative error {error:.2g}")
            continue
        del calls[name]
    times = {name: timing["time_ms"] for name, timing in checked_turns(
        gpu, calls, settings.repeats, f"{PRODUCT} on {graph.header.name}", absent=absent).items()}
    return row_of((width,), dtype, times.pop(OURS), times)

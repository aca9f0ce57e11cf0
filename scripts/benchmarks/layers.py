"""Benchmark of PyG layers on sparse tensors of torch, with and without `accelerate()`."""

import time
import warnings
from functools import partial

import numpy as np
import scipy.sparse as sp

from benchmarks.benchmark_graphs import make, normalized
from benchmarks.checks import OURS, checked_turns
from hpgcn.errors import require

LAYERS = {"GCNConv": "sum", "SAGEConv": "mean", "SAGEConv max": "max"}
ELEMENTS = 40  # bytes of an element of x: x, out, gradients, arg of max, the result expected
TINY = 32  # rows of a matrix that is multiplied in next to no time
CALLS = 200  # calls between two readings of the clock


def measure(settings, host, limits):
    """Time forward and backward of the propagation of GCNConv and SAGEConv (mean, max).

    A call is PyG's `propagate` with the gradient of x, without the dense product. A is
    a torch.sparse_csr tensor with int64 indices, transposed before the timing.

    rows : graph, vertices, nonzeros, width, layer, kernel ("pyg", or "hpgcn" for the same call
        within `accelerate()`), and the entries of `checked_turns`. relative_error is that of the
        gradient to SciPy's; None for max.
    ratios : of each graph, width and layer peer_ratio (time of pyg over ours) and first_use_ms (of
        checks and transpose, once a matrix).
    summary : geometric mean and least of the ratios; spmm_overhead_ms and accelerated_overhead_ms
        are times of a call with a gradient, less the kernel.
    """
    torch = require("torch", "torch", "bench torch")
    nn = require("torch_geometric.nn", "pyg", "bench torch")
    torch.set_num_threads(settings.threads)
    rows, ratios = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that sparse tensors are in beta
        for name in settings.graphs:
            A = normalized(make(name, settings.scale_down, settings.seed))
            matrices, first_ms = matrices_of(torch, A)
            for width in settings.widths:
                row = {"graph": name, "vertices": A.scale.size, "nonzeros": A.indices.size,
                       "width": width}
                for layer, timings in time_width(torch, nn, A, matrices, width, settings,
                                                  host):
                    rows += [{**row, "layer": layer, "kernel": kernel, **timing}
                             for kernel, timing in timings.items()]
                    ratio = timings["pyg"]["time_ms"] / timings[OURS]["time_ms"]
                    ratios.append({"graph": name, "width": width, "layer": layer,
                                   "peer_ratio": ratio, "first_use_ms": first_ms})
        every = [row["peer_ratio"] for row in ratios]
        summary = {"mean_ratio": float(np.exp(np.mean(np.log(every)))), "least_ratio": min(every),
                   **overheads(torch, host)}
    return {"rows": rows, "ratios": ratios, "summary": summary}


def matrices_of(torch, A):
    """Return sparse tensors by reduction, and the ms until one is ready.

    A tensor is A-hat or its pattern.
    """
    from hpgcn.interop.torch.torch_adjacency import adjacency_of

    pattern = [torch.from_numpy(array.astype(np.int64)) for array in (A.indptr, A.indices)]
    values = torch.from_numpy(A.values)
    weighted, ones = (torch.sparse_csr_tensor(*pattern, numbers, size=A.matrix.shape)
                      for numbers in (values, torch.ones_like(values)))
    milliseconds = []
    for matrix in (ones, weighted):  # in the first the compiler runs
        begin = time.perf_counter()
        adjacency_of(matrix)[0].arrays(True)
        milliseconds.append(1e3 * (time.perf_counter() - begin))
    return {"sum": weighted, "mean": ones, "max": ones}, milliseconds[-1]


def time_width(torch, nn, A, matrices, width, settings, host):
    """Yield (layer, timings as from `checked_turns`) for one width of x."""
    from hpgcn.interop.torch import accelerate

    n = A.scale.size
    host.need(ELEMENTS * n * width, f"torch, {n} x {width}")
    generator = torch.Generator().manual_seed(settings.seed)
    x, G = (torch.randn(n, width, generator=generator) for _ in range(2))
    x.requires_grad_()
    degree = np.diff(A.indptr).astype(np.float32)[:, None]
    for layer, reduce in LAYERS.items():
        conv, features = nn.GCNConv(1, 1, normalize=False), {"x": x, "edge_weight": None}
        if reduce != "sum":
            conv, features = nn.SAGEConv(1, 1, aggr=reduce), {"x": (x, x)}
        call = partial(step, conv, matrices[reduce], features, x, G)

        def within(call=call):
            with accelerate():
                return call()

        expected = None
        if reduce == "sum":
            expected = A.matrix.T @ G.numpy()
        elif reduce == "mean":
            ones = sp.csr_array((np.ones_like(A.values), A.indices, A.indptr), A.matrix.shape)
            expected = ones.T @ (G.numpy() / degree)
        timings = checked_turns(host, {OURS: within, "pyg": call}, settings.repeats,
                                f"torch, {n} x {width}", expected=expected is not None and
                                dict.fromkeys((OURS, "pyg"), expected))
        for timing in timings.values():
            timing.setdefault("relative_error", None)
        yield layer, timings


def step(conv, A, features, x, G):
    """Run forward and backward of a layer's propagation; return the gradient of x."""
    x.grad = None
    conv.propagate(A, size=None, **features).backward(G)
    return x.grad


def overheads(torch, host):
    """Return the milliseconds of a call beyond those of its kernel.

    Two numbers: with and without a gradient.
    """
    from hpgcn.interop.torch import accelerate, spmm

    A = torch.eye(TINY).to_sparse_csr()
    x = torch.ones(TINY, 16, requires_grad=True)
    arrays = np.arange(TINY + 1), np.arange(TINY, dtype=np.int32), None, x.detach().numpy()

    def milliseconds(call):
        call()
        best = np.inf
        for _ in range(10):
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            best = min(best, time.perf_counter() - begin)
        return 1e3 * best / CALLS

    kernel = milliseconds(lambda: host.kernels.spmm(*arrays))
    alone = milliseconds(lambda: spmm(A, x))
    with accelerate():
        within = milliseconds(lambda: torch.sparse.mm(A, x))
    return {"spmm_overhead_ms": alone - kernel, "accelerated_overhead_ms": within - kernel}

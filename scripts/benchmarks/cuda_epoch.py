"""Benchmark of training epochs on a GPU, for a graph of Reddit's size.

Losses are compared to the CPU's.
"""

from collections import Counter
from contextlib import contextmanager

import numpy as np
import scipy.sparse as sp

from benchmarks.benchmark_graphs import scaled
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.datasets.generators.generate import generate
from hpgcn.errors import InternalError
from hpgcn.graphs.graph import Graph
from hpgcn.runtime.clock import Clock
from hpgcn.runtime.device import HOST, Cuda
from hpgcn.training.trainer import make_trainer

VERTICES = 232_965  # as Reddit, of the 2^SCALE of an R-MAT graph of 115 M entries
SCALE = 18
EDGE_FACTOR = 460
FEATURES = 602
CLASSES = 41
SMALLEST = 8  # 2^8 vertices are left, however far the graph is scaled down
COMPARED = 5  # epochs whose losses are compared
TOLERANCE = 1e-4  # between losses on the GPU and on the CPU, relative


def measure(settings, gpu, limits):
    """Train a GCN of two layers at each width, on the GPU and on the CPU.

    "rows", one a width, have these keys:

    - hidden, vertices, nonzeros (of A-hat), features, classes;
    - epochs: timed, after the first ones;
    - epoch_ms and least_ms: wall clock of a step, median and least;
    - spmm_share and dense_share: of the GPU's time in a step, by events around both;
    - gpu_bytes: of CuPy's pool;
    - loss_error: largest relative difference to the CPU over the first epochs; InternalError above
      TOLERANCE;
    - cpu_epoch_ms: median.
    """
    graph = make(settings)
    rows = []
    for hidden in settings.widths:
        config = Config(hidden=hidden, seed=settings.seed, threads=settings.threads, prune=False)
        rows.append(measure_width(graph, config, settings.repeats, gpu))
        gpu.release()
    return {"rows": rows}


def make(settings):
    """Return an R-MAT graph with about 1 / settings.scale_down of Reddit's vertices."""
    scale = scaled(SCALE, settings.scale_down, SMALLEST)
    n = (VERTICES << scale) >> SCALE
    graph = generate("rmat", scale=scale, edge_factor=EDGE_FACTOR, features=FEATURES,
                     classes=CLASSES, seed=settings.seed)
    ones = np.ones(graph.indices.size, np.uint8)
    A = sp.csr_array((ones, graph.indices, graph.indptr), shape=2 * (graph.num_rows,))
    masks = {key: mask[:n] for key, mask in graph.masks.items()}
    return Graph.from_scipy(A[:n][:, :n], graph.features[:n], graph.labels[:n], masks,
                            name="reddit-like")


def measure_width(graph, config, epochs, gpu):
    losses, seconds, trainer = train(graph, config, Cuda(), COMPARED + epochs)
    gpu_bytes = gpu.xp.get_default_memory_pool().total_bytes()
    trainer.comm.clock.record(0)  # steps with events are computed block by block
    shares = time_kinds(trainer, COMPARED + epochs + 1, gpu.xp.cuda)
    trainer.close()
    del trainer

    expected, cpu_seconds, _ = train(graph, config, HOST, COMPARED)
    error = float(np.max(np.abs(losses[:COMPARED] / expected - 1)))
    if not error <= TOLERANCE:
        raise InternalError(f"cuda-epoch {config.hidden}: losses differ from those of the CPU by "
                            f"{error:.2g}, expected at most {TOLERANCE:g}")

    timed = 1e3 * seconds[COMPARED:]
    return {"hidden": config.hidden, "vertices": graph.num_rows,
            "nonzeros": graph.header.num_edges + graph.num_rows,
            "features": graph.header.num_features, "classes": graph.header.num_classes,
            "epochs": epochs, "epoch_ms": np.median(timed), "least_ms": timed.min(),
            "spmm_share": shares["spmm"], "dense_share": shares["dense"], "gpu_bytes": gpu_bytes,
            "loss_error": error, "cpu_epoch_ms": 1e3 * np.median(cpu_seconds[1:])}


def train(graph, config, device, epochs):
    """Train for `epochs` epochs; return their losses, their seconds, and the Trainer."""
    comm = SerialComm()
    comm.use(device)
    comm.clock = EventClock()
    trainer = make_trainer(graph, config.replace(device=device.name), comm)
    metrics = [trainer.train_epoch(epoch) for epoch in range(1, epochs + 1)]
    losses, seconds = (np.array([line[name] for line in metrics]) for name in ("loss", "epoch_s"))
    return losses, seconds, trainer


def time_kinds(trainer, epoch, cuda):
    """Train for one epoch; return the share of each kind of work in the GPU's time."""
    clock = trainer.comm.clock
    clock.cuda = cuda
    step = ("step", cuda.Event(), cuda.Event())
    step[1].record()
    trainer.train_epoch(epoch)
    step[2].record()
    clock.cuda = None

    milliseconds = Counter()
    for kind, begin, end in (*clock.pairs, step):
        end.synchronize()
        milliseconds[kind] += cuda.get_elapsed_time(begin, end)
    return {kind: time / milliseconds["step"] for kind, time in milliseconds.items()}


class EventClock(Clock):
    """A Clock that also measures the GPU's time in its outermost blocks.

    It does so while the attribute `cuda` is set.
    """

    def __init__(self):
        super().__init__()
        self.cuda = None  # the module cupy.cuda, whose events are put around the blocks
        self.inside = False
        self.pairs = []  # (kind, begin, end)

    @contextmanager
    def __call__(self, kind, name=None, part=None):
        with super().__call__(kind, name, part):
            if self.cuda is None or self.inside:
                yield
                return
            begin = self.cuda.Event()
            end = self.cuda.Event()
            self.inside = True
            begin.record()
            yield
            end.record()
            self.inside = False
            self.pairs.append((kind, begin, end))

"""Training epochs on a GPU: a graph of the size of Reddit, the share of each kernel, and the losses of the CPU."""
from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, nullcontext

import numpy as np
import scipy.sparse as sp

from hpgcn.bench import hardware, tables
from hpgcn.bench.gpu import Gpu
from hpgcn.bench.timing import OURS
from hpgcn.clock import Clock
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.datasets import generate
from hpgcn.device import HOST, Cuda
from hpgcn.errors import InternalError
from hpgcn.graph import Graph
from hpgcn.kernels.cuda.device import Device, current, using
from hpgcn.trainer import make_trainer

VERTICES, SCALE, EDGE_FACTOR = 232_965, 18, 460  # of 2^18 vertices as many as Reddit has: about 115 M entries
FEATURES, CLASSES = 602, 41
SMALLEST = 8  # 2^8 vertices are left, however far the graph is scaled down
WHOLE = "a step"
COMPARED = 5  # epochs whose losses are compared
TOLERANCE = 1e-4  # between losses on the GPU and on the CPU, relative


def measure(settings):
    """Train a GCN of two layers, full batch, at each hidden width: epochs timed, then taken apart, then compared.

    Returns
    -------
    dict
        "machine": hpgcn.bench.hardware, and the GPU. "rows", one a width: hidden, vertices, nonzeros (of A-hat),
        features, classes, epochs (timed, after the first ones), epoch_ms and least_ms (wall clock of a step, median and
        least), spmm_share and dense_share (of the GPU's time in a step, by events around both), gpu_bytes (of
        CuPy's pool), loss_error (largest relative difference to the CPU over the first epochs), cpu_epoch_ms (median).
        "kernels": hidden, kernel, calls, time_ms and share of a step; the last row is what no kernel of this package
        did: products of dense matrices, CuPy's own passes, and idle time.

    Raises
    ------
    MissingError
        No CuPy or no GPU.
    InternalError
        Losses differ from those of the CPU by more than TOLERANCE.
    """
    gpu = Gpu()
    graph, rows, kernels = make(settings), [], []
    for hidden in settings.widths:
        config = Config(hidden=hidden, seed=settings.seed, threads=settings.threads, prune=False)
        row, found = measure_width(graph, config, settings.repeats, gpu)
        rows.append(row)
        kernels += found
        gpu.release()
    return {"machine": hardware.describe() | gpu.describe(), "rows": rows, "kernels": kernels}


def make(settings):
    """An R-MAT graph of about 1 / settings.scale_down of the vertices of Reddit."""
    scale = max(SMALLEST, SCALE - (settings.scale_down.bit_length() - 1))
    n = (VERTICES << scale) >> SCALE
    graph = generate.generate("rmat", scale=scale, edge_factor=EDGE_FACTOR, features=FEATURES, classes=CLASSES,
                              seed=settings.seed)
    A = sp.csr_array((np.ones(graph.indices.size, np.uint8), graph.indices, graph.indptr), shape=2 * (graph.num_rows,))
    masks = {key: mask[:n] for key, mask in graph.masks.items()}
    return Graph.from_scipy(A[:n][:, :n], graph.features[:n], graph.labels[:n], masks, name="reddit-like")


def measure_width(graph, config, epochs, gpu):
    """Return the row of a width, and those of its kernels."""
    losses, seconds, trainer = train(graph, config, Cuda(), COMPARED + epochs)
    bytes_held = gpu.xp.get_default_memory_pool().total_bytes()
    shares, kernels = taken_apart(trainer, COMPARED + epochs + 1)
    _, whole = kernels.pop(WHOLE)
    trainer.shard.close()
    del trainer
    expected, on_cpu, _ = train(graph, config, HOST, COMPARED)
    error = float(np.max(np.abs(losses[:COMPARED] / expected - 1)))
    if not error <= TOLERANCE:
        raise InternalError(f"cuda-epoch {config.hidden}: losses differ from those of the CPU by {error:.2g}, expected "
                            f"at most {TOLERANCE:g}")
    took = seconds[COMPARED:]
    row = {"hidden": config.hidden, "vertices": graph.num_rows, "nonzeros": graph.header.num_edges + graph.num_rows,
           "features": graph.header.num_features, "classes": graph.header.num_classes, "epochs": epochs,
           "epoch_ms": 1e3 * float(np.median(took)), "least_ms": 1e3 * float(np.min(took)),
           "spmm_share": shares["spmm"], "dense_share": shares["dense"], "gpu_bytes": bytes_held,
           "loss_error": error, "cpu_epoch_ms": 1e3 * float(np.median(on_cpu[1:]))}
    found = [{"hidden": config.hidden, "kernel": name, "calls": calls, "time_ms": ms, "share": ms / whole}
             for name, (calls, ms) in sorted(kernels.items(), key=lambda item: -item[1][1])]
    rest = max(0.0, whole - sum(line["time_ms"] for line in found))
    return row, [*found, {"hidden": config.hidden, "kernel": f"not {OURS}", "calls": 0, "time_ms": rest,
                          "share": rest / whole}]


def train(graph, config, device, epochs):
    """Losses and seconds of some training steps, and the Trainer."""
    comm = SerialComm()
    comm.use(device)
    comm.clock = EventClock()
    trainer = make_trainer(graph, config.replace(device=device.name), comm)
    found = [trainer.epoch(epoch) for epoch in range(1, epochs + 1)]
    return np.array([m["loss"] for m in found]), np.array([m["epoch_s"] for m in found]), trainer


def taken_apart(trainer, epoch):
    """Take two steps: shares of the GPU's time by kind of work; (calls, milliseconds) by kernel, WHOLE among them."""
    clock, timed = trainer.comm.clock, Timed(current())
    clock.spans = Spans(timed.xp)
    with clock.spans(WHOLE):
        trainer.epoch(epoch)
    kinds, clock.spans = clock.spans.milliseconds(), None
    with using(timed), timed.spans(WHOLE):
        trainer.epoch(epoch + 1)
    shares = {kind: milliseconds / kinds[WHOLE][1] for kind, (_, milliseconds) in kinds.items()}
    return shares, timed.spans.milliseconds()


class Spans:
    """Times between pairs of events on the current stream, by name."""

    def __init__(self, xp):
        self.xp, self.found = xp, []

    @contextmanager
    def __call__(self, name):
        """Time what is queued within."""
        begin, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        begin.record()
        yield
        end.record()
        self.found.append((name, begin, end))

    def milliseconds(self):
        """(calls, milliseconds) by name; waits for all of them."""
        calls, total = Counter(), Counter()
        for name, begin, end in self.found:
            end.synchronize()
            calls[name] += 1
            total[name] += self.xp.cuda.get_elapsed_time(begin, end)
        return {name: (calls[name], total[name]) for name in calls}


class EventClock(Clock):
    """A Clock that also times what the GPU does in its outermost blocks, while `spans` is not None."""

    def __init__(self):
        super().__init__()
        self.spans, self.inside = None, False

    @contextmanager
    def __call__(self, kind, name=None):
        outer, self.inside = not self.inside, True
        try:
            with super().__call__(kind, name), self.spans(kind) if self.spans and outer else nullcontext():
                yield
        finally:
            self.inside = not outer


class Timed(Device):
    """A device that times each kernel that it launches.

    Parameters
    ----------
    device : hpgcn.kernels.cuda.device.Device
        What launches it.
    """

    def __init__(self, device):
        self.device, self.xp, self.team = device, device.xp, device.team
        self.spans = Spans(device.xp)

    def function(self, source, name, macros):
        """Return the kernel and its name."""
        return name, self.device.function(source, name, macros)

    def start(self, function, grid, block, arguments):
        """Run it between two events."""
        name, kernel = function
        with self.spans(name):
            self.device.start(kernel, grid, block, arguments)

    def address(self, array):
        """As of the device itself."""
        return self.device.address(array)


def table(report):
    """Lines for people."""
    return "\n".join([tables.format_report(report), "", *tables.aligned(report["kernels"])])

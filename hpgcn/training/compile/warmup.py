"""Set the number of threads and load every kernel before the first epoch.

Kernels that are not in the cache are compiled.
"""
from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numba.core import event

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.graphs.graph import Graph
from hpgcn.kernels import backend
from hpgcn.kernels.ahead import load_layer, load_product
from hpgcn.kernels.bits16 import BF16
from hpgcn.kernels.host.threads import num_threads, set_num_threads, threshold
from hpgcn.model import METRICS, make_spec, products_of
from hpgcn.planning.counts.shaped_step import LevelSizes, Steps
from hpgcn.runtime import faults
from hpgcn.runtime.machine import default_threads, is_allowed, stay_in_domain
from hpgcn.runtime.progress_bar import bar, log_line
from hpgcn.runtime.progress_log import mute_progress_log
from hpgcn.sampling import smallest
from hpgcn.strategies import without_grid
from hpgcn.training.compile.compile_workers import VARIABLE, KernelsOfRun, compile_workers
from hpgcn.training.setup.run_plan import make_run_plan
from hpgcn.training.steps.step_views import make_parts
from hpgcn.training.steps.training_step import evaluate, train_step

if TYPE_CHECKING:
    from hpgcn.graphs.header import Header
    from hpgcn.model.spec import ModelSpec
    from hpgcn.runtime.device import Host

log = logging.getLogger("hpgcn")
COMPILING = 600.0  # seconds that ranks wait, beyond --comm-timeout, for the one that compiles


def set_threads(threads: int) -> int:
    """Use `threads` threads, 0: those of this rank's share of cores; return the number in use."""
    if not threads:
        stay_in_domain()
    set_num_threads(threads or default_threads())
    return num_threads()


class Compilations(event.Listener):
    """Counter of the kernels that Numba compiles, with a progress bar if `shown`.

    Kernels from its cache do not count. Without a terminal the first kernel is logged,
    and every few seconds their number.
    """

    text = "compiling kernels, once per machine and version"

    def __init__(self, shown: bool) -> None:
        self.shown = shown
        self.bar = None

    def on_start(self, _: event.Event) -> None:
        if self.bar is None:
            self.bar = bar(desc=self.text, unit="kernel", bar_format="{desc}: {n} in {elapsed}",
                           leave=False, shown=self.shown)
            if self.bar.disable:
                (log_line if self.shown else log.info)(self.text)

    def on_end(self, _: event.Event) -> None:
        self.bar.update()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


@contextmanager
def compiling(shown: bool = True, rank: int = 0) -> Iterator[None]:
    """Show or log on rank 0 that kernels are compiled; a context manager.

    See `Compilations`.
    """
    if rank:
        yield
        return
    with closing(Compilations(shown)) as counts, event.install_listener("numba:compile", counts):
        yield


def warm_up(comm: SerialComm, header: Header, config: Config, spec: ModelSpec) -> None:
    """Compile or load the kernels of a run; all ranks call this together.

    One rank of each node compiles first; the other ranks then load the kernels
    from the cache. Ranks that are threads of one process share what the first one
    loads.
    """
    for turn in (True, False):
        if (comm.local_rank == 0) == turn and comm.turn == 0:
            with faults.ignored(), mute_progress_log(), _workers(comm, header, config, spec, turn):
                call_kernels(header, config, spec, comm.device, comm.size)
        with comm.extended_timeout(COMPILING):
            comm.barrier()


def _workers(comm: SerialComm, header: Header, config: Config, spec: ModelSpec,
             turn: bool) -> AbstractContextManager:
    """Return a context manager with processes that compile for this rank.

    Only the first rank of each node has such processes.
    """
    if not is_allowed(VARIABLE) or not turn or comm.device.name != "cpu":
        return nullcontext()
    return compile_workers(KernelsOfRun(header, config, spec, comm.size, os.sched_getaffinity(0)))


def call_kernels(header: Header, config: Config, spec: ModelSpec, device: Host, ranks: int) -> None:
    """Call the kernels of a run on `ranks` ranks, on few rows."""
    _small_step(header, config, device, ranks)
    if device.name == "cpu" or config.aggregates_on_host:
        _load_products(header, spec, ranks)


def _load_products(header: Header, spec: ModelSpec, ranks: int) -> None:
    """Compile or load the products for the width and rows of a rank.

    Kernels depend on both numbers. On several ranks a product also adds to an existing
    result.
    """
    # the products with A of a step
    rows = -(-header.num_nodes // ranks)
    nnz = -(-header.num_edges // ranks) + rows
    one = np.ones(1, np.int64)
    hops = sum(products_of(spec)) + 1
    levels = LevelSizes([one] * hops, [True] * hops, [1] * hops, np.ones((2, 1), np.int64))
    sizes = {(product.width, True, product.masked)
             for product in Steps().products(spec, (levels, levels))
             if not (product.heads or product.edge_width)}
    if spec.precomputed:
        sizes |= {(spec.widths[0], aligned, False) for aligned in (False, True)}

    # products with weights
    for fan_in, fan_out in set(pairwise(spec.widths)):
        load_layer(fan_in, fan_out, spec.dtype, spec.row_dtype)
    if header.sparse_features:  # products with the first weights
        for often in (1, 32):
            f = header.num_features
            load_product(f, spec.widths[1], often * f, spec.dtype)
            load_product(f, spec.widths[1], often * f, spec.dtype, aligned=False)

    # products with A, by what becomes of the result
    results = {"stored": {}}
    if spec.halved:
        results["sums"] = {"summed": True}  # logits, and parts of rows of 16 bits
    if ranks > 1:
        results["parts"] = {"summed": True, "accumulate": True}
    for width, aligned, masked in sorted(sizes):
        for options in results.values():
            load_product(rows, width, nnz, spec.dtype, spec.row_dtype, aligned=aligned,
                         masked=masked, **options)


def _small_step(header: Header, config: Config, device: Host, ranks: int) -> None:
    """Take a training step and evaluate on a graph of three vertices.

    This calls the kernels of set-up, of steps and of batches. One rank takes the step,
    so kernels of messages are called for `ranks` ranks besides.
    """
    # the graph
    directed = header.directed
    A = np.array([[0, 1, directed], [1, 0, not directed], [0, 1, 0]], np.float32)  # no degree is 0
    X = np.eye(3, max(1, min(header.num_features, 3)), dtype=np.float32)
    if header.sparse_features:
        import scipy.sparse as sp

        X = sp.csr_array(X)
    y = np.eye(3) if header.multilabel else np.arange(3)
    contents = {"targets": np.eye(3, header.num_targets)} if header.num_targets else {"y": y}
    with warnings.catch_warnings(action="ignore"):  # its labels do not matter
        edges = np.ones(np.count_nonzero(A)) if header.num_edge_features else None
        tiny = Graph.from_scipy(A, X, masks=([0], [1], [2]), name="warm-up",
                                links={"train": np.array([[0, 1]])}, edge_features=edges,
                                **contents)

    # settings that do not change which kernels are used
    few = config.replace(strategy=without_grid(config), out="", checkpoint_every=0, epochs=1,
                         memory="", scratch="", gpu_memory="", lr=Config.lr,
                          weight_decay=0.0, class_weight="", metric="auto", split_index=0,
                          training_graph="all", patience=0,
                          strict_negatives=False, evaluation_negatives="auto",
                          message_edges="train", precompute=config.precompute
                          and config.message_edges == "train",
                          batch=smallest(config.batch))
    others = config.metric in METRICS and not header.num_targets
    metric = "macro-f1" if others else "auto"  # the same kernels

    # the step, and kernels of messages
    rows = device.put(np.ones((2, 1), config.number_dtype))
    if config.dtype != config.number_dtype:
        rows = backend(rows).convert(rows, device.empty(rows.shape, BF16))
    numbers = device.put(np.arange(2))
    mask = device.put(np.zeros((2, 1), np.uint8))
    ops = backend(rows)
    alone = SerialComm()
    alone.use(device)
    for work in (0, math.inf):
        with threshold(work), np.errstate(all="ignore"):
            plan = make_run_plan(tiny, few, make_spec(tiny.header, few), alone)
            _, batches, evaluation, _, optimizer = make_parts(plan)
            with batches.memory():
                train_step(batches.view(1), 1, optimizer, plan.shard.columns)
            evaluate(evaluation, metric)
            batches.close()
            if ranks > 1:
                ops.scatter_add(ops.gather(rows, numbers), numbers, rows)
                ops.apply_mask(rows, mask)

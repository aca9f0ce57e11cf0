"""Processes that compile kernels of a run beside the rank that needs them.

Numba holds a lock while it compiles, so only other processes can compile at the same
time. The rank compiles in the order of its calls. The workers begin with the kernels
that it calls last, and store them in the cache, where the rank finds them. A run never
depends on a worker: the rank compiles every kernel that is missing. With
HPGCN_COMPILE_WORKERS=0 it compiles all of them.
"""
from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from numba.core import event
from numba.core.dispatcher import Dispatcher

from hpgcn.config import Config
from hpgcn.graphs.header import Header
from hpgcn.kernels.host.cgroups import usable_cores
from hpgcn.model.spec import ModelSpec
from hpgcn.runtime import signals
from hpgcn.runtime.machine import available_memory, child_environment

VARIABLE = "HPGCN_COMPILE_WORKERS"
MOST = 3  # a GCN needs about 20 kernels, and a worker starts as long as it compiles 2
WORKER_BYTES = 512 << 20  # twice the memory of a process that compiles
CHILD = "hpgcn.training.compile_child"


class KernelsOfRun(NamedTuple):
    """Settings and sizes that decide which kernels a run on the CPU calls."""

    header: Header
    config: Config
    spec: ModelSpec
    ranks: int
    cores: set  # that its workers may use


class CompileWorkers(event.Listener):
    """Listener that starts `count` workers at the first uncached kernel.

    A C function of a sparse product compiles faster than a worker starts. So it starts
    none.
    """

    def __init__(self, kernels: KernelsOfRun, count: int) -> None:
        self.kernels = kernels
        self.count = count
        self.running = None

    def on_start(self, each: event.Event) -> None:
        if self.running is None and isinstance(each.data["dispatcher"], Dispatcher):
            self.running = []
            for number in range(self.count):
                with suppress(OSError):  # no process can start, or it has ended
                    self._start(number)

    def on_end(self, _: event.Event) -> None:
        """Ignore the end of a compilation."""

    def _start(self, number: int) -> None:
        command = [sys.executable, "-P", "-m", CHILD, str(os.getpid()), str(number),
                   str(self.count)]
        with signals.blocked(*signals.STOPPING):
            worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, env=child_environment(),
                                      start_new_session=True)
        self.running.append(worker)
        with worker.stdin:
            worker.stdin.write(pickle.dumps(self.kernels))

    def end(self) -> None:
        """End the workers.

        A kernel that they are compiling is lost, but the cache is intact.
        """
        for worker in self.running or ():
            worker.kill()
        for worker in self.running or ():
            worker.wait()


def num_workers() -> int:
    """Return the number of workers that this machine has cores and memory for."""
    return max(0, min(MOST, usable_cores() - 1, available_memory() // WORKER_BYTES - 1))


@contextmanager
def compile_workers(kernels: KernelsOfRun) -> Iterator[None]:
    """Let workers compile while this process compiles the kernels of a run.

    The context manager yields the CompileWorkers.
    """
    # now, because the thread that compiles first may be bound to a part of the cores
    workers = CompileWorkers(kernels, num_workers())
    try:
        with event.install_listener("numba:compile", workers):
            yield workers
    finally:
        workers.end()

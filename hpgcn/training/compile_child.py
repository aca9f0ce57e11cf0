"""One worker of compile_workers, started as `python -m MODULE PARENT NUMBER COUNT`.

PARENT is the process that uses the kernels, and NUMBER is one of COUNT shares. A
pickled KernelsOfRun comes on standard input. The worker writes nothing except to the
cache of kernels.
"""
from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress

from hpgcn.comm import SerialComm
from hpgcn.errors import HpgcnError
from hpgcn.runtime import faults
from hpgcn.runtime.machine import die_with_parent
from hpgcn.training.compile.recording import recorded
from hpgcn.training.compile.warmup import call_kernels


def main(parent: int, number: int, count: int) -> None:
    """Compile one of `count` shares of a run's kernels, the last kernel first."""
    die_with_parent(parent)
    run = pickle.load(sys.stdin.buffer)
    os.sched_setaffinity(0, run.cores)  # a thread that is bound to fewer may have started this
    with faults.ignored(), recorded() as kernels, suppress(HpgcnError):
        call_kernels(run.header, run.config, run.spec, SerialComm().device, run.ranks)
    for compile_kernel in list(kernels.values())[::-1][number::count]:
        compile_kernel()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

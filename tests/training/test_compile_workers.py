"""Processes that compile kernels of a run at the same time as the run itself."""
import json
import os
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from commands import python
from compilations import noted_calls
from graphs import make
from numba.core import event
from numba.core.dispatcher import Dispatcher

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import set_num_threads
from hpgcn.model import make_spec
from hpgcn.runtime.device import Host
from hpgcn.training.compile import compile_workers as module
from hpgcn.training.compile import recording, warmup
from hpgcn.training.compile.compile_workers import CompileWorkers, KernelsOfRun, compile_workers
from hpgcn.training.compile.recording import recorded
from hpgcn.training.compile.warmup import call_kernels

CASES = [{}, {"model": "sage", "norm": "layer", "residual": True}, {"model": "gat"},
         {"batch": "neighbors:2,2:4", "dtype": "bf16"}, {"norm": "batch", "activation": "elu"}]


@jit()
def nothing():
    """Do nothing."""


def kernels_of_run(ranks=1, **settings):
    header = make(n=400).header
    config = Config(**settings)
    spec = make_spec(header, config)
    return KernelsOfRun(header, config, spec, ranks, os.sched_getaffinity(0))


def name_of(kernel, types=()):
    function = getattr(kernel, "py_func", kernel)
    return f"{function.__qualname__} {types}"


def called_kernels(call):
    """Return the names of the kernels that a function calls.

    Those that kernels call are left out.
    """
    called = []

    def note(kernel, *types):
        if not types or kernel.py_func.__module__.startswith(recording.RECORDED):
            called.append(name_of(kernel, *types))

    with noted_calls(note):
        call()
    return called


def print_kernels(number, record):
    """Print the kernels of a case as a list, recorded or called."""
    run = kernels_of_run(ranks=2 * number + 1, **CASES[number])
    set_num_threads(2)

    def call():
        call_kernels(run.header, run.config, run.spec, Host(), run.ranks)

    if record:
        with recorded() as kernels:
            call()
        names = [name_of(*key) for key in kernels]
    else:
        names = called_kernels(call)
    print(json.dumps(sorted(names)), flush=True)


def print_all():
    """Print the kernels of all cases, each in a fork: loaded kernels are not recorded."""
    for number in range(len(CASES)):
        for record in (False, True):
            child = os.fork()
            if not child:
                print_kernels(number, record)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, (number, record)


@pytest.fixture(scope="module")
def outputs():
    """Return the kernels that each case calls, and those that are recorded."""
    done = python("-c", "from test_compile_workers import print_all; print_all()", timeout=600,
                  PYTHONPATH=os.pathsep.join(sys.path))
    assert done.returncode == 0, done.stderr
    lists = [json.loads(line) for line in done.stdout.splitlines()]
    return [*zip(lists[::2], lists[1::2], strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(CASES)))
def test_all_kernels_that_a_run_calls_are_recorded(number, outputs):
    called, found = outputs[number]
    assert len(called) > 10
    assert called == found
    if not number:  # a GCN on one rank sends no rows
        assert not [each for each in called if each.startswith(("_gather", "_scatter_add"))]


def test_recorded_kernels_are_compiled_later(monkeypatch):
    monkeypatch.setattr(recording, "RECORDED", __name__)

    @jit()
    def double(x):
        x *= 2

    x = np.ones(3)
    before = Dispatcher.compile
    with recorded() as kernels:
        double(x)
        double(x)
    assert Dispatcher.compile is before
    assert x.tolist() == [0, 0, 0] and not double.overloads
    (kernel, types), = kernels
    kernels[kernel, types]()
    assert [*double.overloads] == [types]
    x[:] = 3
    double(x)
    assert x.tolist() == [6, 6, 6]


@pytest.mark.long
def test_a_worker_ends_without_an_error():
    workers = CompileWorkers(kernels_of_run(), 1)
    with event.install_listener("numba:compile", workers), \
            event.trigger_event("numba:compile", {"dispatcher": nothing}):
        worker, = workers.running
    assert worker.wait(300) == 0


@pytest.fixture
def sleeping(tmp_path, monkeypatch):
    """Replace workers by two processes that sleep."""
    (tmp_path / "sleeping_worker.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "CHILD", "sleeping_worker")
    monkeypatch.setattr(module, "num_workers", lambda: 2)


def test_workers_start_at_the_first_kernel_and_end_with_the_warm_up(sleeping, monkeypatch):
    """Workers start once, not for a C function, and end although the run fails.

    Cores are counted before: a thread that compiles may be bound to one.
    """
    with pytest.raises(KeyboardInterrupt), compile_workers(kernels_of_run()) as workers:
        monkeypatch.setattr(module, "num_workers", None)
        with event.trigger_event("numba:compile", {"dispatcher": object()}):
            assert workers.running is None
        for _ in range(2):
            with event.trigger_event("numba:compile", {"dispatcher": nothing}):
                pass
            first, second = workers.running
        raise KeyboardInterrupt
    assert first.returncode == second.returncode == -9


def test_without_workers_the_run_compiles_alone(monkeypatch):
    monkeypatch.setattr(module.sys, "executable", "/no/such/python")
    workers = CompileWorkers(kernels_of_run(), 2)
    workers.on_start(SimpleNamespace(data={"dispatcher": nothing}))
    assert workers.running == []
    workers.end()


def test_workers_can_be_switched_off(monkeypatch):
    def context(text):
        monkeypatch.setenv(module.VARIABLE, text)
        run = kernels_of_run()
        return warmup._workers(SerialComm(), run.header, run.config, run.spec, True)

    assert isinstance(context("0"), nullcontext)
    assert not isinstance(context("1"), nullcontext)
    with pytest.raises(UsageError, match="HPGCN_COMPILE_WORKERS=no: expected 0 or 1"):
        context("no")


@pytest.mark.parametrize("cores, memory, expected", [
    (1, 1 << 40, 0), (2, 1 << 40, 1), (64, 1 << 40, 3), (64, 1 << 20, 0), (64, 3 << 29, 2)])
def test_workers_fit_cores_and_memory(monkeypatch, cores, memory, expected):
    monkeypatch.setattr(module, "usable_cores", lambda: cores)
    monkeypatch.setattr(module, "available_memory", lambda: memory)
    assert module.num_workers() == expected

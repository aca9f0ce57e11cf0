"""Kernels give equal bits for any number of threads, and when Python threads call them at once."""
import gc
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier, Thread, current_thread

import numpy as np
import pytest
from cases import case, long, outcome
from numba.core.runtime import _nrt_python, rtsys

from hpgcn.kernels import cpu, reference
from hpgcn.kernels.cpu.emit.row_passes import is_packed
from hpgcn.kernels.host import threads
from hpgcn.kernels.host.team import Team, current_core
from hpgcn.kernels.host.threads import (
    Threaded,
    chunks,
    num_threads,
    set_num_threads,
    threshold,
    worth_threads,
)
from hpgcn.kernels.specs import SPECS

AGGREGATIONS = [long("aggregate", {"op": op, "reduce": reduce})
                for op in reference.OPS for reduce in reference.REDUCES]
BACKWARDS = [long("aggregate_backward", {"op": "mul", "reduce": "max", "arg": None}),
             long("aggregate_backward", {"op": "div", "reduce": "sum"})]
RISING = np.sort(case("scatter_add", scale=25)["index"])
ALL = [*((name, {}) for name in SPECS), *AGGREGATIONS, *BACKWARDS,
       ("scatter_add", {"index": RISING})]


def bits(name, changed, work):
    """Return the result of a kernel as bytes; threads start for `work` operations or more."""
    given = {**case(name, scale=25), **changed}
    if "arg" in given:
        forward = {key: value for key, value in given.items() if key not in ("grad", "arg")}
        given["arg"] = cpu.aggregate(**forward)[1]
    with threshold(work):
        return b"".join(array.tobytes() for array in outcome(cpu, name, given))


@pytest.mark.parametrize("name, changed", ALL)
def test_any_number_of_threads_gives_the_same_bits(name, changed):
    before = num_threads()
    results = {bits(name, changed, np.inf)}
    try:
        for threads in (1, 2, 5):
            set_num_threads(threads)
            results.add(bits(name, changed, 0))
    finally:
        set_num_threads(before)
    assert len(results) == 1


def run_at_once(*functions):
    """Run functions in Python threads that start together; return their results."""
    barrier = Barrier(len(functions))

    def run(function):
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(run, functions))


@pytest.mark.parametrize("work", [0, np.inf])
def test_python_threads_multiply_different_matrices_at_once(work):
    """Two threads that multiply at once have separate scratch memory, so results stay right."""
    rng = np.random.default_rng(1)
    indptr = np.arange(0, 20_001, 40)
    products = [(indptr, rng.integers(0, 500, 20_000).astype(np.int32), None,
                 rng.standard_normal((500, 3))) for _ in range(2)]
    assert all(is_packed(x, 3, 20_000, len(x)) for *_, x in products)
    expected = [cpu.spmm(*product).tobytes() for product in products]

    def repeat(product):
        with threshold(work):
            return {cpu.spmm(*product).tobytes() for _ in range(200)}

    results = run_at_once(*(lambda product=product: repeat(product) for product in products))
    assert results == [{one} for one in expected]


def test_python_threads_run_any_kernels_at_once():
    def run():
        return {name: bits(name, {}, 0) for name in SPECS}

    expected = run()
    for found in run_at_once(run, run, run):
        for name in SPECS:
            np.testing.assert_array_equal(*(np.frombuffer(each[name], np.uint64)
                                            for each in (found, expected)), err_msg=name)


@pytest.fixture
def team(monkeypatch):
    """Return a new Team, which runs kernels on two threads, whatever this machine has."""
    monkeypatch.setattr(threads._Threads, "size", 2)
    monkeypatch.setattr(threads._Threads, "team", team := Team())
    return team


def test_a_thread_that_does_not_come_is_not_waited_for(team):
    ended = Thread(target=int)
    ended.start()
    ended.join()
    team.threads.append(ended)
    assert bits("spmm", {}, 0) == bits("spmm", {}, np.inf)  # otherwise it would wait forever
    assert team.threads == [ended]


def test_sleeping_threads_come_back(team):
    for pause in (0, 0.001, 0.05):  # while the other thread waits in a loop, and when it sleeps
        time.sleep(pause)
        assert bits("spmm", {}, 0) == bits("spmm", {}, np.inf)


@Threaded
def _fail(counters, alone, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        bounds[chunk] = 1
        if alone.size:
            raise MemoryError("no room")


@pytest.mark.parametrize("fails", [0, 1])
def test_a_kernel_that_fails_ends_its_call(team, fails):
    bounds = np.zeros(5, np.int64)
    with threshold(0), pytest.raises(MemoryError) if fails else nullcontext():
        _fail(1, np.zeros(fails), bounds)
    assert np.count_nonzero(bounds[:4])
    assert bits("spmm", {}, 0) == bits("spmm", {}, np.inf)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_process_starts_threads_of_its_own(team):
    expected = bits("spmm", {}, 0)
    child = os.fork()
    if not child:
        os._exit(bits("spmm", {}, 0) != expected or threads._Threads.team is team)
    assert os.waitpid(child, 0)[1] == 0


def test_small_kernels_wake_no_threads(team, monkeypatch):
    least = threads.LEAST_WORK
    assert not worth_threads(least - 1) and worth_threads(least)
    monkeypatch.setattr(threads._Threads, "size", 1)
    assert not worth_threads(least)


@pytest.mark.skipif(current_core() is None, reason="the system does not say where a thread runs")
def test_other_threads_leave_the_core_of_the_caller_to_it(team):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this process may use one core alone")
    everywhere = os.sched_getaffinity(0)
    bits("spmm", {}, 0)
    assert team.threads and os.sched_getaffinity(0) == everywhere
    for thread in team.threads:
        assert os.sched_getaffinity(thread.native_id) == everywhere - {team.avoided}


def test_an_error_in_another_thread_is_raised(monkeypatch):
    monkeypatch.setattr(threads._Threads, "size", 2)
    begun = Barrier(2)
    main = current_thread()

    def fail():
        begun.wait()
        if current_thread() is not main:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        threads.run_on_all_threads(fail)


def test_a_threshold_holds_for_its_own_thread(monkeypatch):
    monkeypatch.setattr(threads._Threads, "size", 2)
    usual = worth_threads(1000)
    with threshold(0):
        assert worth_threads(1000) and run_at_once(lambda: worth_threads(1000)) == [usual]
    assert worth_threads(1000) == usual == worth_threads(0) is False


@pytest.mark.parametrize("name", SPECS)
def test_two_frames_of_python_lie_between_a_caller_and_compiled_code(name, monkeypatch):
    depths = []
    call = Threaded.__call__

    def counted(self, *args):
        frame = sys._getframe()
        depth = 1
        while frame.f_back.f_code is not test.__code__:
            frame = frame.f_back
            depth += 1
        depths.append(depth)
        call(self, *args)

    def test():
        getattr(cpu.trusted, name)(**case(name))

    monkeypatch.setattr(Threaded, "__call__", counted)
    test()
    assert set(depths) <= {2}


@pytest.mark.parametrize("name, changed", ALL)
def test_a_call_keeps_no_array(name, changed):
    def arrays_of_numba():
        gc.collect()
        stats = rtsys.get_allocation_stats()
        return stats.mi_alloc - stats.mi_free

    _nrt_python.memsys_enable_stats()
    bits(name, changed, 1 << 60)
    before = arrays_of_numba()
    for _ in range(3):
        bits(name, changed, 1 << 60)
    assert arrays_of_numba() - before < 3  # a constant may be made late

"""Kernels give equal bits for any number of threads, and when Python threads call them at once."""
import itertools
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, Event, current_thread

import numpy as np
import pytest
from cases import case, long, outcome

from hpgcn.kernels import cpu, reference
from hpgcn.kernels.cpu.emit.row_passes import is_packed
from hpgcn.kernels.host import threads
from hpgcn.kernels.host.threads import (
    Threaded,
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


def test_a_thread_that_does_not_come_is_not_waited_for(monkeypatch):
    held = Event()
    pool = ThreadPoolExecutor(1)
    monkeypatch.setattr(threads, "_pool", lambda count: (pool, count - 1))
    pool.submit(held.wait)
    try:
        assert bits("spmm", {}, 0) == bits("spmm", {}, np.inf)  # otherwise it would wait forever
    finally:
        held.set()
        pool.shutdown()


def test_where_threads_wait_for_cores_small_kernels_wake_none(monkeypatch):
    monkeypatch.setattr(threads._ThreadPool, "size", 2)
    small, large = threads.LEAST_WORK, 1 << 30
    assert not worth_threads(small - 1) and worth_threads(small) == (threads._ThreadPool.lost == 0)
    monkeypatch.setattr(threads._ThreadPool, "lost", 0.01)
    assert worth_threads(large) and not worth_threads(small)
    tries = 1
    while not worth_threads(small + (1 << 18)):
        tries += 1
    assert 10 < tries < 1000  # the attempt is repeated
    monkeypatch.setattr(threads._ThreadPool, "lost", 0.01)
    assert not worth_threads(small << 4)  # retried after equal work, so after fewer calls
    assert any(worth_threads(small << 4) for _ in range(tries >> 2))
    monkeypatch.setattr(threads._ThreadPool, "lost", threads.LONGEST_LOST)
    assert worth_threads(small + (1 << 25))  # whatever is lost
    monkeypatch.setattr(threads._ThreadPool, "size", 1)
    assert not worth_threads(large)


def test_what_a_lost_core_costs_is_remembered(monkeypatch):
    monkeypatch.setattr(threads._ThreadPool, "size", 2)
    monkeypatch.setattr(threads._ThreadPool, "lost", 0.0)
    monkeypatch.setattr(threads, "_interruptions", lambda: 0)
    monkeypatch.setattr(threads, "NOTICED", np.inf)
    both = Barrier(2)

    def wait():
        both.wait()  # so that the other thread has begun
        time.sleep(0.05)

    threads.run_on_all_threads(wait)
    assert threads._ThreadPool.lost == 0  # its core was free
    monkeypatch.setattr(threads, "NOTICED", -1)
    threads.run_on_all_threads(wait)
    late = threads._ThreadPool.lost  # time until the end of the other thread was seen
    assert 0 < late <= threads.LONGEST_LOST
    monkeypatch.setattr(threads, "_interruptions", itertools.count().__next__)
    monkeypatch.setattr(threads, "NOTICED", np.inf)
    monkeypatch.setattr(threads._ThreadPool, "lost", 0.0)
    threads.run_on_all_threads(wait)
    assert 0 < threads._ThreadPool.lost <= threads.LONGEST_LOST


@pytest.mark.skipif(threads._core() is None, reason="the system does not say where a thread runs")
def test_other_threads_leave_the_core_of_the_caller_to_it(monkeypatch):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this process may use one core alone")
    monkeypatch.setattr(threads._ThreadPool, "size", 2)
    everywhere = os.sched_getaffinity(0)
    threads.run_on_all_threads(lambda: None)
    threads.run_on_all_threads(lambda: None)  # the other thread is known by now
    others = threads._ThreadPool.others[os.getpid()]
    assert others and os.sched_getaffinity(0) == everywhere
    for thread in others:
        with suppress(ProcessLookupError):  # a pool that another test has shut down
            assert os.sched_getaffinity(thread) == everywhere - {threads._ThreadPool.avoided}


def test_an_error_in_another_thread_is_raised(monkeypatch):
    monkeypatch.setattr(threads._ThreadPool, "size", 2)
    begun = Barrier(2)
    main = current_thread()

    def fail():
        begun.wait()
        if current_thread() is not main:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        threads.run_on_all_threads(fail)


def test_a_threshold_holds_for_its_own_thread(monkeypatch):
    monkeypatch.setattr(threads._ThreadPool, "size", 2)
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

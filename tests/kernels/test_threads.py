"""Kernels and threads: the same bits from any number, and from Python threads that run at once."""
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numba
import numpy as np
import pytest
from cases import CASES, case, outcome

from hpgcn.kernels import cpu, reference
from hpgcn.kernels.cpu.spmm import is_packed
from hpgcn.kernels.jit import Threaded, threshold, worth_threads

AGGREGATIONS = [("aggregate", {"op": op, "reduce": reduce})
                for op in reference.OPS for reduce in reference.REDUCES]
BACKWARDS = [("aggregate_backward", {"op": "mul", "reduce": "max", "arg": None}),
             ("aggregate_backward", {"op": "div", "reduce": "sum"})]
INDEX = np.random.default_rng(0).integers(0, 10, 300)
ALL = [*((name, {}) for name in CASES), *AGGREGATIONS, *BACKWARDS,
       ("scatter_add", {"index": INDEX})]


def bits(name, changed, work):
    """Return the bits that a kernel gives, with threads woken from `work` on."""
    given = {**case(name, scale=25), **changed}
    if "arg" in given:
        forward = {key: value for key, value in given.items() if key not in ("grad", "arg")}
        given["arg"] = cpu.aggregate(**forward)[1]
    with threshold(work):
        return b"".join(array.tobytes() for array in outcome(cpu, name, given))


@pytest.mark.parametrize("name, changed", ALL)
def test_any_number_of_threads_gives_the_same_bits(name, changed):
    before = numba.get_num_threads()
    results = {bits(name, changed, np.inf)}
    try:
        for threads in (1, 2, numba.config.NUMBA_NUM_THREADS):
            numba.set_num_threads(threads)
            results.add(bits(name, changed, 0))
    finally:
        numba.set_num_threads(before)
    assert len(results) == 1


def run_at_once(*functions):
    """Run functions in threads that begin together; return what they return."""
    barrier = Barrier(len(functions))

    def run(function):
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(run, functions))


@pytest.mark.parametrize("work", [0, np.inf])
def test_python_threads_multiply_different_matrices_at_once(work):
    """Both copy x to scratch memory of the same size: each needs its own."""
    rng = np.random.default_rng(1)
    indptr = np.arange(0, 20_001, 40)
    products = [(indptr, rng.integers(0, 500, 20_000), None,
                 rng.standard_normal((500, 7)).astype(np.float32)) for _ in range(2)]
    assert all(is_packed(x, 7, 20_000) for *_, x in products)
    expected = [cpu.spmm(*product).tobytes() for product in products]

    def repeat(product):
        with threshold(work):
            return {cpu.spmm(*product).tobytes() for _ in range(200)}

    results = run_at_once(*(lambda product=product: repeat(product) for product in products))
    assert results == [{one} for one in expected]


def test_python_threads_run_any_kernels_at_once():
    def run():
        return [bits(name, {}, 0) for name in CASES]

    expected = run()
    assert run_at_once(run, run, run) == [expected] * 3


def test_a_threshold_holds_for_its_own_thread():
    usual = worth_threads(1000)
    with threshold(0):
        assert worth_threads(1000) and run_at_once(lambda: worth_threads(1000)) == [usual]
    assert worth_threads(1000) == usual == worth_threads(0) is False


@pytest.mark.parametrize("name", CASES)
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

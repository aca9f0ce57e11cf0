"""Thread pools on systems that start fewer threads than requested, or none."""
import logging
import threading
from concurrent.futures import wait

import numpy as np
import pytest

from hpgcn.kernels.host import pools, threads
from hpgcn.kernels.host.pools import CallerPool, start_pool
from hpgcn.runtime.progress_log import progress_log


@pytest.fixture
def limit(monkeypatch):
    """Return a function that limits the further threads that can start; reset the warning."""
    start = threading.Thread.start
    alive = []

    def set_limit(count):
        def start_few(self):
            alive[:] = [each for each in alive if each.is_alive()]
            if len(alive) >= count:
                raise RuntimeError("can't start new thread")
            start(self)
            alive.append(self)

        monkeypatch.setattr(threading.Thread, "start", start_few)
        monkeypatch.setattr(pools._Warning, "logged", False)
    return set_limit


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_a_pool_goes_on_with_the_threads_that_start(limit, caplog, count):
    limit(count)
    with caplog.at_level(logging.WARNING, "hpgcn"):
        pool, size = start_pool(3, "few")
        pool.shutdown()
        pool, size = start_pool(3, "few")
    assert size == min(count, 3)
    with pool:
        futures = [pool.submit(pow, 2, n) for n in range(9)]
        wait(futures)
        assert [each.result() for each in futures] == [1 << n for n in range(9)]
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()
    assert len(caplog.messages) == (count < 3)
    assert not caplog.messages or caplog.messages[0].startswith(
        f"only {count} of 3 threads could be started (can't start new thread)")


@pytest.mark.parametrize("count", [0, 1])
def test_kernels_compute_the_same_with_fewer_threads(limit, monkeypatch, count):
    monkeypatch.setattr(threads._Threads, "size", 4)
    pool = threads._pool.__wrapped__
    limit(count)
    made = []

    def make(size):
        if not made:
            made.append(pool(size))
        return made[0]

    monkeypatch.setattr(threads, "_pool", make)
    counters = np.zeros(1, np.int64)
    done = []

    def work(counters):
        while (number := len(done)) < 100:
            done.append(number)

    threads.run_on_all_threads(work, counters)
    assert len(done) >= 100 and made[0][1] == count
    assert isinstance(made[0][0], CallerPool) == (count == 0)
    made[0][0].shutdown()


def test_the_log_of_set_up_needs_no_thread(limit):
    limit(0)
    with progress_log():
        pass

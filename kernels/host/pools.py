"""Thread pools for systems that may start fewer threads than requested, or none."""
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

log = logging.getLogger("hpgcn")


class _Warning:
    """Flag of this process: the warning has been logged."""

    logged = False


class CallerPool(Executor):
    """Executor that runs each function immediately on the calling thread."""

    def submit(self, function: Callable, /, *args: Any, **options: Any) -> Future:
        future = Future()
        try:
            future.set_result(function(*args, **options))
        except BaseException as error:
            future.set_exception(error)
        return future


def start_pool(threads: int, name: str = "", initializer: Callable | None = None) -> tuple[Executor,
               int]:
    """Return an executor of `threads` running threads, or of fewer if no more can start.

    The system may limit the number of processes and threads. If fewer threads start,
    the log has one warning. If no thread starts, the executor is a CallerPool.

    Returns
    -------
    (executor, count) : count is the number of its threads, 0 for a CallerPool
    """
    count = threads
    while count:
        # a gate keeps threads busy, so that each task starts another thread
        pool = ThreadPoolExecutor(count, name, initializer)
        gate = threading.Event()
        waiting = []
        try:
            while len(waiting) < count:
                waiting.append(pool.submit(gate.wait))
        except RuntimeError as error:  # can't start new thread
            warn_of_few(threads, len(waiting), error)
        finally:
            gate.set()

        # if some could not be started, try again with fewer
        if len(waiting) == count:
            return pool, count
        pool.shutdown()
        count = len(waiting)
    return CallerPool(), 0


def warn_of_few(threads: int, count: int, error: Exception) -> None:
    """Log once that fewer threads than requested could be started."""
    if not _Warning.logged:
        _Warning.logged = True
        log.warning("only %d of %d threads could be started (%s): continuing with these; see "
                    "`ulimit -u` and pids.max of the control group", count, threads, error)

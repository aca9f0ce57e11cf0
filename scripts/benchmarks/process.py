"""A call in a process of its own: its peak memory and its caches are of this call alone."""

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context

from hpgcn.errors import InternalError


def alone(label, hint, function, *arguments):
    """Return function(*arguments), called in a new process; what it raises is raised here.

    InternalError, with the label and a hint, where the process dies.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            raise InternalError(f"{label} died, perhaps for lack of memory; {hint}") from error
        except BaseException:  # a signal: the pool would wait for the end of the call
            for process in active_children():
                process.terminate()
            raise

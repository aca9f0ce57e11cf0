"""Call of a function in a new process.

So its peak memory and its caches are its own.
"""

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context

from hpgcn.errors import InternalError


def alone(label, hint, function, *arguments):
    """Return function(*arguments), computed in a new process; raise its errors here.

    If the process dies, raise InternalError with `label` and `hint`.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            raise InternalError(f"{label} died, possibly out of memory; {hint}") from error
        except BaseException:  # a signal: the pool would wait for the end of the call
            for process in active_children():
                process.terminate()
            raise

"""The hook that ends all ranks when one of them raises an uncaught exception."""
import sys
import traceback

from hpgcn.errors import HpgcnError
from hpgcn.runtime.streams import wait_for_reader


def abort_on_exception():
    """Install a hook by which an uncaught exception ends all ranks, which would wait
    for this one.
    """
    if getattr(sys.excepthook, "ends_all_ranks", False):
        return
    before = sys.excepthook

    def hook(kind, error, trace):
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        text = f"rank {world.Get_rank()} of {world.Get_size()} failed:\n"
        plain = before is sys.__excepthook__
        if plain:  # in one piece: launchers cut off what is still on its way when all end
            text += "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(text)
        if not plain:
            before(kind, error, trace)
        sys.stderr.flush()
        wait_for_reader()
        world.Abort(error.code if isinstance(error, HpgcnError) else HpgcnError.code)

    hook.ends_all_ranks = True
    sys.excepthook = hook

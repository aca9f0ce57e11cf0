"""Communication between ranks.

Only `world` uses COMM_WORLD; importing this does not start MPI.
"""
from hpgcn.comm.collective_errors import abort_on_exception
from hpgcn.comm.communicator import MpiComm, SerialComm, as_comm, world
from hpgcn.comm.local import (
           MOST_RANKS,
           LocalComm,
           in_process,
           run_on_disk,
           run_on_gpu,
           run_on_ranks,
)

__all__ = ["MOST_RANKS", "LocalComm", "MpiComm", "SerialComm", "abort_on_exception", "as_comm",
           "in_process", "run_on_disk", "run_on_gpu", "run_on_ranks", "world"]

"""Ranks talking to each other: only `world` assumes COMM_WORLD; importing starts no MPI."""
from hpgcn.comm.communicator import MpiComm, SerialComm, abort_on_exception, as_comm, world

__all__ = ["MpiComm", "SerialComm", "abort_on_exception", "as_comm", "world"]

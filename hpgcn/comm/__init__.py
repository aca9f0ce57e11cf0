"""Ranks talking to each other: communicators, collectives, deadlines, errors raised together.

Only `world` assumes COMM_WORLD, and importing this starts no MPI.
"""
from hpgcn.comm.communicator import MpiComm, SerialComm, abort_on_exception, as_comm, world

__all__ = ["MpiComm", "SerialComm", "abort_on_exception", "as_comm", "world"]

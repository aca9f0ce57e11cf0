"""Who else is waiting, once a deadline has passed: MPI does not tell which rank of a collective is late."""
from __future__ import annotations

import time

WORD = 22  # tag


def silent(comm, seconds):
    """Ranks of the whole job from which no word comes: they compute, or hang, while this one waits.

    Every rank whose deadline has passed calls it, whatever it waits for, and sends a word to all others; those that
    began to wait at about the same time hear each other.

    Parameters
    ----------
    comm : hpgcn.comm.MpiComm
    seconds : float
        How long to listen.

    Returns
    -------
    set of int
    """
    while comm.parent is not None:
        comm = comm.parent
    MPI, missing = comm.MPI, set(range(comm.size)) - {comm.rank}
    words = [comm.mpi.Isend(b"", other, WORD) for other in sorted(missing)]  # nobody waits for their arrival
    deadline, status = time.monotonic() + seconds, MPI.Status()
    while missing and time.monotonic() < deadline:
        MPI.Request.Testsome(words)
        if comm.mpi.Iprobe(MPI.ANY_SOURCE, WORD, status):
            comm.mpi.Recv(bytearray(0), status.Get_source(), WORD)
            missing.discard(status.Get_source())
        else:
            time.sleep(1e-3)
    return {comm.ranks[rank] for rank in missing}


def drain(comm):
    """Take the words that nobody listened to: MPICH does not finalise over messages that were never received.

    Words arrive after those that sent them gave up waiting; call it where they have gone on, after a barrier.

    Parameters
    ----------
    comm : hpgcn.comm.MpiComm
        Of the whole job, not a group.
    """
    status = comm.MPI.Status()
    while comm.mpi.Iprobe(comm.MPI.ANY_SOURCE, WORD, status):
        comm.mpi.Recv(bytearray(0), status.Get_source(), WORD)

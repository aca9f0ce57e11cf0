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
    deadline = time.monotonic() + seconds
    while missing and time.monotonic() < deadline:
        MPI.Request.Testsome(words)
        source = heard(comm)
        if source is None:
            time.sleep(1e-3)
        missing.discard(source)
    return {comm.ranks[rank] for rank in missing}


def drain(comm):
    """Take the words that nobody listened to: MPICH does not finalise over messages that were never received.

    Words arrive after those that sent them gave up waiting; call it where they have gone on, after a barrier.

    Parameters
    ----------
    comm : hpgcn.comm.MpiComm
        Of the whole job, not a group.
    """
    while heard(comm) is not None:
        pass


def heard(comm):
    """Take one word, if any has come; the rank that sent it, else None."""
    status = comm.MPI.Status()
    if not comm.mpi.Iprobe(comm.MPI.ANY_SOURCE, WORD, status):
        return None
    comm.mpi.Recv(bytearray(0), status.Get_source(), WORD)
    return status.Get_source()

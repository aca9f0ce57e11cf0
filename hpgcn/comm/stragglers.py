"""Find the ranks that are late once a deadline has passed: MPI does not name them."""
import time
from typing import Any

WORD = 22  # tag


def unresponsive_ranks(comm: Any, seconds: float) -> set[int]:
    """Return the ranks that send no message within `seconds`.

    These ranks compute, or hang. Every rank whose deadline has passed calls this, and
    sends an empty message to all ranks of the job. Ranks that began to wait at about
    the same time receive each other's messages.
    """
    while comm.parent is not None:
        comm = comm.parent
    missing = set(range(comm.size)) - {comm.rank}
    words = [comm.mpi.Isend(b"", other, WORD) for other in sorted(missing)]  # never waited for
    deadline = time.monotonic() + seconds
    while missing and time.monotonic() < deadline:
        comm.MPI.Request.Testsome(words)
        source = heard(comm)
        if source is None:
            time.sleep(1e-3)
        missing.discard(source)
    return {comm.ranks[rank] for rank in missing}


def drain(comm: Any) -> None:
    """Receive all messages that `unresponsive_ranks` left.

    `comm` is the communicator of the whole job, not of a group. MPICH does not finalize
    while messages are left. They arrive after their senders gave up waiting, so call
    this after a barrier that ranks have passed.
    """
    while heard(comm) is not None:
        pass


def heard(comm: Any) -> int | None:
    """Receive a message of `unresponsive_ranks`, and return its source.

    Return None if there is no message.
    """
    status = comm.MPI.Status()
    if not comm.mpi.Iprobe(comm.MPI.ANY_SOURCE, WORD, status):
        return None
    comm.mpi.Recv(bytearray(0), status.Get_source(), WORD)
    return status.Get_source()

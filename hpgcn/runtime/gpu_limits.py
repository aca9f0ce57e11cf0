"""Whether GPUs hold what is asked of them: refused before they fail, and said with numbers when they do."""
from __future__ import annotations

from contextlib import contextmanager

from hpgcn.errors import ConfigError, DeviceMemoryError, setting

MAX_NONZEROS = (1 << 31) - 1  # of a rank whose device is a GPU


def advice():
    """Ways out, where a GPU is too small."""
    return ("start more ranks on more GPUs, take fewer hidden units or "
            f"{setting('dtype', 'float32')}, or {setting('device', 'cpu')}")


def check_nonzeros(comm, device, nonzeros, *, cut=True):
    """Refuse more nonzeros than one GPU takes; all ranks call this together. The host takes any number.

    Parameters
    ----------
    comm : hpgcn.comm.SerialComm or MpiComm
    device : hpgcn.runtime.device.Host or Cuda
        Of this rank's part of the matrix.
    nonzeros : int
        Of this rank's part.
    cut : bool
        More ranks hold smaller parts.

    Raises
    ------
    ConfigError
        On all ranks.
    """
    if device.exhausted == ():
        return
    most, total = int(comm.max([nonzeros])[0]), int(comm.sum([nonzeros])[0])
    if most > MAX_NONZEROS:
        ranks = -(-(total if cut else most) // MAX_NONZEROS)
        way = f"at least {ranks} ranks" + ("" if cut else " of a strategy that divides the matrix")
        error = ConfigError(f"a rank of {comm.size} holds {most:,} nonzeros, but a GPU takes at most "
                            f"{MAX_NONZEROS:,}: start {way}, or take {setting('device', 'cpu')}")
        error.collective = True
        raise error


def check_memory(comm, need):
    """Refuse to go on where a GPU has less memory left than its ranks need; all ranks call this together.

    Parameters
    ----------
    comm : hpgcn.comm.SerialComm or MpiComm
    need : callable
        Tells the bytes that this rank will still put on its device.

    Raises
    ------
    DeviceMemoryError
        On all ranks, naming the first GPU that is too small.
    """
    if comm.device.exhausted == ():
        return
    comm.barrier()  # what others have put there is there
    found = comm.allgather((comm.device.place, comm.device.number, int(need()), *comm.device.memory()))
    for place, number, _, free, total in found:
        ranks = [rank for rank, (other, *_) in enumerate(found) if other == place]
        needed = sum(found[rank][2] for rank in ranks)
        if needed > free:
            who = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks, {ranks[0]} the first,"
            error = DeviceMemoryError(f"{who} of {comm.size} needs {needed:,} bytes more, {free:,} of {total:,} are "
                                      f"free on GPU {number}: {advice()}")
            error.collective = True
            raise error


@contextmanager
def translate_gpu_oom(comm):
    """Within, a GPU that has no memory left is a DeviceMemoryError, with the numbers."""
    try:
        yield
    except comm.device.exhausted as error:
        free, total = comm.device.memory()
        raise DeviceMemoryError(f"rank {comm.rank} of {comm.size}: {str(error).rstrip('.')}; {free:,} of {total:,} "
                                f"bytes are free on GPU {comm.device.number}: {advice()}") from error

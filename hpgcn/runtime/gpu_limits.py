"""Check the limits of GPUs in advance, so that errors contain numbers."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hpgcn.errors import ConfigError, DeviceMemoryError, agreed, setting
from hpgcn.runtime.machine import size

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.config import Config
    from hpgcn.runtime.device import Host

FREE = "free"  # a limit: all bytes that are free
FREE_SHARE = 15 / 16  # the others are for work memory of cuBLAS, and for pieces too small to use
MAX_NONZEROS = (1 << 31) - 1  # most nonzeros of a rank on a GPU


def advice(dtype: str) -> str:
    """Return advice for a run with this dtype that needs too much GPU memory."""
    shorter = f" or {setting('dtype', 'float32')}" if dtype == "float64" else ""
    return (f"let ranks take turns with {setting('gpu_memory', FREE)}, start more ranks on more "
            f"GPUs, use fewer hidden units{shorter}, or {setting('device', 'cpu')}")


def limit_of(config: Config) -> int:
    """Return the bytes of a GPU that a run may take by config.gpu_memory, for all arrays."""
    if config.gpu_memory != FREE:
        return size(config.gpu_memory)
    from hpgcn.runtime.device import Cuda  # late, because it imports CuPy

    return int(Cuda().memory()[0] * FREE_SHARE)


def check_nonzeros(comm: SerialComm, device: Host, nonzeros: int, *, cut: bool = True) -> None:
    """Raise ConfigError on all ranks if a rank has more nonzeros than a GPU supports.

    All ranks call it together. `device` stores this rank's part of the matrix; the host
    has no limit. `cut` is true if more ranks have smaller parts.
    """
    if device.exhausted == ():
        return
    most = int(comm.max([nonzeros])[0])
    total = int(comm.sum([nonzeros])[0])
    if most > MAX_NONZEROS:
        ranks = -(-(total if cut else most) // MAX_NONZEROS)
        way = f"at least {ranks} ranks" + ("" if cut else " of a strategy that divides the matrix")
        raise agreed(ConfigError(
            f"a rank of {comm.size} has {most:,} nonzeros, but a GPU supports at most "
            f"{MAX_NONZEROS:,}: start {way}, or use {setting('device', 'cpu')}"))


def check_memory(comm: SerialComm, need: Callable, dtype: str) -> None:
    """Raise DeviceMemoryError on all ranks if a GPU has less memory than its ranks need.

    All ranks call it together; `need()` returns the bytes that this rank will still
    allocate on its GPU. `dtype` is that of the run, for the advice.
    """
    if comm.device.exhausted == ():
        return
    comm.barrier()  # wait until all ranks have allocated their arrays

    gpu = comm.device
    gpus = comm.allgather((gpu.place, gpu.number, int(need()), *gpu.memory()))

    # add up what ranks on the same GPU need
    for place, number, _, free, total in gpus:
        ranks = [rank for rank, (other, *_) in enumerate(gpus) if other == place]
        needed = sum(gpus[rank][2] for rank in ranks)
        if needed > free:
            several = f"{len(ranks)} ranks, {ranks[0]} the first,"
            who = several if len(ranks) > 1 else f"rank {ranks[0]}"
            raise agreed(DeviceMemoryError(
                f"{who} of {comm.size} needs {needed:,} more bytes, but only {free:,} of {total:,} "
                f"are free on GPU {number}: {advice(dtype)}"))


@contextmanager
def translate_gpu_oom(comm: SerialComm, dtype: str) -> Iterator[None]:
    """Context manager: turn CuPy's out-of-memory error into a DeviceMemoryError with numbers.

    `dtype` is that of the run, for the advice.
    """
    try:
        yield
    except comm.device.exhausted as error:
        free, total = comm.device.memory()
        raise DeviceMemoryError(
            f"rank {comm.rank} of {comm.size}: {str(error).rstrip('.')}; {free:,} of {total:,} "
            f"bytes are free on GPU {comm.device.number}: {advice(dtype)}") from error

"""What `hpgcn plan` asks of a machine: its kernels, alone and side by side, and its network."""
from hpgcn.bench import network, rates
from hpgcn.kernels.threads import set_num_threads
from hpgcn.runtime.launcher import ranks_on_node

ALONE = 3600.0  # seconds that ranks wait, beyond their timeout, for the one that measures


def measure(settings, host, comm):
    """Time the kernels of a training step on this rank, and messages between ranks.

    "rates": as hpgcn.bench.rates.measure, a list by numbers of ranks. With several ranks, which all
    call this, first those of rank 0 with the cores of all ranks of its node, while the others
    sleep; then those that all measure at once. "network": as hpgcn.bench.network.measure.
    """
    if comm.size == 1:
        return {"rates": [rates.measure(settings, host)]}
    host.comm = None
    alone = None
    if comm.rank == 0:
        set_num_threads(settings.threads * ranks_on_node())
        alone = rates.measure(settings, host)
        set_num_threads(settings.threads)
    with comm.extended_timeout(ALONE):
        comm.barrier()
    host.comm = comm
    beside = rates.measure(settings, host, ranks_on_node())
    return {"rates": [alone, beside], "network": network.measure(comm, settings.repeats)}

"""Measure the network between ranks by messages like those of training, of all ranks at once."""
import time
from itertools import cycle

import numpy as np

from hpgcn.planning.seconds.message_seconds import algorithms, measured_rate

LARGE = 1 << 24  # bytes that a rank sends: their time far exceeds the latency
# buffers used in turn, because in training other work replaces the caches between
# messages
BUFFERS = 8
SLOW = 0.05  # seconds of the messages of LARGE / SMALLER bytes from which these are enough
SMALLER = 16
WORK = 1 << 22  # size of the computation during a message
# the slowest group counts: the largest latency, the least rate
KEYS = ("latency_s", "bytes_per_s", "one_way_bytes_per_s", "hidden_share",
        "collective_latency_s", "collective_bytes_per_s")
SIGNS = {key: 1 if key.endswith("latency_s") else -1 for key in KEYS}


def measure(comm, repeats):
    """Time messages between all ranks in several patterns.

    All ranks call this together.

    latency_s: of an exchange of one number with each other rank, by message.
    bytes_per_s: the rate at which a rank sends while it receives the same amount.
    one_way_bytes_per_s: the rate of even ranks while odd ones only receive.
    hidden_share: of the seconds of an exchange those that pass while the ranks compute.
    collective_latency_s, collective_bytes_per_s: rates for which the formulas of
    hpgcn.planning.seconds.message_seconds give the seconds of a short and of a long
    broadcast.
    Medians, of the slowest rank.
    """
    others = comm.size - 1

    # small messages, and the size of large ones: a sixteenth does on a slow network
    latency = slowest(comm, TimedExchange(comm, 1).run, 20 * repeats) / others
    size = LARGE // SMALLER
    if slowest(comm, TimedExchange(comm, size // 4 // others).run, 1) < SLOW:
        size = LARGE

    # large messages in both directions, then in one
    large = TimedExchange(comm, size // 4 // others)
    half = TimedExchange(comm, size // 4 // others, one_way=True)
    both = slowest(comm, large.run, repeats)
    one = slowest(comm, half.run, repeats)

    # the share of a message that hides behind a computation
    work = np.ones(WORK, np.float32)
    alone = slowest(comm, lambda: compute(work), repeats)
    beside = slowest(comm, lambda: large.run(lambda: compute(work)), repeats)
    hidden = float(np.clip((alone + both - beside) / both, 0, 1))

    # a short and a long broadcast, among those of all ranks
    (rounds, _), _ = algorithms("broadcast", comm.size)
    short = slowest(comm, TimedBroadcast(comm, 1).run, 20 * repeats) / comm.size / rounds
    long = slowest(comm, TimedBroadcast(comm, size // 4).run, repeats) / comm.size
    rate = measured_rate("broadcast", comm.size, size, short, long)

    sent, sent_one_way = (4 * comm.max([each.sent.sum()])[0] for each in (large, half))
    return {"latency_s": latency, "bytes_per_s": float(sent / both),
            "one_way_bytes_per_s": float(sent_one_way / one), "hidden_share": hidden,
            "collective_latency_s": short, "collective_bytes_per_s": rate}


def measure_tiers(comm, repeats):
    """Measure the network, or both tiers if ranks are on several nodes.

    Return a dict of the fields of a machine file. All ranks call this together. Within
    nodes, the ranks of each node exchange messages, on all nodes at once. Between
    nodes, ranks with the same number on their node exchange messages, all at once. So
    each has its share of the network of its node. The rates are those of the slowest
    group.
    """
    nodes = comm.nodes
    if not nodes.max():
        return {"network": measure(comm, repeats)}
    mates = np.flatnonzero(nodes == nodes[comm.rank])
    local = np.array([np.count_nonzero(nodes[:rank] == node) for rank, node in enumerate(nodes)])
    peers = np.flatnonzero(local == local[comm.rank])

    # nodes of one rank have one tier
    between = _measure_groups(comm, peers, repeats)
    most = int(np.bincount(nodes).max())
    if most == 1:
        return {"network": between}
    return {"network": between, "within_node": _measure_groups(comm, mates, repeats),
            "ranks_per_node": most}


def _measure_groups(comm, ranks, repeats):
    """Return `measure` of the slowest group; `ranks`: those of this rank's group."""
    found = np.full(len(KEYS), -np.inf)
    if len(ranks) > 1:
        group = comm.group(ranks)
        rates = measure(group, repeats)
        group.close()
        found = np.array([SIGNS[key] * rates[key] for key in KEYS])
    return {key: SIGNS[key] * float(worst) for key, worst in zip(KEYS, comm.max(found))}


class TimedExchange:
    """An exchange of `count` float32 between every two ranks.

    With `one_way` only even ranks send.
    """

    def __init__(self, comm, count, one_way=False):
        self.comm = comm
        even = np.arange(comm.size) % 2 == 0
        sends = even[comm.rank]
        self.sent = np.full(comm.size, count if sends or not one_way else 0)
        self.received = np.where(even | (not one_way), count, 0)
        if one_way:
            self.sent *= ~even
            self.received *= not sends
        self.sent[comm.rank] = self.received[comm.rank] = 0
        self.buffers = cycle([(np.ones(self.sent.sum(), np.float32),
                               np.ones(self.received.sum(), np.float32)) for _ in range(BUFFERS)])

    def run(self, meanwhile=None):
        send, receive = next(self.buffers)
        pending = self.comm.start_alltoall(send, self.sent, receive, self.received, None)
        if meanwhile:
            meanwhile()
        pending.wait("an exchange that is timed")


class TimedBroadcast:
    """Broadcasts of `count` float32 from one rank after the other.

    The next broadcast starts before the wait for the last one, as in training.
    """

    def __init__(self, comm, count):
        self.comm = comm
        self.buffers = cycle([np.ones(count, np.float32) for _ in range(BUFFERS)])

    def run(self):
        pending = None
        for root in range(self.comm.size):
            following = self.comm.start_bcast(next(self.buffers), root, None)
            if pending:
                pending.wait("a broadcast that is timed")
            pending = following
        pending.wait("a broadcast that is timed")


def compute(numbers):
    numbers *= 1.0


def slowest(comm, call, repeats):
    """Return the median time of a call on the slowest rank, in seconds."""
    seconds = []
    for _ in range(repeats + 1):
        comm.barrier()
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return float(comm.max([np.median(seconds[1:])])[0])

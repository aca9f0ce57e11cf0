"""A communicator that counts the messages of one rank without sending them."""
from hpgcn.comm import SerialComm
from hpgcn.comm.pending import Pending


class ShapeComm(SerialComm):
    """A communicator that counts the messages of one rank without sending them; see
    hpgcn.comm.MpiComm.
    """

    def __init__(self, device, rank=0, size=1, counters=None):
        super().__init__()
        self.device = device
        self.rank = rank
        self.size = size
        self.ranks = tuple(range(size))
        self.counters = counters or self.counters
        self.reductions = {}

    def group(self, ranks):
        """Return the communicator of a subset of these ranks."""
        group = ShapeComm(self.device, ranks.index(self.rank), len(ranks), self.counters)
        group.reductions = self.reductions
        return group

    def start_allreduce(self, array, kind, op="sum"):
        """Record the bytes of an allreduce under the current phase, and return at once."""
        if kind is not None and self.size > 1:
            self.reductions.setdefault(self.counters.phase, []).append(array.nbytes)
        return Pending(self)

    def _own(self, *call, **named):
        return Pending(self)

    def _exchange(self, outgoing, incoming, kind, finish=None):
        self._count_blocks(kind, outgoing)
        return Pending(self)

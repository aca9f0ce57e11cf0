"""Node-aware exchange by a NodePlan: rows cross to each node once, sums leave each node once.

A pull sends rows to gateways and to ranks of the same node. Gateways then send them to
the other ranks of their nodes. Own rows and those of the node are multiplied while
messages between nodes are under way. Rows of the last owner are multiplied while the
second messages are under way. A push takes the same ways back. Gateways add the sums of
their nodes to their own, in rank order, then send one sum for each row. So bits do not
depend on timing.

Within a node, rows and sums are in shared memory (hpgcn.parallel.nodes.node_memory),
where their readers read them. Messages there are empty, but are counted as if they had
rows. On GPUs and without shared memory the rows are sent.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.parallel.halo_exchange import HaloExchange
from hpgcn.parallel.halo_plan import HaloPlan
from hpgcn.parallel.spooled_exchange import SpooledExchange
from hpgcn.parallel.transfers import LOCAL, Transfer

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.parallel.nodes.node_plan import NodePlan
    from hpgcn.parallel.workspace import HaloBuffers


class NodeExchange(Transfer):
    """The transfer of a NodePlan, made of two transfers.

    `first` exchanges rows with their owners, `second` within the node. Sources of
    `second` have numbers of their own, larger by `shift`.

    Parameters
    ----------
    plan : NodePlan
    first : transfer
        Transfer of `plan.first`, such as a HaloExchange.
    kind : type
        Class of the second transfer, a HaloExchange.
    """

    def __init__(self, plan: NodePlan, first: HaloExchange, kind: Callable, comm: SerialComm,
                 buffers: HaloBuffers) -> None:
        self.plan = plan
        self.first = first
        self.comm = comm
        self.buffers = buffers
        self.shift = comm.size + 2  # sources of `first` are from -2 to P - 1
        passed = HaloPlan(plan.second.layout, plan.second.ghosts, plan.second.recv_offsets,
                          first.ghost_positions[plan.second.send_rows], plan.second.send_offsets)
        self.second = kind(passed, comm, buffers.second)
        self.second.exchange.tags = 3, 4
        self.passes = bool(comm.max([passed.ghosts.size + passed.send_rows.size])[0])
        self.forwarded = True  # whether the rows under way have been sent on

    def reserve(self, width: int) -> None:
        """Allocate the buffers for rows of `width` columns."""
        self.first.reserve(width)
        self.second.reserve(width)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self.first.nbytes + self.second.nbytes

    @property
    def pending(self) -> bool:
        """Whether messages are under way."""
        return self.first.pending or self.second.pending

    def progress(self) -> None:
        """Let messages progress."""
        self.first.progress()
        self.second.progress()

    @property
    def sources(self) -> list[int]:
        return [*self.first.sources, *(source + self.shift for source in self.second.sources)]

    @property
    def ghost_counts(self) -> dict[int, int]:
        """Number of rows of each source, a dict in the order of ghosts."""
        second = {source + self.shift: rows for source, rows in self.second.ghost_counts.items()}
        return {**self.first.ghost_counts, **second}

    def start(self, H: np.ndarray, what: str) -> None:
        """Start sending rows of H (m, f) to their readers on this node, and to gateways."""
        self.H = H
        self.forwarded = not self.passes
        self.first.start(H, what)

    def received_rows(self, wanted: Iterable[int],
                      what: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (LOCAL, own rows), then (source, rows from it).

        Owners come first, those of this node before others, then gateways.

        Only own rows are yielded if `wanted` lacks other sources.
        """
        if LOCAL in wanted:
            yield LOCAL, self.H
        if any(source not in wanted for source in self.sources):
            return

        # rows of owners are used as they arrive, but those of the last one are sent on first
        arriving = self.first.received_rows(self.first.sources, what)
        yield from islice(arriving, max(0, len(self.first.sources) - 1))
        last = list(islice(arriving, 1))
        if not self.forwarded:
            self.second.start(self.first.incoming, what)
            self.forwarded = True
        yield from last
        yield from arriving  # nothing: this waits until own rows are sent
        if self.passes:
            for source, rows in self.second.received_rows(self.second.sources, what):
                yield source + self.shift, rows

    def partial_sums(self, out: np.ndarray, what: str) -> list[tuple]:
        """Return pairs (source, buffer for partial sums of its rows).

        The sums that go to gateways come first. The last pair is (LOCAL, out).
        """
        self.what = what
        within = self.second.send_buffers(out.shape[1]) if self.passes else ()
        *across, own = self.first.partial_sums(out, what)
        self.unsent = {source for source, _ in across}
        return [*((source + self.shift, buffer) for source, buffer in within), *across, own]

    def send(self, target: int) -> None:
        """Mark the buffer for `target` as filled.

        Once those of `first` are all filled, add the sums that this rank is the gateway
        of, and send them.
        """
        if target >= self.shift - 2:
            self.second.send(target - self.shift)
        elif target != LOCAL:
            self.unsent.remove(target)
            if not self.unsent:
                if self.passes:
                    self.second.finish(self.first.outgoing, self.what)
                for source in self.first.sources:
                    self.first.send(source)

    def finish(self, out: np.ndarray, what: str) -> None:
        """Add the returned partial sums to `out`, in the order of ranks."""
        self.first.finish(out, what)
        if self.second.pending:  # this rank sent sums to gateways only
            for _ in self.second.received_sums(what):
                pass

    def release(self) -> None:
        """Let ranks of the node overwrite the rows that this rank has pulled."""
        self.first.release()
        self.second.release()

    def close(self) -> None:
        """Free the requests; afterwards the exchange cannot be used."""
        self.first.close()
        self.second.close()


def exchange_of(plan: HaloPlan | NodePlan, comm: SerialComm, buffers: HaloBuffers,
                kind: Callable = HaloExchange,
                spooled: Callable = SpooledExchange) -> Transfer:
    """Return the transfer of a HaloPlan or of a NodePlan.

    `kind` is HaloExchange or a subclass of it. If the ranks have a Spool, a HaloPlan has a
    transfer of the class `spooled`.
    """
    if isinstance(plan, HaloPlan):
        return (spooled if comm.spool else kind)(plan, comm, buffers)
    return NodeExchange(plan, kind(plan.first, comm, buffers), kind, comm, buffers)

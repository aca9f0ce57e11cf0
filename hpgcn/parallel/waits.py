"""The waits of a product with A, which end the turns of a rank."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpgcn.parallel.spooled_exchange import next_turn

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.parallel.transfers import Transfer


class Waits:
    """The waits of a product for other ranks, for the communicator.

    Parameters
    ----------
    comm : hpgcn.comm.SerialComm or MpiComm
    twice : bool
        Whether it waits for rows that all sums read, and then for sums.
    kept : bool
        Whether other ranks send no rows: those that it reads are kept.
    product : int and bool
        Width, and whether it is a product with A^T.
    """

    def __init__(self, comm: SerialComm, twice: bool, kept: bool, *product: Any) -> None:
        self.comm = comm
        self.twice = twice
        self.finds_all = comm.finds_all or (kept and not twice)
        self.product = product

    def first(self, pull: Transfer, what: str) -> None:
        """Note that rows were sent, and that those of `pull` are awaited."""
        if self.twice:
            self.comm.end_stage(*self.product)

    def resume(self) -> None:
        """Note that a rank computes the sums of own rows."""
        if self.twice:
            self.comm.begin_segment()

    def last(self) -> None:
        """Note that own rows are not read again, unless the rank goes on at once."""
        if not self.finds_all:
            self.comm.end_segment(*self.product)

    def sums(self, push: Transfer, what: str) -> None:
        """Note that all partial sums were sent, and that those of `push` are awaited."""

    def end(self) -> None:
        """Note that the product is complete."""
        self.comm.end_product(*self.product)


class NextTurns(Waits):
    """The waits of a product that sends own rows as well, all before it goes on."""

    def first(self, pull: Any, what: str) -> None:
        next_turn(self.comm, pull.senders, what, *self.product)

    def sums(self, push: Any, what: str) -> None:
        next_turn(self.comm, push.adders, what, *self.product)

    def resume(self) -> None:
        """Do nothing: own rows are received like others."""

    last = end = resume

"""Count the rows and messages of transfers by tables of pairs (pure)."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.parallel.counts import PairMessages, spooled

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.parallel.halo_plan import HaloPlan


class ExchangeSizes:
    """Rows and messages of a transfer, by rank; (P,) int64 each.

    Parameters
    ----------
    tables : (P, P) int64, one or two
        Rank p pulls tables[i][p, q] rows of rank q. A second table has the rows that
        gateways pass on within their nodes (hpgcn.parallel.nodes).
    nodes : (P,), optional
        Node of each rank, if messages between nodes are counted.
    joined : (P, P) int64, optional
        First table of the transfer that pulls in the messages in which this one pushes.
    linked : (P, P), optional
        Pairs with a message, if these are known beside lower bounds of rows.

    Attributes
    ----------
    sent, received : rows that a rank sends and receives when rows are pulled.
    sources : number of messages that it receives.
    received_parts : (1, P) or (2, P), `received` of each table.
    buffer_rows : rows in the message buffers of a rank.
    largest : rows of the largest message of all ranks, an int.
    tables : (1 or 2, P, P), as given.
    message_transfer : ExchangeSizes of the transfer with messages of its own.

    Examples
    --------
    >>> from hpgcn.parallel.sizes import ExchangeSizes
    >>> sizes = ExchangeSizes(np.array([[0, 3], [0, 0]]))  # rank 0 pulls three rows of rank 1
    >>> [call.bytes.tolist() for call in sizes.pull(row_bytes=8)]
    [[0, 24]]
    >>> [call.bytes.tolist() for call in sizes.push(row_bytes=8)]
    [[24, 0]]
    """

    def __init__(self, *tables: np.ndarray, nodes: np.ndarray | None = None,
                 joined: np.ndarray | None = None, linked: np.ndarray | None = None) -> None:
        self.tables = np.stack(tables)
        self.received_parts = self.tables.sum(2)
        self.received = self.received_parts.sum(0)
        self.sent = sum(table.sum(0) for table in tables)
        self.buffer_rows = self.sent + self.received
        self.sources = sum(np.count_nonzero(table, axis=1) for table in tables)
        self.destinations = sum(np.count_nonzero(table, axis=0) for table in tables)
        self.largest = max(int(table.max(initial=0)) for table in tables)
        self.passes_gateways = len(tables) > 1
        self.joined = joined is not None
        self.message_transfer = ExchangeSizes(*tables, nodes=nodes) if self.joined else self

        # messages of a pull, and of a push, which takes the same ways back
        pulled, pushed = [*tables], [table.T for table in reversed(tables)]
        if self.joined:
            del pulled[0]
            pushed[-1] = pushed[-1] + joined
        away = None if nodes is None else np.not_equal.outer(nodes, nodes)
        self._pulled, self._pushed = (
            [_tiers(table, away, linked) for table in way] for way in (pulled, pushed))

    @property
    def ghost_rows(self) -> np.ndarray:
        """Number of rows that each rank receives from other ranks, (P,)."""
        return self.received

    def pull(self, row_bytes: int) -> list[PairMessages]:
        """Return the PairMessages of each call that pulls rows."""
        return self._calls(self._pulled, row_bytes)

    def push(self, row_bytes: int) -> list[PairMessages]:
        """Return the PairMessages of each call that pushes sums."""
        return self._calls(self._pushed, row_bytes)

    def spooled(self, row_bytes: int, in_files: int, at_once: np.ndarray | bool = True, *,
                pushed: bool = False, rule: Callable = spooled) -> np.ndarray:
        """Return the bytes that pass through a Spool if rows are pulled, or sums pushed.

        They are those that each rank reads and writes, (2, P). The first `in_files` ranks
        have their arrays in files. `rule` is a function of hpgcn.parallel.counts, which
        takes `at_once`.
        """
        tables = self.tables.transpose(0, 2, 1) if pushed else self.tables
        return rule(sum(tables) * row_bytes, in_files, at_once=at_once)

    def _calls(self, way: list[list], row_bytes: int) -> list[PairMessages]:
        calls = []
        for tiers in way:
            counts: Any = [(rows * row_bytes, count) for rows, count in tiers]
            (sent, messages), *between = counts
            calls.append(PairMessages(sent, messages, *between, shared=self.passes_gateways))
        return calls


def _tiers(table: np.ndarray, away: np.ndarray | None, linked: np.ndarray | None) -> list:
    """Return rows and messages sent by each rank, then those between nodes."""
    tiers = [(table.sum(0), np.count_nonzero(table if linked is None else linked, axis=0))]
    if away is not None:
        tiers += _tiers(table * away, None, None)
    return tiers


def pair_table(owner: np.ndarray, reader: np.ndarray, ranks: int) -> np.ndarray:
    """Count the rows that each rank reads of each other rank.

    Return (P, P) int64, a table of ExchangeSizes. `owner` and `reader` have the ranks
    of each pair of a row and a rank that reads it.
    """
    keys = reader * np.int64(ranks) + owner
    table = np.bincount(keys, minlength=ranks * ranks).reshape(ranks, ranks)
    np.fill_diagonal(table, 0)
    return table


def gather_tables(comm: SerialComm, *plans: HaloPlan) -> np.ndarray:
    """Return the tables of the HaloPlans or NodePlans of all ranks.

    They are (plans, 1 or 2, P, P) int64. All ranks call this together.
    """
    counts = [[np.diff(part.recv_offsets) for part in plan.parts] for plan in plans]
    return np.array(comm.allgather(counts), np.int64).transpose(1, 2, 0, 3)

"""Plan of a node-aware exchange: a row crosses to each node once, then reaches its readers there.

The readers of a row that are on one node have a gateway, one of them. The owner sends
the row to the gateway, which sends it on to the others. Ranks of the owner's node
receive it from the owner. Partial sums take the same ways back. A gateway adds those
of its node before one sum crosses. Sources: Bienz, Gropp and Olson, Int. J. High Perf.
Comput. Appl. 34(2), 2019; SHIRO, arXiv 2512.20178.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.parallel.halo_plan import HaloPlan, by_owner, complete
from hpgcn.parallel.layout import NodeLayout
from hpgcn.parallel.pattern import elsewhere
from hpgcn.parallel.sizes import pair_table

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.parallel.layout import RowPartition


@dataclass(frozen=True, eq=False)
class NodePlan:
    """The messages of one rank in a node-aware exchange.

    `first` has rows from their owners: those of this node, and those that this rank is
    the gateway of. `second` has rows from gateways of this node; its `send_rows` are
    numbers of ghosts of `first`.
    """

    first: HaloPlan
    second: HaloPlan

    @property
    def layout(self) -> RowPartition:
        """The RowPartition of the rows that are exchanged."""
        return self.first.layout

    @property
    def ghosts(self) -> np.ndarray:
        """Rows that this rank receives, (g,) int64: those of `first`, then of `second`."""
        return np.concatenate([self.first.ghosts, self.second.ghosts])

    @property
    def parts(self) -> tuple[HaloPlan, HaloPlan]:
        """The HaloPlans of its exchanges."""
        return self.first, self.second


def gateways(rows: np.ndarray, owners: np.ndarray, readers: np.ndarray,
             nodes: np.ndarray) -> np.ndarray:
    """Return the rank of its node that each reader of a row depends on, (r,) int64.

    Parameters
    ----------
    rows, owners, readers : (r,) int64
        Distinct pairs of a row and a rank that reads and does not own it, and the owner
        of the row.
    nodes : (P,) integers
        Node of each rank.

    Returns
    -------
    (r,) int64
        The gateway of the row on the reader's node; on the owner's node the reader
        itself. A hash of the row chooses among the row's readers on the node. So all
        ranks receive about their share of rows from other nodes.

    Examples
    --------
    >>> from hpgcn.parallel.nodes.node_plan import gateways
    >>> rows, owners, readers = np.array([4, 4, 4]), np.array([0, 0, 0]), np.array([1, 2, 3])
    >>> gateways(rows, owners, readers, np.array([0, 0, 1, 1]))
    array([1, 3, 3])
    """
    # runs of the readers of a row on a node, by rank
    found = np.array(readers, np.int64)
    away = np.flatnonzero(nodes[owners] != nodes[readers])
    key = rows[away] * (int(nodes.max()) + 1) + nodes[readers[away]]
    order = away[np.lexsort((readers[away], key))]
    key = np.sort(key)
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    counts = np.diff(np.append(starts, key.size))

    # one of each run
    chosen = starts + (scrambled(rows[order[starts]]) % counts.astype(np.uint64)).astype(np.int64)
    found[order] = np.repeat(readers[order[chosen]], counts)
    return found


def scrambled(rows: np.ndarray) -> np.ndarray:
    """Return a hash of each row number, (r,) uint64 (the finalizer of SplitMix64)."""
    x = rows.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def tables_of_pairs(pairs: tuple, numbers: np.ndarray, nodes: NodeLayout,
                    ranks: int) -> list[np.ndarray]:
    """Return the tables of ExchangeSizes of an exchange.

    There are two if the NodeLayout `nodes` is aware, else one. `pairs` has the owner,
    reader and row of each distinct pair, as from `elsewhere`. `numbers` are as in
    `sources_of_entries`.
    """
    owner, reader, row = pairs
    if not nodes.aware:
        return [pair_table(owner, reader, ranks)]
    passing = gateways(numbers[row], owner, reader, nodes.numbers)
    direct = passing == reader
    return [pair_table(owner[direct], reader[direct], ranks),
            pair_table(passing[~direct], reader[~direct], ranks)]


def sources_of_entries(lines: np.ndarray, owners: np.ndarray, readers: np.ndarray,
                       numbers: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Return from where the row that each entry reads arrives, (nnz,) int64.

    The source is the row's owner, or P plus the row's gateway.

    Parameters
    ----------
    lines, owners, readers : (nnz,) integers
        The row that an entry reads, its owner, and the rank that holds the entry.
    numbers : (n,) int64
        Number of each row among those that are exchanged.
    nodes : (P,) integers
        Node of each rank.
    """
    k = nodes.size
    owner, reader, line = elsewhere(lines, owners, readers, k)
    passing = gateways(numbers[line], owner, reader, nodes)
    source = np.where(passing == reader, owner, k + passing)
    found = np.array(owners, np.int64)
    across = owners != readers
    keys = lines[across] * k + readers[across]
    found[across] = source[np.searchsorted(line * k + reader, keys)]
    return found


def make_node_plan(layout: RowPartition, ghosts: np.ndarray, nodes: np.ndarray,
                   comm: SerialComm) -> NodePlan:
    """Return the NodePlan of a rank; all ranks call this together.

    The rank owns the rows of `layout`, and reads the rows `ghosts`, increasing.
    """
    owners = np.repeat(np.arange(layout.size), np.diff(by_owner(ghosts, layout)))
    gateway = _find_gateways(ghosts, owners, nodes, comm)

    # rows from their owners
    direct = gateway == layout.rank
    first_ghosts = ghosts[direct]
    wanted = comm.alltoallv(np.split(first_ghosts, by_owner(first_ghosts, layout)[1:-1]))
    first = complete(layout, first_ghosts, wanted)

    # rows from gateways
    order = np.flatnonzero(~direct)
    order = order[np.argsort(gateway[order], kind="stable")]
    offsets = np.searchsorted(gateway[order], np.arange(layout.size + 1))
    wanted = comm.alltoallv(np.split(ghosts[order], offsets[1:-1]))
    send_rows = np.searchsorted(first_ghosts, np.concatenate(wanted))
    send_offsets = run_offsets([len(part) for part in wanted])
    return NodePlan(first, HaloPlan(layout, ghosts[order], offsets, send_rows, send_offsets))


def _find_gateways(ghosts: np.ndarray, owners: np.ndarray, nodes: np.ndarray,
                   comm: SerialComm) -> np.ndarray:
    """Return the `gateways` of this rank's ghosts, (g,) int64.

    The gateway of a row is the rank of this node that receives it. A hash of the row
    number picks a rank that collects the readers and replies with the gateway.
    """
    rank = comm.rank
    gateway = np.full(ghosts.size, rank)
    away = np.flatnonzero(nodes[owners] != nodes[rank])
    mates = np.flatnonzero(nodes == nodes[rank])
    collectors = mates[(scrambled(ghosts[away]) % np.uint64(mates.size)).astype(np.int64)]
    order = away[np.argsort(collectors, kind="stable")]
    ends = np.searchsorted(np.sort(collectors), np.arange(1, comm.size))
    requests = [comm.alltoallv(np.split(array[order], ends)) for array in (ghosts, owners)]

    # decide on the rows of all readers
    sizes = [part.size for part in requests[0]]
    rows, row_owners = (np.concatenate(parts) for parts in requests)
    readers = np.repeat(np.arange(comm.size), sizes)
    chosen = gateways(rows, row_owners, readers, nodes)
    replies = comm.alltoallv(np.split(chosen, np.cumsum(sizes)[:-1]))
    gateway[order] = np.concatenate(replies)
    return gateway

"""Products of each strategy for all ranks in one process, on collectives that count bytes.

`Ranks` moves NumPy arrays between ranks and counts them. The classes below compute A H
and A^T G from the blocks of each rank. They use no code of hpgcn.strategies.
"""
from itertools import pairwise, product

import numpy as np
from arrays import are_equal

from hpgcn.parallel.halo_plan import by_owner, complete, needs
from hpgcn.parallel.layout import BlockLayout, RowPartition, split, stages


def halo_plans(indptr, indices, offsets):
    """Return the HaloPlans of all ranks for the CSR pattern of a whole matrix."""
    layouts = [RowPartition(offsets, rank) for rank in range(offsets.size - 1)]
    wanted = [needs(indices[indptr[one.start]:indptr[one.stop]], one) for one in layouts]
    cuts = [by_owner(rows, one) for rows, one in zip(wanted, layouts)]
    return [complete(one, wanted[p], [rows[cut[p]:cut[p + 1]] for rows, cut in zip(wanted, cuts)])
            for p, one in enumerate(layouts)]


class Ranks:
    """Simulated collectives over groups of ranks.

    Counters have the bytes that each rank sends.
    """

    def __init__(self, size):
        self.size = size
        self.bytes = [0] * size
        self.messages = [0] * size

    def send(self, source, destination, array):
        if source != destination and array.nbytes:
            self.bytes[source] += array.nbytes
            self.messages[source] += 1
        return array.copy()

    def broadcast(self, group, root, array):
        return {q: self.send(root, q, array) for q in group}

    def reduce(self, group, root, parts):
        return sum(self.send(p, root, parts[p]) for p in group)

    def allgather(self, group, parts):
        return {q: [self.send(p, q, parts[p]) for p in group] for q in group}

    def reduce_scatter(self, group, parts):
        """Sum blocks and scatter the sums; parts[p] has one block for each member of the group."""
        return {q: sum(arrived) for q, arrived in self.alltoall(group, parts).items()}

    def alltoall(self, group, parts):
        return {q: [self.send(p, q, parts[p][place]) for p in group]
                for place, q in enumerate(group)}


class Simulated:
    """Blocks of A, H and G on a grid of R big row blocks x L pieces x C column blocks."""

    def __init__(self, A, cube, offsets):
        self.A = A
        self.R, self.L, self.C = cube
        self.ranks = Ranks(self.R * self.L * self.C)
        self.offsets = np.asarray(offsets)
        self.symmetric = are_equal(A, A.T)
        self.owners = [BlockLayout(self.offsets, self.C, rank) for rank in range(self.ranks.size)]
        self.blocks = [slice(*pair) for pair in pairwise(self.offsets.tolist())]
        self.big = [slice(*pair) for pair in pairwise(self.offsets[::self.L].tolist())]

    def rank(self, row, piece, column):
        return (row * self.L + piece) * self.C + column

    def scatter(self, M):
        return [M[one.rows.start:one.rows.stop, one.columns_of(M.shape[1])] for one in self.owners]

    def gather(self, parts):
        return np.concatenate([np.concatenate(parts[b:b + self.C], 1)
                               for b in range(0, len(parts), self.C)])

    def sums(self, partial):
        """Run a reduce-scatter of each big block over the L ranks that have partial sums of it."""
        found = {}
        for i, j in product(range(self.R), range(self.C)):
            group = [self.rank(i, piece, j) for piece in range(self.L)]
            cuts = self.offsets[i * self.L + 1:(i + 1) * self.L] - self.offsets[i * self.L]
            found |= self.ranks.reduce_scatter(
                group, {rank: np.split(partial[rank], cuts) for rank in group})
        return [found[rank] for rank in range(self.ranks.size)]

    def forward(self, H, mask=None):
        """Return the blocks of A H from those of H; `mask` masks the result."""
        return self.multiply(H)

    def backward(self, G, mask=None):
        return self.multiply(G) if self.symmetric else self.adjoint(G)


class PointToPoint(Simulated):
    def needs(self):
        """Yield (reader, owner, rows): the rows that each rank reads from each other rank."""
        for reader, mine in enumerate(self.blocks):
            read = np.flatnonzero(self.A[mine].any(0))
            for owner, theirs in enumerate(self.blocks):
                yield reader, owner, read[(read >= theirs.start) & (read < theirs.stop)]

    def multiply(self, H):
        T = [np.zeros_like(block) for block in H]
        for reader, owner, rows in self.needs():
            ghosts = self.ranks.send(owner, reader, H[owner][rows - self.blocks[owner].start])
            T[reader] += self.A[self.blocks[reader]][:, rows] @ ghosts
        return T

    def adjoint(self, G):
        T = [np.zeros_like(block) for block in G]
        for reader, owner, rows in self.needs():
            partial = self.A[self.blocks[reader]][:, rows].T @ G[reader]
            T[owner][rows - self.blocks[owner].start] += self.ranks.send(reader, owner, partial)
        return T


class OneD(Simulated):
    def multiply(self, H):
        T = [np.zeros_like(block) for block in H]
        everyone = range(self.ranks.size)
        for root, columns in enumerate(self.blocks):
            for rank, block in self.ranks.broadcast(everyone, root, H[root]).items():
                T[rank] += self.A[self.blocks[rank], columns] @ block
        return T

    def adjoint(self, G):
        everyone = range(self.ranks.size)
        return [self.ranks.reduce(everyone, root,
                                  {p: self.A[self.blocks[p], columns].T @ G[p] for p in everyone})
                for root, columns in enumerate(self.blocks)]


class OneAndAHalfD(Simulated):
    """The 1.5d strategy: rank (i, j) has replica j of big block i; L is the number of replicas."""

    def gathered(self, H):
        """Gather each big block among its replicas; return it, and zeros for the results."""
        groups = [[self.rank(i, j, 0) for j in range(self.L)] for i in range(self.R)]
        parts = [self.ranks.allgather(group, H) for group in groups]
        whole = {rank: np.concatenate(blocks) for part in parts for rank, blocks in part.items()}
        return whole, {rank: np.zeros_like(block) for rank, block in whole.items()}

    def columns(self):
        """Yield (k, ranks) for each big block k: the ranks that multiply by it."""
        for k in range(self.R):
            j = int(np.searchsorted(split(self.R, self.L), k, side="right")) - 1
            yield k, [self.rank(i, j, 0) for i in range(self.R)]

    def multiply(self, H):
        whole, T = self.gathered(H)
        for k, column in self.columns():
            arrived = self.ranks.broadcast(column, column[k], whole[column[k]])
            for i, rank in enumerate(column):
                T[rank] += self.A[self.big[i], self.big[k]] @ arrived[rank]
        return self.sums(T)

    def adjoint(self, G):
        whole, T = self.gathered(G)
        for k, column in self.columns():
            partial = {rank: self.A[self.big[i], self.big[k]].T @ whole[rank]
                       for i, rank in enumerate(column)}
            T[column[k]] += self.ranks.reduce(column, column[k], partial)
        return self.sums(T)


class Summa(Simulated):
    """The SUMMA strategies: rank (i, j, l) has big block i, column block j and layer l."""

    def multiply(self, H, A=None):
        A = self.A if A is None else A
        cuts = stages(self.offsets, self.R, self.L, self.C)
        widths = [H[j].shape[1] for j in range(self.C)]
        T = {self.rank(i, piece, j): np.zeros((rows.stop - rows.start, widths[j]), H[0].dtype)
             for i, rows in enumerate(self.big) for piece in range(self.L) for j in range(self.C)}
        for (lo, hi), k, q, piece in zip(pairwise(cuts.offsets.tolist()), cuts.row, cuts.column,
                                         cuts.piece):
            start = self.offsets[k * self.L + piece]
            tall = {}
            for j in range(self.C):
                column = [self.rank(i, piece, j) for i in range(self.R)]
                rows = H[column[k]][lo - start:hi - start]
                tall |= self.ranks.broadcast(column, column[k], rows)
            for i, rows in enumerate(self.big):
                row = [self.rank(i, piece, j) for j in range(self.C)]
                arrived = self.ranks.broadcast(row, row[q], packed(A[rows, lo:hi]))
                for rank, message in arrived.items():
                    T[rank] += unpacked(message, A[rows, lo:hi].shape, A.dtype) @ tall[rank]
        return self.sums(T)

    def adjoint(self, G):
        return self.multiply(G, self.A.T)


class Mixture(Simulated):
    def multiply(self, H, A=None, mask=None):
        A = self.A if A is None else A
        everyone, width = range(self.ranks.size), H[0].shape[1]
        cuts = [slice(*pair) for pair in pairwise(split(width, self.ranks.size).tolist())]
        tall = self.ranks.alltoall(everyone, {p: [H[p][:, cut] for cut in cuts] for p in everyone})
        Z = {p: A @ np.concatenate(tall[p]) for p in everyone}
        if mask is not None:
            bits = {p: [np.packbits(mask[p][:, cut], axis=1, bitorder="little") for cut in cuts]
                    for p in everyone}
            for p, parts in self.ranks.alltoall(everyone, bits).items():
                width = cuts[p].stop - cuts[p].start
                Z[p] *= np.unpackbits(np.concatenate(parts), axis=1, count=width, bitorder="little")
        back = self.ranks.alltoall(everyone, {p: [Z[p][rows] for rows in self.blocks]
                                              for p in everyone})
        return [np.concatenate(back[p], 1) for p in everyone]

    def forward(self, H, mask=None):
        return self.multiply(H, mask=mask)

    def backward(self, G, mask=None):
        return self.multiply(G, self.A.T, mask)


SIMULATED = {"p2p": PointToPoint, "1d": OneD, "1.5d": OneAndAHalfD, "2d": Summa, "3d": Summa,
             "mop": Mixture}


def packed(block):
    """Pack a block as CSR bytes: int64 row pointers, values, int32 columns.

    A block without entries has no bytes.
    """
    rows, columns = np.nonzero(block)
    if not rows.size:
        return np.empty(0, np.uint8)
    pointers = np.searchsorted(rows, np.arange(block.shape[0] + 1)).astype(np.int64)
    return np.concatenate([part.view(np.uint8)
                           for part in (pointers, block[rows, columns], columns.astype(np.int32))])


def unpacked(message, shape, dtype):
    block = np.zeros(shape, dtype)
    if message.size:
        pointers, rest = message[:8 * (shape[0] + 1)].view(np.int64), message[8 * (shape[0] + 1):]
        values, columns = np.split(rest, [pointers[-1] * block.itemsize])
        block[np.repeat(np.arange(shape[0]), np.diff(pointers)),
              columns.view(np.int32)] = values.view(dtype)
    return block

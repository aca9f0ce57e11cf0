"""All ranks in one process: each strategy executed block by block on collectives that count what travels.

`Ranks` moves NumPy arrays between ranks and counts every array on its way; the strategies below compute A H and A^T G
from the blocks that each rank holds, and `train_step` a whole step of a GCN: what is counted is what a run needs.
"""
from itertools import pairwise

import numpy as np

from hpgcn.cost import aggregate_first
from hpgcn.cost.blocks import cube
from hpgcn.layout import Grid, split, stages


class Ranks:
    """Collectives over groups of P ranks; `kind` and `phase` say what they are for."""

    def __init__(self, size):
        self.size, self.kind, self.phase = size, "aggregation", "forward"
        self.bytes, self.messages = {}, {}

    def count(self, rank, payload, messages):
        for book, amount in ((self.bytes, payload), (self.messages, messages)):
            book.setdefault((self.kind, self.phase), [0] * self.size)[rank] += amount

    def send(self, source, destination, array):
        if source != destination and array.nbytes:
            self.count(source, array.nbytes, 1)
        return array.copy()

    def broadcast(self, group, root, array):
        return {q: self.send(root, q, array) for q in group}

    def reduce(self, group, root, parts):
        return sum(self.send(p, root, parts[p]) for p in group)

    def allgather(self, group, parts):
        return {q: [self.send(p, q, parts[p]) for p in group] for q in group}

    def reduce_scatter(self, group, parts):
        """parts[p]: a list of one block for each member of the group."""
        return {q: sum(self.send(p, q, parts[p][place]) for p in group) for place, q in enumerate(group)}

    def alltoall(self, group, parts):
        return {q: [self.send(p, q, parts[p][place]) for p in group] for place, q in enumerate(group)}

    def allreduce(self, group, parts, operation=np.add):
        total = 2 * parts[group[0]].nbytes * (len(group) - 1)
        for place, rank in enumerate(group):
            if total:  # byte number i of the total is booked on rank i mod q
                self.count(rank, len(range(place, total, len(group))), 2 * (len(group) - 1))
        return operation.reduce([parts[p] for p in group])


class Simulated:
    """Blocks of A, H and G on a grid of R big row blocks x L pieces x C column blocks."""

    def __init__(self, A, strategy, grid, offsets, ranks):
        self.A, self.ranks, self.offsets = A, ranks, np.asarray(offsets)
        self.symmetric = np.array_equal(A, A.T)
        self.R, self.L, self.C = cube(strategy, grid)
        self.owners = [Grid(self.offsets, self.C, rank) for rank in range(ranks.size)]
        self.blocks = [slice(*pair) for pair in pairwise(self.offsets.tolist())]
        self.big = [slice(*pair) for pair in pairwise(self.offsets[::self.L].tolist())]

    def rank(self, row, piece, column):
        return (row * self.L + piece) * self.C + column

    def scatter(self, M):
        return [M[one.rows.start:one.rows.stop, one.columns_of(M.shape[1])] for one in self.owners]

    def gather(self, parts):
        return np.concatenate([np.concatenate(parts[b:b + self.C], 1) for b in range(0, len(parts), self.C)])

    def pieces(self, row, array):
        """Rows of a big block, cut into its L pieces."""
        return np.split(array, self.offsets[row * self.L + 1:(row + 1) * self.L] - self.offsets[row * self.L])

    def forward(self, H):
        return self.multiply(H)

    def backward(self, G, mask=None):
        self.ranks.kind = "aggregation"
        result = self.multiply(G) if self.symmetric else self.adjoint(G)
        return result if mask is None else [part * bits for part, bits in zip(result, mask)]


class PointToPoint(Simulated):
    def needs(self):
        """(reader, owner, rows): what each rank reads of each other's rows."""
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
        return [self.ranks.reduce(everyone, root, {p: self.A[self.blocks[p], columns].T @ G[p] for p in everyone})
                for root, columns in enumerate(self.blocks)]


class OneAndAHalfD(Simulated):
    """Rank (i, j): big block i, replica j; L is c."""

    def replica(self, block):
        return int(np.searchsorted(split(self.R, self.L), block, side="right")) - 1

    def row_group(self, i):
        return [self.rank(i, j, 0) for j in range(self.L)]

    def whole(self, H):
        """Allgather of each big block over its replicas."""
        parts = [self.ranks.allgather(self.row_group(i), H) for i in range(self.R)]
        return {rank: np.concatenate(blocks) for part in parts for rank, blocks in part.items()}

    def sums(self, partial):
        """Reduce_scatter of each big block over its replicas."""
        found = {}
        for i in range(self.R):
            group = self.row_group(i)
            found |= self.ranks.reduce_scatter(group, {rank: self.pieces(i, partial[rank]) for rank in group})
        return [found[rank] for rank in range(self.ranks.size)]

    def multiply(self, H):
        whole = self.whole(H)
        T = {rank: np.zeros_like(block) for rank, block in whole.items()}
        for k in range(self.R):
            j = self.replica(k)
            column = [self.rank(i, j, 0) for i in range(self.R)]
            arrived = self.ranks.broadcast(column, column[k], whole[column[k]])
            for i, rank in enumerate(column):
                T[rank] += self.A[self.big[i], self.big[k]] @ arrived[rank]
        return self.sums(T)

    def adjoint(self, G):
        whole = self.whole(G)
        T = {rank: np.zeros_like(block) for rank, block in whole.items()}
        for k in range(self.R):
            j = self.replica(k)
            column = [self.rank(i, j, 0) for i in range(self.R)]
            partial = {rank: self.A[self.big[i], self.big[k]].T @ whole[rank] for i, rank in enumerate(column)}
            T[column[k]] += self.ranks.reduce(column, column[k], partial)
        return self.sums(T)


class Summa(Simulated):
    """Rank (i, j, l): big block i, column block j, layer l."""

    def multiply(self, H, A=None):
        A = self.A if A is None else A
        cuts = stages(self.offsets, self.R, self.L, self.C)
        widths = [H[j].shape[1] for j in range(self.C)]
        T = {self.rank(i, piece, j): np.zeros((rows.stop - rows.start, widths[j]), H[0].dtype)
             for i, rows in enumerate(self.big) for piece in range(self.L) for j in range(self.C)}
        for (lo, hi), k, q, piece in zip(pairwise(cuts.offsets.tolist()), cuts.row, cuts.column, cuts.piece):
            start = self.offsets[k * self.L + piece]
            tall = [self.ranks.broadcast([self.rank(i, piece, j) for i in range(self.R)], self.rank(k, piece, j),
                                         H[self.rank(k, piece, j)][lo - start:hi - start]) for j in range(self.C)]
            for i, rows in enumerate(self.big):
                row = [self.rank(i, piece, j) for j in range(self.C)]
                for j, (rank, message) in enumerate(self.ranks.broadcast(row, row[q], packed(A[rows, lo:hi])).items()):
                    T[rank] += unpacked(message, (rows.stop - rows.start, hi - lo), A.dtype) @ tall[j][rank]
        found = {}
        for i in range(self.R):
            for j in range(self.C):
                fibre = [self.rank(i, piece, j) for piece in range(self.L)]
                found |= self.ranks.reduce_scatter(fibre, {rank: self.pieces(i, T[rank]) for rank in fibre})
        return [found[rank] for rank in range(self.ranks.size)]

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
            bits = {p: [np.packbits(mask[p][:, cut], axis=1, bitorder="little") for cut in cuts] for p in everyone}
            for p, parts in self.ranks.alltoall(everyone, bits).items():
                width = cuts[p].stop - cuts[p].start
                Z[p] *= np.unpackbits(np.concatenate(parts), axis=1, count=width, bitorder="little")
        back = self.ranks.alltoall(everyone, {p: [Z[p][rows] for rows in self.blocks] for p in everyone})
        return [np.concatenate(back[p], 1) for p in everyone]

    def backward(self, G, mask=None):
        self.ranks.kind = "aggregation"
        return self.multiply(G, self.A.T, mask)


SIMULATED = {"p2p": PointToPoint, "1d": OneD, "1.5d": OneAndAHalfD, "2d": Summa, "3d": Summa, "mop": Mixture}


def packed(block):
    """CSR of a block as bytes: row pointers int64, values, column numbers int32; nothing if it is empty."""
    rows, columns = np.nonzero(block)
    if not rows.size:
        return np.empty(0, np.uint8)
    pointers = np.searchsorted(rows, np.arange(block.shape[0] + 1)).astype(np.int64)
    return np.concatenate([part.view(np.uint8) for part in (pointers, block[rows, columns], columns.astype(np.int32))])


def unpacked(message, shape, dtype):
    """The block that `packed` packed."""
    block = np.zeros(shape, dtype)
    if message.size:
        pointers, rest = message[:8 * (shape[0] + 1)].view(np.int64), message[8 * (shape[0] + 1):]
        values, columns = np.split(rest, [pointers[-1] * block.itemsize])
        block[np.repeat(np.arange(shape[0]), np.diff(pointers)), columns.view(np.int32)] = values.view(dtype)
    return block


class DenseStep:
    """Products with W and softmax on a layout whose columns may be divided."""

    def __init__(self, strategy):
        self.ranks, self.C = strategy.ranks, strategy.C
        self.row_groups = [range(b, b + self.C) for b in range(0, self.ranks.size, self.C)]
        self.column_groups = [range(j, self.ranks.size, self.C) for j in range(self.C)]

    def cuts(self, width):
        return [slice(*pair) for pair in pairwise(split(width, self.C).tolist())]

    def times(self, T, W):
        self.ranks.kind, found = "dense", {}
        fan_in, fan_out = self.cuts(W.shape[0]), self.cuts(W.shape[1])
        for group in self.row_groups:
            partial = {rank: T[rank] @ W[fan_in[j]] for j, rank in enumerate(group)}
            found |= self.ranks.reduce_scatter(group, {p: [partial[p][:, cut] for cut in fan_out] for p in group})
        self.ranks.kind = "aggregation"
        return [found[rank] for rank in range(self.ranks.size)]

    def whole_rows(self, G):
        self.ranks.kind = "dense"
        parts = [self.ranks.allgather(group, G) for group in self.row_groups]
        return [np.concatenate(part[rank], 1) for group, part in zip(self.row_groups, parts) for rank in group]

    def softmax_gradient(self, Z, onehot):
        self.ranks.kind, G = "dense", []
        for group in self.row_groups:
            top = self.ranks.allreduce(group, {p: Z[p].max(1, initial=-np.inf) for p in group}, np.maximum)
            E = {p: np.exp(Z[p] - top[:, None]) for p in group}
            total = self.ranks.allreduce(group, {p: E[p].sum(1, dtype=np.float64) for p in group})
            G += [(E[p] / total[:, None] - onehot[p]).astype(Z[p].dtype) for p in group]
        return G

    def sum_of_weights(self, parts, widths):
        """parts[rank]: (dW of its rows of W, db of its columns) of every layer; the whole gradient, once."""
        self.ranks.kind = "weights"
        flat = [np.concatenate([each.ravel() for pair in layers for each in pair]) for layers in parts]
        sums = {group[0]: self.ranks.allreduce(group, flat) for group in self.column_groups}
        columns = [self.ranks.allgather(group, {p: sums[p % self.C] for p in group}) for group in self.row_groups]
        gradient = [(np.empty((fan_in, fan_out)), np.empty(fan_out)) for fan_in, fan_out in pairwise(widths)]
        for j, slab in enumerate(columns[-1][self.ranks.size - 1]):
            for (dW, db), (fan_in, fan_out) in zip(gradient, pairwise(widths)):
                rows, columns = self.cuts(fan_in)[j], self.cuts(fan_out)[j]
                mine, bias, slab = np.split(slab, np.cumsum([dW[rows].size, db[columns].size]))
                dW[rows], db[columns] = mine.reshape(-1, fan_out), bias
        return gradient


def train_step(strategy, step, X, onehot, weights):
    """One step of a GCN without dropout under a simulated strategy; return [(dW, db)] of the summed loss."""
    dense, ranks, kept, masks = DenseStep(strategy), strategy.ranks, [], []
    first = [aggregate_first(*pair, step.sparse_features and layer == 0) or (step.constant and layer == 0)
             for layer, pair in enumerate(step.layers)]
    ranks.phase, ranks.kind = "forward", "aggregation"
    H = strategy.scatter(strategy.A @ X if step.constant else X)
    for layer, (W, b) in enumerate(weights):
        kept.append(H)
        if first[layer]:
            kept[layer] = H if step.constant and layer == 0 else strategy.forward(H)
            Z = dense.times(kept[layer], W)
        else:
            Z = strategy.forward(dense.times(H, W))
        Z = [part + b[one.columns_of(b.size)] for part, one in zip(Z, strategy.owners)]
        masks.append([part > 0 for part in Z])
        H = [np.maximum(part, 0) for part in Z]
    G = dense.softmax_gradient(Z, strategy.scatter(onehot))
    ranks.phase, gradient = "backward", [None] * len(weights)
    for layer, (W, _) in reversed(list(enumerate(weights))):
        bias = [part.sum(0) for part in G]
        whole = dense.whole_rows(G if first[layer] else strategy.backward(G))
        gradient[layer] = [(T.T @ part, db) for T, part, db in zip(kept[layer], whole, bias)]
        if layer:
            G = [part @ W[one.columns_of(W.shape[0])].T for part, one in zip(whole, strategy.owners)]
            mask = masks[layer - 1]
            G = strategy.backward(G, mask) if first[layer] else [part * bits for part, bits in zip(G, mask)]
    return dense.sum_of_weights(list(zip(*gradient)), step.widths)

"""What cost predicts is what a run of all ranks, simulated block by block, sends; limits, literals and refusals."""
from itertools import pairwise
from math import gcd

import numpy as np
import pytest
from simulated import SIMULATED, Mixture, Ranks, train_step

from hpgcn import cost, plan
from hpgcn.cost import Prediction, RankVolumes, Step, Traffic, predict
from hpgcn.errors import UsageError
from hpgcn.layout import split
from hpgcn.partition.model import pattern

N = 23
GRIDS = {
    "p2p": [(P,) for P in range(1, 9)],
    "1d": [(P,) for P in range(1, 9)],
    "mop": [(P,) for P in range(1, 9)],
    "1.5d": [(P // c, c) for P in [*range(1, 9), 12] for c in range(1, P + 1) if P % c == 0],
    "2d": [(R, P // R) for P in [*range(1, 9), 12] for R in range(1, P + 1) if P % R == 0],
    "3d": [(R, C, P // (R * C)) for P in [*range(1, 9), 12] for R in range(1, P + 1) if P % R == 0
           for C in range(1, P // R + 1) if P // R % C == 0]}
CASES = [pytest.param(strategy, grid, id=f"{strategy}-{'x'.join(map(str, grid))}")
         for strategy, grids in GRIDS.items() for grid in grids]


def matrix(*, directed, n=N, density=0.15, seed=0, dtype=np.float64):
    """Dense random weights with a full diagonal; small multiples of 1/8, exact in float32."""
    rng = np.random.default_rng(seed)
    A = (rng.random((n, n)) < density) * rng.integers(1, 9, (n, n)) / 8
    A = A if directed else np.maximum(A, A.T)
    return (A + np.eye(n)).astype(dtype)


def csr(A):
    rows, indices = np.nonzero(A)
    return np.searchsorted(rows, np.arange(len(A) + 1)), indices


def counts_of(strategy, grid, A, offsets):
    """Keywords of `predict` that come from the matrix."""
    indptr, indices = csr(A)
    if strategy == "p2p":
        plans = plan.build_all(indptr, indices, offsets)
        sizes = [(one.send_rows.size, one.ghosts.size, one.destinations.size, one.sources.size) for one in plans]
        return {"sent": RankVolumes(*np.array(sizes).T)}
    if strategy in ("2d", "3d"):
        return {"nnz_blocks": cost.stage_nonzeros(strategy, grid, offsets, indptr, indices),
                "nnz_blocks_transposed": cost.stage_nonzeros(strategy, grid, offsets, indptr, indices, transposed=True)}
    return {}


def predicted(strategy, grid, A, step, offsets=None):
    offsets = cost.row_blocks(strategy, grid, csr(A)[0]) if offsets is None else offsets
    return predict(strategy, step, grid, offsets, **counts_of(strategy, grid, A, offsets))


def simulate(strategy, grid, A, offsets, *args):
    """Counts and gradient of a simulated step."""
    ranks = Ranks(int(np.prod(grid)))
    return ranks, train_step(SIMULATED[strategy](A, strategy, grid, offsets, ranks), *args)


def serial(A, X, onehot, weights):
    """Gradient of the summed cross-entropy, textbook order."""
    inputs, H = [], X
    for layer, (W, b) in enumerate(weights):
        inputs.append(H)
        Z = A @ H @ W + b
        H = np.maximum(Z, 0) if layer + 1 < len(weights) else Z
    G = np.exp(H - H.max(1, keepdims=True))
    G = G / G.sum(1, keepdims=True) - onehot
    gradient = []
    for H, (W, _) in reversed(list(zip(inputs, weights))):
        gradient.append(((A @ H).T @ G, G.sum(0)))
        G = (A.T @ G @ W.T) * (H > 0)
    return gradient[::-1]


def data_for(step, n=N, seed=1):
    rng, dtype = np.random.default_rng(seed), np.dtype(f"f{step.itemsize}")
    X = rng.standard_normal((n, step.widths[0])).astype(dtype)
    onehot = np.eye(step.widths[-1], dtype=dtype)[rng.integers(0, step.widths[-1], n)]
    return X, onehot, [(rng.standard_normal(pair).astype(dtype) / 4, rng.standard_normal(pair[1]).astype(dtype))
                       for pair in step.layers]


def assert_counted(ranks, prediction):
    for key, expected in prediction.bytes.items():
        assert expected.dtype == np.int64
        assert expected.tolist() == ranks.bytes.get(key, [0] * ranks.size), key
        assert prediction.messages[key].tolist() == ranks.messages.get(key, [0] * ranks.size), key
    assert prediction.total_bytes() == sum(map(sum, ranks.bytes.values()))
    assert prediction.total_messages() == sum(map(sum, ranks.messages.values()))


@pytest.mark.parametrize("directed", [False, True], ids=["undirected", "directed"])
@pytest.mark.parametrize("strategy, grid", CASES)
def test_counted_is_predicted(strategy, grid, directed):
    step = Step([5, 7, 7, 3], itemsize=8, directed=directed)  # A first, W first, W first
    A = matrix(directed=directed)
    offsets = cost.row_blocks(strategy, grid, csr(A)[0])
    ranks, gradient = simulate(strategy, grid, A, offsets, step, *(data := data_for(step)))
    for found, expected in zip(gradient, serial(A, *data)):
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-11, atol=1e-11)
    assert_counted(ranks, predicted(strategy, grid, A, step))


@pytest.mark.parametrize("options", [{"sparse_features": True}, {"constant": True}, {"itemsize": 4}], ids=str)
@pytest.mark.parametrize("widths", [(2, 9, 17, 30), (11, 5, 2), (6, 1)], ids=str)
@pytest.mark.parametrize("strategy, grid", [
    ("p2p", (5,)), ("1d", (5,)), ("mop", (7,)), ("1.5d", (5, 3)), ("1.5d", (2, 3)), ("2d", (3, 4)), ("2d", (4, 3)),
    ("3d", (2, 3, 2)), ("3d", (3, 2, 2))], ids=str)
def test_counted_is_predicted_for_other_steps(strategy, grid, widths, options):
    step = Step(widths, **{"itemsize": 8, "directed": True, **options})
    A = matrix(directed=True, dtype=f"f{step.itemsize}")
    offsets = cost.row_blocks(strategy, grid, csr(A)[0])
    ranks, gradient = simulate(strategy, grid, A, offsets, step, *(data := data_for(step)))
    tolerance = 1e-11 if step.itemsize == 8 else 2e-4
    for found, expected in zip(gradient, serial(A, *data)):
        scale = abs(expected[0]).max()
        assert abs(found[0] - expected[0]).max() <= tolerance * scale  # one class alone has no gradient
    assert_counted(ranks, predicted(strategy, grid, A, step))


@pytest.mark.parametrize("blocks", [
    (0, 0, 4, 4, 9, 23, 23), (0, 23, 23, 23, 23, 23, 23), (0, 0, 0, 1, 22, 22, 23)], ids=str)
@pytest.mark.parametrize("strategy, grid", [
    ("p2p", (6,)), ("1d", (6,)), ("mop", (6,)), ("1.5d", (3, 2)), ("1.5d", (2, 3)), ("2d", (6, 2)), ("3d", (3, 2, 2)),
    ("3d", (2, 3, 3))], ids=str)
def test_empty_blocks_send_nothing(strategy, grid, blocks):
    step, A = Step([4, 6, 3], itemsize=8, directed=True), matrix(directed=True)
    ranks, gradient = simulate(strategy, grid, A, np.array(blocks), step, *(data := data_for(step)))
    np.testing.assert_allclose(gradient[0][0], serial(A, *data)[0][0], rtol=1e-11, atol=1e-11)
    assert_counted(ranks, predicted(strategy, grid, A, step, np.array(blocks)))


def test_more_ranks_than_rows():
    step, A = Step([3, 4, 2], itemsize=8), matrix(directed=False, n=5)
    for strategy, grid in (("p2p", (8,)), ("1d", (8,)), ("mop", (8,)), ("1.5d", (4, 2)), ("2d", (4, 3)),
                           ("3d", (3, 2, 3))):
        offsets = cost.row_blocks(strategy, grid, csr(A)[0])
        ranks, _ = simulate(strategy, grid, A, offsets, step, *data_for(step, n=5))
        assert_counted(ranks, predicted(strategy, grid, A, step))


@pytest.mark.parametrize("strategy", cost.STRATEGIES)
def test_one_rank_sends_nothing(strategy):
    grid = cost.default_grid(strategy, 1)
    prediction = predicted(strategy, grid, matrix(directed=True), Step([9, 4, 3], directed=True))
    assert prediction.total_bytes() == prediction.total_messages() == prediction.max_bytes() == 0
    assert prediction.traffic() == Traffic()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("P", range(1, 9))
def test_limits(P, directed):
    A, step = matrix(directed=directed), Step([5, 7, 7, 3], directed=directed)
    offsets = cost.row_blocks("1d", (P,), csr(A)[0])
    one_d = predict("1d", step, (P,), offsets)
    for other, grid in (("1.5d", (P, 1)), ("2d", (P, 1)), ("3d", (P, 1, 1))):
        found = predict(other, step, grid, offsets)
        for key, expected in one_d.bytes.items():
            if other == "1.5d" or not directed or key[1] == "forward":  # 2d and 3d hold A^T, 1d sends partial sums
                assert found.bytes[key].tolist() == expected.tolist()
                assert found.messages[key].tolist() == one_d.messages[key].tolist()
        assert found.total_bytes() == one_d.total_bytes()
    p2p = predicted("p2p", (P,), A, step, offsets)
    assert np.all(p2p.bytes["aggregation", "forward"] <= one_d.bytes["aggregation", "forward"])
    assert p2p.total_bytes() <= one_d.total_bytes()
    assert p2p.traffic().weights_bytes == one_d.traffic().weights_bytes


@pytest.mark.parametrize("strategy, grid", [
    ("1.5d", (6, 3)), ("1.5d", (2, 4)), ("2d", (4, 3)), ("2d", (2, 6)), ("3d", (3, 2, 4)), ("3d", (5, 1, 2))], ids=str)
def test_closed_forms(strategy, grid):
    (R, C), L, n, f, s = (grid[:2], grid[2] if strategy == "3d" else 1, 1003, 45, 4)
    if strategy == "1.5d":
        (R, L), C = grid, 1
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.sort(rng.integers(1, n, R * L - 1)), [n]])
    stages = L * (R + C - gcd(R, C))
    nonzeros = rng.integers(1, 90, (R, stages))
    found = predict(strategy, Step((f, f)), grid, offsets, nnz_blocks=nonzeros).traffic()
    sparse = (4 + s) * int(nonzeros.sum()) + 8 * stages * (n + R)
    product = s * n * f * (R - 1 + (2 if strategy == "1.5d" else 1) * (L - 1)) + sparse * (C - 1)
    parameters = f * f + f
    assert found.aggregation_bytes == 2 * product
    assert found.dense_bytes == 2 * s * n * f * (C - 1) + 2 * (s + 8) * n * (C - 1)
    assert found.weights_bytes == 2 * s * parameters * (R * L - 1) + s * parameters * R * L * (C - 1)


@pytest.mark.parametrize("P", [1, 2, 3, 4, 6])
def test_mop_moves_two_n_f_whatever_the_graph(P):
    n, f = 24, 12  # P divides both: 2 n f (1 - 1/P) elements a product, evenly
    offsets = cost.row_blocks("mop", (P,), np.zeros(n + 1, np.int64))
    found = predict("mop", Step([f, f, f], itemsize=4), (P,), offsets)
    assert found.traffic().aggregation_bytes == 4 * 2 * n * f * 4 * (P - 1) // P
    assert len(set(found.bytes["aggregation", "forward"].tolist())) == 1
    # rows and columns that P does not divide: n f - sum of own rows x own columns, each way
    found = predict("mop", Step([7, 7], itemsize=4), (3,), np.array([0, 10, 11, 23]))
    assert found.traffic().aggregation_bytes == 2 * 2 * (23 * 7 - (10 * 3 + 1 * 2 + 12 * 2)) * 4


class MixtureInBatches(Mixture):
    """mop whose all-to-alls of rows go in batches, each a piece of every rank's rows; masks travel whole."""

    stages = 1

    def multiply(self, H, A=None, mask=None):
        everyone, (n, width) = range(self.ranks.size), (len(self.A), H[0].shape[1])
        columns = [slice(*pair) for pair in pairwise(split(width, self.ranks.size).tolist())]
        rows = [[self.blocks[p].start + cut for cut in np.array_split(np.arange(len(H[p])), self.stages)]
                for p in everyone]
        X, back = np.full((n, width), np.nan), [np.full_like(part, np.nan) for part in H]
        if mask is not None:
            bits = {p: [np.packbits(mask[p][:, cut], axis=1) for cut in columns] for p in everyone}
            self.ranks.alltoall(everyone, bits)
        for batch in range(self.stages):
            at = [rows[p][batch] for p in everyone]
            sent = {p: [H[p][at[p] - self.blocks[p].start][:, cut] for cut in columns] for p in everyone}
            for q, parts in self.ranks.alltoall(everyone, sent).items():
                X[np.concatenate(at), columns[q]] = np.concatenate(parts)
        Z = (self.A if A is None else A) @ X
        if mask is not None:
            Z *= np.concatenate(mask)
        for batch in range(self.stages):
            at = [rows[p][batch] for p in everyone]
            sums = {q: [Z[here, columns[q]] for here in at] for q in everyone}
            for p, parts in self.ranks.alltoall(everyone, sums).items():
                back[p][at[p] - self.blocks[p].start] = np.concatenate(parts, 1)
        return back


@pytest.mark.parametrize("stages", [1, 2, 5, 40])
@pytest.mark.parametrize("blocks", [
    (0, 23), (0, 3, 11, 23), (0, 0, 4, 4, 9, 23, 23), (0, 4, 8, 12, 15, 18, 21, 23)], ids=str)
@pytest.mark.parametrize("directed", [False, True])
def test_mop_in_batches(monkeypatch, blocks, stages, directed):
    monkeypatch.setitem(SIMULATED, "mop", MixtureInBatches)
    monkeypatch.setattr(MixtureInBatches, "stages", stages)
    P, step, A = len(blocks) - 1, Step([5, 7, 9, 3], itemsize=8, directed=directed), matrix(directed=directed)
    ranks, gradient = simulate("mop", (P,), A, np.array(blocks), step, *(data := data_for(step)))
    for found, expected in zip(gradient, serial(A, *data)):
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-11, atol=1e-11)
    found = predict("mop", step, (P,), np.array(blocks), stages=stages)
    assert_counted(ranks, found)
    whole = predict("mop", step, (P,), np.array(blocks))
    assert found.total_bytes() == whole.total_bytes()
    assert whole.total_messages() <= found.total_messages() <= stages * whole.total_messages()


def test_literal_mop_in_batches():
    # rows 3, 1, 0 and columns 1, 1, 1 of width 3 (layer 1: W first; layer 2: A first, its backward masked), float32
    found = predict("mop", Step([3, 3, 4]), (3,), np.array([0, 3, 4, 4]), stages=2)
    # there 2 x 3, 2 x 1, 0 elements; back to the others 1, 3, 4; two products
    assert found.bytes["aggregation", "forward"].tolist() == [2 * 4 * (6 + 1), 2 * 4 * (2 + 3), 2 * 4 * (0 + 4)]
    # there: two others, 2 batches of rank 0 and 1 of rank 1; back: 1 of rank 1's, 2 of rank 0's, both
    assert found.messages["aggregation", "forward"].tolist() == [2 * (4 + 1), 2 * (2 + 2), 2 * (0 + 3)]
    # the bits: a byte a row for each of two others, in one message each
    more = {book: (getattr(found, book)["aggregation", "backward"] - getattr(found, book)["aggregation", "forward"])
            for book in ("bytes", "messages")}
    assert more["bytes"].tolist() == [6, 2, 0]
    assert more["messages"].tolist() == [2, 2, 0]


def test_literal_one_d():
    # rows 2, 1, 0 on three ranks; one layer 3 -> 2, W first: one product of width 2 each way, float32
    found = predict("1d", Step([3, 2]), (3,), np.array([0, 2, 3, 3]))
    assert found.bytes["aggregation", "forward"].tolist() == [2 * 2 * 2 * 4, 2 * 1 * 2 * 4, 0]
    assert found.messages["aggregation", "backward"].tolist() == [2, 2, 0]
    # allreduce of 8 parameters: 2 x 32 x 2 = 128 bytes over three ranks
    assert found.bytes["weights", "backward"].tolist() == [43, 43, 42]
    assert found.messages["weights", "backward"].tolist() == [4, 4, 4]
    assert found.traffic() == Traffic(2 * (32 + 16), 8, 128, 12, 0, 0)
    assert (found.total_bytes(), found.total_messages(), found.max_bytes()) == (224, 20, 32 + 32 + 43)
    assert found.rank_bytes().tolist() == [107, 75, 42]
    assert found.rank_messages().tolist() == [8, 8, 4]


def test_literal_two_d():
    # 2 x 2 grid, rows 2 + 1, width 3 in columns 2 + 1, float32, undirected; A's blocks hold 2, 1, 1 and 0 nonzeros
    found = predict("2d", Step([3, 3]), (2, 2), np.array([0, 2, 3]), nnz_blocks=[[2, 1], [1, 0]])
    A = [[3 * 8 + 2 * 8, 3 * 8 + 8], [2 * 8 + 8, 0]]  # pointers int64, entries of 4 + 4 bytes, to one other rank
    H = [[2 * 2 * 4, 2 * 4], [2 * 4, 4]]
    assert found.bytes["aggregation", "forward"].tolist() == np.add(A, H).ravel().tolist()
    assert found.messages["aggregation", "forward"].tolist() == [2, 2, 2, 1]
    assert found.bytes["aggregation", "backward"].tolist() == np.add(A, H).ravel().tolist()
    # forward: the other's columns of the partial product, and 2 m (4 + 8) / 2 bytes for softmax
    assert found.bytes["dense", "forward"].tolist() == [2 * 4 + 24, 2 * 2 * 4 + 24, 4 + 12, 2 * 4 + 12]
    assert found.messages["dense", "forward"].tolist() == [1 + 4] * 4
    assert found.bytes["dense", "backward"].tolist() == [16, 8, 8, 4]
    # own rows of W x 3 and own biases: 2 x 3 + 2 and 1 x 3 + 1 numbers, reduced and then gathered
    assert found.bytes["weights", "backward"].tolist() == [32 + 32, 16 + 16] * 2
    assert found.messages["weights", "backward"].tolist() == [2 + 1] * 4


def test_products_of_a_step():
    step = Step((3, 16, 16, 40))
    assert [(one.layer, one.width, one.masked) for one in step.forward] == [(0, 3, 0), (1, 16, 0), (2, 16, 0)]
    assert [(one.layer, one.width, one.masked) for one in step.backward] == [(2, 16, 1), (1, 16, 0)]
    assert [one.layer for one in Step((9, 4, 3), constant=True).backward] == [1]
    assert [one.layer for one in Step((3, 16, 7), sparse_features=True).backward] == [1, 0]


def test_p2p_step_is_the_total_of_predict():
    A, widths = matrix(directed=True), [9, 4, 12]
    found = predicted("p2p", (5,), A, Step(widths, directed=True)).traffic()
    volume, pairs = 0, 0
    offsets = cost.row_blocks("p2p", (5,), csr(A)[0])
    for reader in range(5):
        for owner in range(5):
            if owner != reader:
                block = A[offsets[reader]:offsets[reader + 1], offsets[owner]:offsets[owner + 1]]
                volume, pairs = volume + int(block.any(0).sum()), pairs + int(block.any())
    assert found == cost.p2p_step(volume, pairs, Step(widths), 5)
    assert found.aggregation_bytes == volume * (4 + 4 + 4 + 4) * 4


def test_stage_nonzeros_on_a_real_graph(data_dir):
    from hpgcn.datasets.convert import read

    graph = read(data_dir / "npz" / "amazon_computers.npz", "auto")[0]
    rows = pattern(graph)
    for strategy, grid in (("2d", (4, 3)), ("3d", (3, 2, 2))):
        offsets = cost.row_blocks(strategy, grid, rows.indptr)
        found = cost.stage_nonzeros(strategy, grid, offsets, rows.indptr, rows.indices)
        assert found.sum() == rows.nnz
        assert found.shape == ((4, 6) if strategy == "2d" else (3, 8))
        back = cost.stage_nonzeros(strategy, grid, offsets, rows.indptr, rows.indices, transposed=True)
        assert np.array_equal(found, back) != graph.header.directed
        assert found.sum(1).max() < 1.05 * rows.nnz / grid[0]
        assert predict(strategy, Step([767, 16, 10], directed=graph.header.directed), grid, offsets, nnz_blocks=found,
                       nnz_blocks_transposed=back).total_bytes() > 0


def test_block_nonzeros_reads_in_pieces(monkeypatch):
    monkeypatch.setattr("hpgcn.cost.blocks.CHUNK", 3)
    A = matrix(directed=True)
    rows, columns = np.array([0, 0, 5, 20, 23]), np.array([0, 11, 11, 23])
    found = cost.block_nonzeros(*csr(A), rows, columns)
    assert found.dtype == np.int64
    for i in range(4):
        for j in range(3):
            assert found[i, j] == np.count_nonzero(A[rows[i]:rows[i + 1], columns[j]:columns[j + 1]])


def test_default_grids():
    expected = {1: ((1, 1), (1, 1), (1, 1, 1)), 4: ((2, 2), (2, 2), (2, 1, 2)), 7: ((7, 1), (7, 1), (7, 1, 1)),
                8: ((4, 2), (4, 2), (2, 2, 2)), 12: ((4, 3), (4, 3), (3, 2, 2)), 27: ((9, 3), (9, 3), (3, 3, 3)),
                512: ((32, 16), (32, 16), (8, 8, 8))}
    for P, (one_and_a_half, two, three) in expected.items():
        assert cost.default_grid("1.5d", P) == one_and_a_half
        assert cost.default_grid("2d", P) == two
        assert cost.default_grid("3d", P) == three
        assert {cost.default_grid(strategy, P) for strategy in ("p2p", "1d", "mop")} == {(P,)}
    for strategy in cost.STRATEGIES:
        for P in range(1, 65):
            grid = cost.default_grid(strategy, P)
            assert cost.check_grid(strategy, P, grid) == grid


@pytest.mark.parametrize("strategy, ranks, grid, words", [
    ("2d", 6, (2, 2), "grid 2x2 holds 4 ranks, but there are 6: expected RxC with product 6, e.g. 3x2"),
    ("2d", 6, (6,), "grid 6: strategy 2d takes RxC"), ("3d", 8, (4, 2), "grid 4x2: strategy 3d takes RxCxL"),
    ("1.5d", 6, (3, 4), "grid 3x4 holds 12 ranks"), ("2d", 4, (-2, -2), "at least 1"),
    ("2d", 4, (2.5, 2), "whole number"),
    ("4d", 4, (4,), "strategy = '4d': expected one of p2p, 1d, 1.5d, 2d, 3d, mop"), ("1d", 0, (0,), "0 ranks")])
def test_refused_grids(strategy, ranks, grid, words):
    with pytest.raises(UsageError) as error:
        cost.check_grid(strategy, ranks, grid)
    assert words in str(error.value)


@pytest.mark.parametrize("call, words", [
    (lambda: Step([4]), "widths 4: expected two or more"), (lambda: Step([4, 0, 3]), "widths 4,0,3"),
    (lambda: Step([4, 3], itemsize=2), "itemsize 2"),
    (lambda: Step([4, 3], sparse_features=True, constant=True), "exclude"),
    (lambda: predict("p2p", Step([4, 3]), (2,), None), "volumes of 2 ranks, found none"),
    (lambda: predict("mop", Step([4, 3]), (2,), np.array([0, 1, 2]), stages=0), "stages = 0: expected at least 1"),
    (lambda: predict("1d", Step([4, 3]), (2,), np.array([0, 3])), "offsets of 2 numbers given, expected 3"),
    (lambda: predict("1d", Step([4, 3]), (2,), np.array([0, 3, 2])), "rising from 0"),
    (lambda: predict("2d", Step([4, 3]), (2, 2), np.array([0, 1, 2])),
     "nnz_blocks: nothing given, expected the nonzeros of 2 x 2 blocks"),
    (lambda: predict("2d", Step([4, 3], directed=True), (2, 2), np.array([0, 1, 2]), nnz_blocks=np.ones((2, 2))),
     "nnz_blocks_transposed: nothing given"),
    (lambda: predict("2d", Step([4, 3]), (2, 2), np.array([0, 1, 2]), nnz_blocks=np.ones((2, 3))),
     "shape (2, 3) given")])
def test_refused_inputs(call, words):
    with pytest.raises(UsageError) as error:
        call()
    assert words in str(error.value)


def test_large_counts_stay_exact():
    n, P = 2**40, 512
    offsets = np.arange(P + 1) * (n // P)
    found = predict("1d", Step([256, 256], itemsize=8), (P,), offsets)
    assert found.traffic().aggregation_bytes == 2 * (P - 1) * n * 256 * 8
    assert isinstance(found, Prediction)

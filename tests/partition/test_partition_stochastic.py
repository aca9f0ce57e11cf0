"""Stochastic nets: mini-batches and their nets by hand, what is drawn and how much, and the volume expected of it."""
import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from small_graphs import grid

from hpgcn.datasets import convert
from hpgcn.errors import InternalError
from hpgcn.partition import stochastic
from hpgcn.partition.model import column_nets, pattern
from hpgcn.partition.process import run_engine
from hpgcn.partition.stochastic import (
    batch_nets,
    batch_size,
    deal,
    draw_batch,
    expected_volume,
    merge_nets,
    nets_wanted,
    stochastic_nets,
)

# row i reads the columns of A + I; column j is read by the rows of net j
TINY = [[1, 1, 0, 0, 1],
        [0, 1, 0, 0, 1],
        [0, 1, 1, 1, 0],
        [1, 0, 0, 1, 1],
        [0, 0, 0, 0, 1]]
NETS = [{0, 3}, {0, 1, 2}, {2, 3}, {0, 1, 3, 4}]  # columns 0, 1, 3, 4; column 2 is read by its own row alone


def csr(dense):
    return sp.csr_array(np.array(dense, bool))


def random_rows(n=300, degree=6, seed=3):
    """A directed graph, some of its columns heavy, with a full diagonal."""
    rng = np.random.default_rng(seed)
    columns = (n * rng.random(n * degree) ** 2).astype(int)
    dense = np.eye(n, dtype=bool)
    dense[rng.integers(n, size=n * degree), columns] = True
    return csr(dense)


def sets(offsets, pins):
    return [set(pins[lo:hi].tolist()) for lo, hi in itertools.pairwise(offsets)]


def counted(offsets, pins, costs):
    """Cost of each set of pins, summed over all nets that have it."""
    found = {}
    for net, cost in zip(map(frozenset, sets(offsets, pins)), costs.tolist()):
        found[net] = found.get(net, 0) + cost
    return found


@pytest.mark.parametrize(("batch", "expected"), [
    ([0, 1, 2, 3, 4], NETS),
    ([0, 1, 4], [{0, 1}, {0, 1, 4}]),
    ([2, 3], [{2, 3}]),
    ([0, 2], []),
    ([1], []),
    ([], []),
    ([4, 0, 1], [{0, 1, 4}, {0, 1}]),  # nets come in the batch's order
])
def test_nets_of_a_batch(batch, expected):
    assert sets(*batch_nets(csr(TINY).tocsc(), np.array(batch, np.int64))) == expected


def test_batches_are_keyed_draws():
    n, size = 50, 10
    batches = [draw_batch(n, size, 7, number) for number in range(2000)]
    assert all(np.all(np.diff(batch) > 0) and batch.size == size for batch in batches)
    np.testing.assert_array_equal(batches[3], draw_batch(n, size, 7, 3))
    assert not np.array_equal(batches[3], draw_batch(n, size, 8, 3))
    # each vertex is in 400 of 2000, with a standard deviation of 18
    assert np.abs(np.bincount(np.concatenate(batches), minlength=n) - 400).max() < 90
    assert draw_batch(n, n, 0, 0).tolist() == list(range(n))
    draw_batch(n, 1, 2**63 - 1, 2**40)


def test_size_of_a_batch():
    assert [batch_size(n) for n in (1, 9, 10, 25, 199_999, 200_000, 10**9)] == [1, 1, 1, 2, 19_999, 20_000, 20_000]


def test_nets_wanted():
    assert [nets_wanted(k) for k in (1, 2, 3, 9, 27, 81)] == [0, 6, 24, 384, 4051, 38_346]
    assert nets_wanted(3, theta=0.25, delta=0.01) == 170  # 4 ln 200 / 0.125 = 169.5


def test_one_batch_of_all_is_the_hypergraph():
    rows = random_rows()
    offsets, pins, costs = deal(rows.tocsc(), 1, 0, 0)
    for found, expected in zip((offsets, pins), column_nets(rows)):
        np.testing.assert_array_equal(found, expected)
    assert set(costs.tolist()) == {1}


def test_a_round_holds_every_entry_once():
    rows = random_rows()
    nets = sets(*deal(rows.tocsc(), 10, 4, 0)[:2])
    left = {column: set(np.flatnonzero(dense)) - {column} for column, dense in enumerate(rows.toarray().T)}
    column = 0
    for net in nets:  # in the order of columns
        while not left[column]:
            column += 1
        assert column in net
        assert len(net) > 1
        assert net - {column} <= left[column]
        left[column] -= net
    assert not any(left.values())
    assert len(nets) > 1000
    assert max(map(len, nets)) > 3


def test_chunks_change_nothing(monkeypatch):
    rows = random_rows()
    whole = stochastic_nets(rows, 30, seed=1)
    for chunk in (1, 7, 500):
        monkeypatch.setattr(stochastic, "CHUNK", chunk)
        for key, array in stochastic_nets(rows, 30, seed=1).items():
            np.testing.assert_array_equal(array, whole[key])


def test_merging_by_hand():
    offsets, pins = np.array([0, 2, 5, 7, 9, 12]), np.array([1, 4, 0, 1, 4, 1, 4, 0, 1, 0, 1, 4])
    assert counted(*merge_nets(offsets, pins, np.array([1, 1, 5, 1, 2]), 5)) == {
        frozenset({1, 4}): 6, frozenset({0, 1, 4}): 3, frozenset({0, 1}): 1}
    assert merge_nets(offsets, pins, np.array([1, 1, 5, 1, 2]), 5)[2].size == 3
    assert merge_nets(np.zeros(1, np.int64), pins[:0], np.zeros(0, np.int64), 5)[0].tolist() == [0]


def test_merging_where_different_nets_have_the_same_sum(monkeypatch):
    class Zeros:
        def __init__(self, key):
            pass

        def random_raw(self, count):
            return np.zeros(count, np.uint64)

    offsets, pins, costs = deal(random_rows().tocsc(), 10, 0, 0)
    monkeypatch.setattr(np.random, "Philox", Zeros)
    assert counted(*merge_nets(offsets, pins, costs, 300)) == counted(offsets, pins, costs)


@pytest.mark.parametrize("k", [1, 3, 9, 27, 40])
def test_bound_is_reached(k):
    nets = stochastic_nets(random_rows(), k)
    first_round = stochastic_nets(random_rows(), 1)["costs"].sum()
    assert nets["costs"].sum() >= nets_wanted(k)
    assert abs(nets["costs"].sum() / max(1, math.ceil(nets_wanted(k) / first_round)) / first_round - 1) < 0.05
    assert len(counted(*nets.values())) == nets["costs"].size


def test_seeds():
    rows = random_rows()
    first, again, other = (stochastic_nets(rows, 9, seed=seed) for seed in (2**63 - 1, 2**63 - 1, 0))
    for key in first:
        np.testing.assert_array_equal(first[key], again[key])
    assert counted(*first.values()) != counted(*other.values())


def test_memory_is_respected():
    rows = random_rows()
    arcs = rows.nnz - 300
    free = stochastic_nets(rows, 60)
    assert free["pins"].size > 4 * arcs
    memory = 4 * arcs * stochastic.BYTES_PER_PIN
    tight = stochastic_nets(rows, 60, memory=memory)
    assert 2 * arcs * stochastic.BYTES_PER_PIN < tight["pins"].size * stochastic.BYTES_PER_PIN + arcs <= memory
    with pytest.raises(InternalError, match=rf"stochastic nets of {arcs} edges .* over the limit of"):
        stochastic_nets(rows, 3, memory=2 * arcs * stochastic.BYTES_PER_PIN - 1)


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_graphs_without_edges(n):
    nets = stochastic_nets(csr(np.eye(n)), n)
    assert nets["offsets"].tolist() == [0]
    assert nets["pins"].size == nets["costs"].size == 0


def test_expected_volume_by_hand():
    part = np.array([0, 0, 1, 1, 0])
    # nets {0 3}, {0 1 2} and {0 1 3 4} are cut; of batch {0, 1, 3}: {0 3}, {0 1} and {0 1 3} of column 4 is not there
    assert expected_volume(csr(TINY), part, 2, [np.arange(5)]) == 3
    assert expected_volume(csr(TINY), part, 2, [np.array([0, 1, 3])]) == 1
    assert expected_volume(csr(TINY), part, 2, [np.arange(5), np.array([0, 1, 3])]) == 2
    assert expected_volume(csr(TINY), part, 2, [np.array([4])]) == 0


def test_expected_volume_by_brute_force():
    rows, k = random_rows(), 7
    dense = rows.toarray()
    part = np.random.default_rng(0).integers(0, k, 300, dtype=np.int32)
    batches = [draw_batch(300, 60, 5, number) for number in range(5)]
    total = 0
    for batch in batches:
        for j in batch:
            total += len({part[i] for i in batch if dense[i, j]} - {part[j]})
    assert expected_volume(rows, part, k, batches) == pytest.approx(total / 5)


def test_batches_and_nets_have_the_volume_of_the_formula():
    """Row j goes to part p if j and one of its d readers there are drawn: s/n (1 - C(n-1-d, s-1) / C(n-1, s-1))."""
    n, size, k = 300, 30, 7
    rows = random_rows(n)
    dense = rows.toarray()
    part = np.random.default_rng(0).integers(0, k, n)
    exact = 0
    for j, p in itertools.product(range(n), range(k)):
        readers = int(dense[part == p, j].sum())
        if p != part[j]:
            exact += size / n * (1 - math.comb(n - 1 - readers, size - 1) / math.comb(n - 1, size - 1))
    batches = [draw_batch(n, size, 1, number) for number in range(2000)]
    assert expected_volume(rows, part, k, batches) == pytest.approx(exact, rel=0.03)
    cut = 0
    for number in range(20):
        nets = sets(*deal(rows.tocsc(), n // size, 1, number)[:2])
        cut += sum(len({part[i] for i in net}) - 1 for net in nets)
    assert cut / 20 * (size / n) ** 2 == pytest.approx(exact, rel=0.03)


def parted(rows, nets, k):
    arrays = {**nets, "weights": np.diff(rows.indptr).astype(np.int64)}
    settings = {"k": k, "epsilon": 0.01, "seed": 0, "threads": 1}
    found = run_engine("mtkahypar", arrays, settings, time_limit=60, memory=None)
    return found[0] if isinstance(found, tuple) else found


def test_less_volume_on_batches_never_seen(data_dir):
    """A whole net is cut once for many pins; of those a mini-batch seldom sees two, so there the fewer pins count."""
    pytest.importorskip("mtkahypar")
    graph, _ = convert.read(data_dir / "planetoid" / "ind.citeseer.graph", "auto")
    rows, k = pattern(graph), 9
    n = rows.shape[0]
    unseen = [draw_batch(n, batch_size(n), 99, number) for number in range(500)]
    full = parted(rows, dict(zip(("offsets", "pins"), column_nets(rows))), k)
    mini = parted(rows, stochastic_nets(rows, k), k)
    assert expected_volume(rows, mini, k, unseen) < 0.95 * expected_volume(rows, full, k, unseen)
    everything = [np.arange(n)]
    assert expected_volume(rows, mini, k, everything) > expected_volume(rows, full, k, everything)


def test_grid_has_one_net_per_edge_in_tiny_batches():
    rows = pattern(grid(20))
    nets = stochastic_nets(rows, 1, size=1)
    sizes = np.diff(nets["offsets"])
    assert nets["costs"].sum() > 0.98 * 4 * 380 / 1.01  # 760 edges, each dealt by both ends
    assert np.mean(sizes == 2) > 0.97
    assert nets["costs"].max() == 2

"""Stochastic nets: their draws, their merging, and the expected volume of mini-batches."""
import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_differ
from small_graphs import grid

from hpgcn import store
from hpgcn.__main__ import main
from hpgcn.datasets import convert
from hpgcn.errors import InternalError, UsageError
from hpgcn.partition import make_partition
from hpgcn.partition.engines.engine_process import run_engine
from hpgcn.partition.rows import stochastic
from hpgcn.partition.rows.partition_model import column_nets, pattern, run_offsets
from hpgcn.partition.rows.stochastic import (
    batch_size,
    deal,
    merge_nets,
    nets_wanted,
    parse_sampling,
    stochastic_nets,
)

N = 300


def random_rows(degree=6, seed=3):
    """Return a random directed graph with a full diagonal and some heavy columns."""
    rng = np.random.default_rng(seed)
    columns = (N * rng.random(N * degree) ** 2).astype(int)
    dense = np.eye(N, dtype=bool)
    dense[rng.integers(N, size=N * degree), columns] = True
    return sp.csr_array(dense)


def sets(sizes, pins):
    return [set(pins[low:high].tolist()) for low, high in itertools.pairwise(run_offsets(sizes))]


def counted(sizes, pins, costs):
    """Return the total cost of each set of pins, summed over all nets with these pins."""
    total = {}
    for net, cost in zip(map(frozenset, sets(sizes, pins)), costs.tolist()):
        total[net] = total.get(net, 0) + cost
    return total


def expected_volume(rows, part, k, batches):
    """Return the mean number of rows that ranks send in a mini-batch of `batches`."""
    parts = sp.csr_array((np.ones(part.size, int), (part, np.arange(part.size))), (k, part.size))
    touched = sum((parts[:, batch] @ rows[batch][:, batch].astype(int)).nnz for batch in batches)
    return touched / len(batches) - np.mean([batch.size for batch in batches])


def draw_batches(n, size, number, seed):
    rng = np.random.default_rng(seed)
    return [rng.permutation(n)[:size] for _ in range(number)]


def test_sizes_of_batches_and_numbers_of_nets():
    sizes = [batch_size(n) for n in (1, 9, 10, 25, 199_999, 200_000, 10**9)]
    assert sizes == [1, 1, 1, 2, 19_999, 20_000, 20_000]
    assert [nets_wanted(k) for k in (1, 2, 3, 9, 27, 81)] == [0, 6, 24, 384, 4051, 38_346]


def test_one_batch_of_all_is_the_hypergraph():
    rows = random_rows()
    sizes, pins, costs = deal(rows.tocsc(), 1, 0, 0)
    for array, expected in zip((run_offsets(sizes), pins), column_nets(rows)):
        np.testing.assert_array_equal(array, expected)
    assert set(costs.tolist()) == {1}


def test_a_round_holds_every_entry_once():
    rows = random_rows()
    nets = sets(*deal(rows.tocsc(), 10, 4, 0)[:2])
    left = {column: set(np.flatnonzero(dense)) - {column}
            for column, dense in enumerate(rows.toarray().T)}
    column = 0
    for net in nets:  # in the order of columns
        while not left[column]:
            column += 1
        assert column in net and len(net) > 1
        assert net - {column} <= left[column]
        left[column] -= net
    assert not any(left.values()) and len(nets) > 1000
    assert max(map(len, nets)) > 3


def test_chunks_change_nothing(monkeypatch):
    rows = random_rows()
    whole = stochastic_nets(rows, 30, seed=1)
    for chunk in (1, 7, 500):
        monkeypatch.setattr(stochastic, "CHUNK", chunk)
        for key, array in stochastic_nets(rows, 30, seed=1).items():
            np.testing.assert_array_equal(array, whole[key])


def test_merging_by_hand():
    sizes = np.array([2, 3, 2, 2, 3])
    pins = np.array([1, 4, 0, 1, 4, 1, 4, 0, 1, 0, 1, 4])
    merged = merge_nets(sizes, pins, np.array([1, 1, 5, 1, 2]), 5)
    assert counted(*merged) == {
        frozenset({1, 4}): 6, frozenset({0, 1, 4}): 3, frozenset({0, 1}): 1}
    assert merged[2].size == 3
    assert merge_nets(sizes[:0], pins[:0], sizes[:0], 5)[0].size == 0


def test_merging_where_different_nets_have_the_same_sum(monkeypatch):
    class Zeros:
        def __init__(self, key):
            pass

        def random_raw(self, count):
            return np.zeros(count, np.uint64)

    nets = deal(random_rows().tocsc(), 10, 0, 0)
    monkeypatch.setattr(np.random, "Philox", Zeros)
    assert counted(*merge_nets(*nets, N)) == counted(*nets)


@pytest.mark.parametrize("k", [1, 9, 40])
def test_bound_is_reached(k):
    nets = stochastic_nets(random_rows(), k)
    drawn = nets["costs"].sum()
    first_round = stochastic_nets(random_rows(), 1)["costs"].sum()
    rounds = max(1, math.ceil(nets_wanted(k) / first_round))
    assert drawn >= nets_wanted(k) and abs(drawn / rounds / first_round - 1) < 0.05
    merged = counted(np.diff(nets["offsets"]), nets["pins"], nets["costs"])
    assert len(merged) == nets["costs"].size


def test_seeds():
    first, again, other = (stochastic_nets(random_rows(), 9, seed=seed)
                           for seed in (2**63 - 1, 2**63 - 1, 0))
    for key in first:
        np.testing.assert_array_equal(first[key], again[key])
    assert_differ(first["pins"], other["pins"])


def test_memory_is_respected():
    rows = random_rows()
    arcs = rows.nnz - N
    assert stochastic_nets(rows, 60)["pins"].size > 4 * arcs
    tight = stochastic_nets(rows, 60, memory=4 * arcs * stochastic.BYTES_PER_PIN)
    assert 2 * arcs < tight["pins"].size + 1 <= 4 * arcs
    with pytest.raises(InternalError, match=rf"nets of {arcs} edges .* over the limit of"):
        stochastic_nets(rows, 3, memory=2 * arcs * stochastic.BYTES_PER_PIN - 1)


@pytest.mark.parametrize("n", [1, 30])
def test_graphs_without_edges(n):
    nets = stochastic_nets(sp.csr_array(np.eye(n, dtype=bool)), n)
    assert nets["offsets"].tolist() == [0]
    assert nets["pins"].size == nets["costs"].size == 0


def test_nets_have_the_volume_of_batches_and_of_the_formula():
    """The cost of stochastic nets, the volume of drawn batches and the exact expectation agree.

    Row j goes to part p if a batch has j and one of its d readers there. The chance is
    s/n (1 - C(n-1-d, s-1) / C(n-1, s-1)).
    """
    size, k = 30, 7
    rows = random_rows()
    dense = rows.toarray()
    part = np.random.default_rng(0).integers(0, k, N)
    exact = 0
    for j, p in itertools.product(range(N), range(k)):
        readers = int(dense[part == p, j].sum())
        if p != part[j]:
            unread = math.comb(N - 1 - readers, size - 1) / math.comb(N - 1, size - 1)
            exact += size / N * (1 - unread)
    batches = draw_batches(N, size, 1000, seed=1)
    assert expected_volume(rows, part, k, batches) == pytest.approx(exact, rel=0.03)
    cut = 0
    for number in range(20):
        nets = sets(*deal(rows.tocsc(), N // size, 1, number)[:2])
        cut += sum(len({part[i] for i in net}) - 1 for net in nets)
    assert cut / 20 * (size / N) ** 2 == pytest.approx(exact, rel=0.03)


@pytest.mark.long
def test_less_volume_on_batches_never_seen(data_dir):
    """On new mini-batches, parts by stochastic nets send less than parts by column nets."""
    pytest.importorskip("mtkahypar")
    graph, _ = convert.read(data_dir / "planetoid" / "ind.citeseer.graph", "auto")
    rows, k = pattern(graph), 9
    n = rows.shape[0]

    def parted(nets):
        arrays = {**nets, "weights": np.diff(rows.indptr).astype(np.int64)}
        settings = {"k": k, "epsilon": 0.01, "seed": 0, "threads": 1}
        return run_engine("mtkahypar", arrays, settings, time_limit=60, memory=None)[0]

    full = parted(dict(zip(("offsets", "pins"), column_nets(rows))))
    mini = parted(stochastic_nets(rows, k))
    unseen = draw_batches(n, batch_size(n), 500, seed=99)
    full_volume, mini_volume = (expected_volume(rows, part, k, unseen) for part in (full, mini))
    assert mini_volume < 0.95 * full_volume
    everything = [np.arange(n)]
    assert expected_volume(rows, mini, k, everything) > expected_volume(rows, full, k, everything)


def test_grid_has_one_net_per_edge_in_tiny_batches(monkeypatch):
    monkeypatch.setattr(stochastic, "batch_size", lambda n: 1)
    nets = stochastic_nets(pattern(grid(20)), 1)
    assert nets["costs"].sum() > 0.98 * 4 * 380 / 1.01  # 760 edges, each dealt by both ends
    assert np.mean(np.diff(nets["offsets"]) == 2) > 0.97 and nets["costs"].max() == 2


def test_arguments_of_algorithm_3():
    """The number of nets follows equation 14 for theta and delta; batches may have any size."""
    assert [nets_wanted(9, *given) for given in ((.5, .1), (.25, .1), (.5, .01))] == [
        384, 1534, 679]
    rows = random_rows()
    plain = stochastic_nets(rows, 9, parse_sampling(N, "vertices:30"), seed=1)
    for key, array in stochastic_nets(rows, 9, seed=1).items():  # a tenth of all vertices
        np.testing.assert_array_equal(plain[key], array)

    # one batch of all vertices: the nets are the columns
    whole = stochastic_nets(rows, 2, parse_sampling(N, f"vertices:{N}"))
    offsets, pins = column_nets(rows)
    assert counted(np.diff(whole["offsets"]), whole["pins"], whole["costs"]) == counted(
        np.diff(offsets), pins, np.ones(N, int))

    # a smaller error needs more nets
    nets = [stochastic_nets(rows, 9, parse_sampling(N, "vertices:30", theta))["costs"].sum()
            for theta in (.5, .1)]
    assert nets[0] < nets_wanted(9, .1) <= nets[1]


def nets_of(rows, batch, part=None, number=0):
    """Return the nets of one round of a sampler, a dict of set of pins to its cost."""
    sampling = parse_sampling(N, batch)
    columns = sp.csc_array(rows)
    columns.sort_indices()
    return counted(*deal(columns, sampling.batches(N), 0, number, sampling.choose(part)))


def columns_of(rows):
    """Return the nets of a full exchange: the rows of each column, if there are two or more."""
    nets = map(frozenset, sets(*(np.diff(column_nets(rows)[0]), column_nets(rows)[1])))
    total = {}
    for net in nets:
        total[net] = total.get(net, 0) + 1
    return total


def test_batches_of_parts_unite_whole_parts():
    rows, part = random_rows(), np.arange(N) % 5

    # one batch of all parts is the full exchange
    assert nets_of(rows, "parts:5:5", part) == columns_of(rows)

    # batches of one part: entries between parts are in no net
    dense = rows.toarray() & (part[:, None] == part[None, :])
    assert nets_of(rows, "parts:1:5", part) == columns_of(sp.csr_array(dense))

    # two batches of two parts and one: which parts they unite differs by round
    pairs = {frozenset(map(int, part[list(net)])) for number in range(20)
             for net in nets_of(rows, "parts:2:5", part, number)}
    assert max(map(len, pairs)) <= 3 and {frozenset({0, 1}), frozenset({2, 4})} <= pairs


def test_rows_of_batches_of_neighbors_read_as_many_as_asked():
    rows = random_rows()
    assert nets_of(rows, f"neighbors:{N}:{N}") == columns_of(rows)

    # each row of at most K others appears once for each, whatever the batches
    degrees = np.diff(rows.indptr) - 1
    for fanout, size in ((1, N), (2, 30)):
        nets = nets_of(rows, f"neighbors:{fanout}:{size}")
        readers = sum((len(net) - 1) * cost for net, cost in nets.items())
        assert readers == np.minimum(degrees, fanout).sum()
    assert nets_of(rows, "neighbors:1:30") != nets_of(rows, "neighbors:1:30", number=1)


@pytest.mark.parametrize("batch", ["parts:2:4", "neighbors:3:40"])
def test_other_samplers_are_recorded(batch):
    made = make_partition(grid(20), 2, method="stochastic", batch=batch, threads=1)
    assert made.batch == batch and made.statistics["nets"] > 100
    again = make_partition(grid(20), 2, method="stochastic", batch=batch, threads=2)
    np.testing.assert_array_equal(made.part, again.part)


@pytest.mark.parametrize("arguments, message", [
    ({"batch": "vertices:0"}, "vertices:B or parts:Q:K or neighbors:K:B, numbers from 1 to 400"),
    ({"batch": "vertices:401"}, "batch = 'vertices:401'"), ({"batch": "parts:3"}, "vertices:B"),
    ({"batch": "parts:3:2"}, "Q at most K"), ({"batch": "neighbors:2:9:9"}, "vertices:B"),
    ({"batch": "vertices:x"}, "vertices:B"), ({"theta": 0}, "theta = 0"),
    ({"theta": math.nan}, "theta = nan"), ({"delta": 1}, "between 0 and 1"),
    ({"delta": -1}, "delta = -1"),
    ({"delta": .1, "method": "random"}, "delta = 0.1: only for method stochastic, not for random")])
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        make_partition(grid(20), 2, **{"method": "stochastic", **arguments})


def test_arguments_are_recorded(tmp_path, capsys):
    """The flags --batch, --theta and --delta are printed and stored with the partition."""
    graph, out = str(tmp_path / "g.h5"), tmp_path / "g.p1.h5"
    store.write_graph(graph, grid(20))
    flags = ["--batch", "vertices:25", "--theta", "0.4", "--delta", "0.2"]
    partition = ["partition", graph, "-k", "1"]
    assert main([*partition, "--method", "stochastic", *flags]) == 0
    assert "batch vertices:25, theta 0.4, delta 0.2" in capsys.readouterr().out
    made = store.load(out).partition
    assert made.batch == "vertices:25"
    assert (made.statistics["theta"], made.statistics["delta"]) == (.4, .2)
    assert made.statistics["nets"] > 400
    main(["inspect", str(out)])
    shown = capsys.readouterr().out
    assert "for mini-batches vertices:25" in shown and "theta 0.4" in shown

    # other methods refuse them, and --parts, and --compare without the method
    for other in (["--method", "block"], ["--compare", "block,random"], ["--parts", "x.npy"]):
        assert main([*partition, "--overwrite", *other, "--theta", "0.4"]) == 2
        assert "only for method stochastic" in capsys.readouterr().err
    assert main([*partition, "--compare", "stochastic,block", *flags]) == 0

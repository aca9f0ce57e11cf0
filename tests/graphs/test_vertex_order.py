"""Row orders in files: found, stored, undone in results, and refused if invalid."""
import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
from commands import run
from graphs import make
from stored_graphs import edit, make_graph

import hpgcn
from hpgcn import store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.config import Config
from hpgcn.datasets import convert
from hpgcn.datasets.generators import generate
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs import adjacency, reordering
from hpgcn.graphs.reordering import ORDERS, find_order, misses
from hpgcn.kernels import orders


def shuffled_grid(side, seed=0):
    cells = np.random.default_rng(seed).permutation(side * side).reshape(side, side)
    ends = np.concatenate([np.stack([cells[:, 1:], cells[:, :-1]], -1).reshape(-1, 2),
                           np.stack([cells[1:], cells[:-1]], -1).reshape(-1, 2)])
    A = sp.coo_array((np.ones(len(ends)), ends.T), shape=(side * side,) * 2)
    return hpgcn.Graph.from_scipy(A, symmetrize=True)


def cliques(count, size, seed=0):
    """Return a graph of cliques, linked in a ring, with shuffled vertices."""
    n = count * size
    own = np.arange(n).reshape(count, size)
    pairs = np.stack(np.broadcast_arrays(own[:, :, None], own[:, None, :]), -1).reshape(-1, 2)
    ring = np.stack([own[:, 0], np.roll(own[:, 0], -1)], -1)
    ends = np.random.default_rng(seed).permutation(n)[np.concatenate([pairs, ring])]
    ends = ends[ends[:, 0] != ends[:, 1]]
    A = sp.coo_array((np.ones(len(ends)), ends.T), shape=(n, n))
    return hpgcn.Graph.from_scipy(A, symmetrize=True)


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("graph", [
    make(), make(directed=True, weighted=True), cliques(5, 4),
    hpgcn.Graph.from_scipy(sp.csr_array((1, 1))), hpgcn.Graph.from_scipy(sp.csr_array((4, 4)))],
    ids=["made", "directed", "cliques", "one", "none"])
def test_an_order_holds_each_vertex_once(graph, name):
    order, note = find_order(graph, name)
    assert order.dtype == np.int64
    np.testing.assert_array_equal(np.sort(order), np.arange(graph.num_rows))
    assert note == f"vertices ordered: {name}"


def test_breadth_first_of_a_path():
    path = np.array([3, 0, 4, 1, 2])  # 3 - 0 - 4 - 1 - 2
    A = sp.coo_array((np.ones(4), (path[1:], path[:-1])), shape=(5, 5))
    graph = hpgcn.Graph.from_scipy(A, symmetrize=True)
    assert ORDERS["breadth"](graph).tolist() == [2, 1, 4, 0, 3]


def test_communities_stay_together():
    order = ORDERS["communities"](graph := cliques(40, 9))
    of_row = np.random.default_rng(0).permutation(graph.num_rows)
    clique = np.empty(graph.num_rows, int)
    clique[of_row] = np.arange(graph.num_rows) // 9
    runs = 1 + np.count_nonzero(np.diff(clique[order]))
    assert runs <= 60  # 40 where each is in one piece


def test_hubs_come_first_and_by_degree():
    star = sp.lil_array((200, 200))
    star[150, :100] = star[151, 100:150] = star[5, 7] = 1
    order = ORDERS["breadth"](hpgcn.Graph.from_scipy(star.tocsr(), symmetrize=True))
    assert order[:2].tolist() == [150, 151]


def test_far_reads_by_hand():
    indptr, indices = np.array([0, 2, 4, 5, 7]), np.array([1, 3, 1, 2, 3, 0, 1], np.int32)
    spans = np.array([2, 4])
    found = orders.far_reads(indptr, indices, np.arange(4), np.zeros(1, np.int64), 7, spans, 2, 1)
    # reads 1 3 1 2 3 0 1: row 1 again after 2 and 4, 3 after 3; groups 0 1 0 1 1 0 0, spans of 1
    assert found.tolist() == [6, 4, 5, 7]


def test_a_sample_counts_about_what_all_do(monkeypatch):
    graph = generate.generate("rmat", scale=13, edge_factor=16, features=0, classes=0)
    order = np.arange(graph.num_rows)
    monkeypatch.setattr(reordering, "SPANS", np.array([128, 512]))
    whole = misses(graph, order)
    monkeypatch.setattr(reordering, "SAMPLE", 1 << 10)
    assert misses(graph, order) == pytest.approx(whole, rel=0.1)


def test_auto_takes_what_misses_least(monkeypatch):
    small = shuffled_grid(20)
    assert find_order(small) == (None, "")
    assert find_order(small, "none") == (None, "")
    monkeypatch.setattr(reordering, "SPANS", np.array([64, 512]))
    monkeypatch.setattr(reordering, "SMALL", 1)
    order, note = find_order(shuffled_grid(60))
    assert "breadth" in note or "communities" in note
    ordered = shuffled_grid(60).permuted(order)
    assert find_order(ordered)[0] is None
    order, note = find_order(cliques(100, 30))
    assert note.startswith("vertices ordered: communities, for ")
    assert misses(cliques(100, 30), order) < .5 * misses(cliques(100, 30), np.arange(3000))
    with pytest.raises(UsageError, match="order = 'best': expected one of auto, none, degree, rcm"):
        find_order(small, "best")


@pytest.mark.parametrize("directed", [False, True])
def test_compiled_and_scipy_reorder_alike(monkeypatch, directed):
    graph = make(directed=directed)
    order = np.random.default_rng(1).permutation(graph.num_rows)
    ours = graph.permuted(order)
    monkeypatch.setattr(adjacency, "LARGE", 0)
    compiled = graph.permuted(order)
    for name in ("indptr", "indices", "vertex", "features"):
        np.testing.assert_array_equal(getattr(compiled, name), getattr(ours, name))


@pytest.mark.parametrize("options", [{}, {"weighted": True, "directed": True}, {"sparse": True}])
def test_users_see_the_original_order(tmp_path, options):
    graph = make(**options)
    order, _ = find_order(graph, "rcm")
    store.write_graph(tmp_path / "g.h5", graph, order=order)
    store.write_graph(tmp_path / "plain.h5", graph)
    with store.load(tmp_path / "g.h5") as stored, store.load(tmp_path / "plain.h5") as plain:
        assert stored.ordered and not plain.ordered
        assert stored.header == plain.header
        found = stored.read()
        assert (found.adjacency != graph.adjacency).nnz == 0
        assert abs(found.features - graph.features).sum() == 0
        np.testing.assert_array_equal(stored.labels, graph.labels)
        slab = stored.slab(10, 50)
        np.testing.assert_array_equal(slab.vertex, order[10:50])
        np.testing.assert_array_equal(slab.labels, graph.labels[order[10:50]])
        assert "ordered for caches" in describe_file(tmp_path / "g.h5", verify=True)
    assert "ordered" not in describe_file(tmp_path / "plain.h5")


@pytest.mark.parametrize("damage, message", [
    (lambda perm: perm.__setitem__(5, perm[9]), r"order/perm\[9\] is a vertex that another row is"),
    (lambda perm: perm.__setitem__(5, 60), r"order/perm\[5\] is outside 0\.\.59"),
    (lambda perm: perm.__setitem__(5, -1), r"order/perm\[5\] is outside 0\.\.59")])
def test_what_is_no_order_is_refused(tmp_path, damage, message):
    graph = make_graph()
    path = tmp_path / "g.h5"
    store.write_graph(path, graph, order=np.arange(60)[::-1])

    def change(file):
        perm = file["order/perm"][()]
        damage(perm)
        file["order/perm"][:] = perm

    edit(path, change)
    with store.load(path) as stored, pytest.raises(DataError, match=message):
        stored.read()
    with pytest.raises(DataError, match=message):
        hpgcn.train(path, Config(epochs=1))


@pytest.mark.long
def test_a_run_is_the_same_but_for_rounding(tmp_path):
    graph = make(n=400, c=3)
    store.write_graph(tmp_path / "plain.h5", graph)
    store.write_graph(tmp_path / "g.h5", graph, order=find_order(graph, "communities")[0])
    for dtype, bound in (("float64", 1e-12), ("float32", 2e-6)):
        config = Config(epochs=4, dtype=dtype, dropout=0.5, hidden=8)
        ours, theirs = (hpgcn.train(tmp_path / name, config) for name in ("g.h5", "plain.h5"))
        np.testing.assert_allclose([each["loss"] for each in ours.history],
                                   [each["loss"] for each in theirs.history], rtol=bound)
        found, expected = (hpgcn.predict(tmp_path / "g.h5", each)["logits"]
                           for each in (ours, theirs))
        np.testing.assert_allclose(found, expected, rtol=0, atol=100 * bound)


def test_converted_files_are_ordered(tmp_path, monkeypatch):
    grid = shuffled_grid(40)
    np.savetxt(tmp_path / "g.txt", np.stack(grid.adjacency.tocoo().coords, 1), fmt="%d")
    monkeypatch.setattr(reordering, "SMALL", 1000)
    monkeypatch.setattr(reordering, "SPANS", np.array([64, 512]))
    notes = convert.convert(tmp_path / "g.txt", tmp_path / "g.h5")
    assert notes[-1].startswith("vertices ordered: ")
    assert convert.convert(tmp_path / "g.txt", tmp_path / "none.h5", order="none")[-1] != notes[-1]
    with store.load(tmp_path / "g.h5") as ordered, store.load(tmp_path / "none.h5") as plain:
        assert ordered.ordered and not plain.ordered
        assert ordered.read().checksum() == plain.read().checksum()
    monkeypatch.setattr(reordering, "ENTRY_BYTES", 1 << 40)
    notes = convert.convert(tmp_path / "g.txt", tmp_path / "large.h5")
    assert notes[-1].startswith("vertices keep the order of the input: reordering them needs ")
    with store.load(tmp_path / "large.h5") as large:
        assert not large.ordered
    with pytest.raises(UsageError, match="order = 'x'"):
        convert.convert(tmp_path / "g.txt", tmp_path / "x.h5", order="x")


def test_generated_and_converted_on_the_command_line(tmp_path):
    run("generate", "sbm", "g.h5", "--scale", "8", "--order", "communities", cwd=tmp_path)
    run("generate", "sbm", "g.txt", "--scale", "8", cwd=tmp_path)
    run("convert", "g.txt", "c.h5", "--order", "rcm", "--symmetrize", cwd=tmp_path)
    run("partition", "g.h5", "-k", "2", "--method", "block", cwd=tmp_path)
    plain = generate.generate("sbm", scale=8)
    with store.load(tmp_path / "g.h5") as found:
        assert found.ordered
        assert found.read().checksum() == plain.checksum()
    with store.load(tmp_path / "c.h5") as found:
        assert found.ordered
        assert (found.adjacency != plain.adjacency).nnz == 0
    with store.load(tmp_path / "g.p2.h5") as parts:  # rows of the original order
        assert np.diff(parts.vertex_partition.part).min() == 0
        assert parts.read().in_original_order().checksum() == plain.checksum()


def test_the_parser_knows_all_orders():
    from hpgcn.cli.data_arguments import VERTEX_ORDERS

    assert tuple(ORDERS) == VERTEX_ORDERS


def test_edges_on_disk_keep_their_order(tmp_path):
    generate.write_edge_list("rmat", tmp_path / "g.txt", scale=14, edge_factor=16)
    notes = convert.convert(tmp_path / "g.txt", tmp_path / "g.h5", symmetrize=True,
                            memory=24 << 20)
    assert notes[-1].startswith("vertices keep the order of the input: reordering them needs ")


def test_a_graph_may_be_replaced_by_its_rows():
    graph = make()
    order, _ = find_order(graph, "degree")
    assert dataclasses.replace(graph).permuted(order).in_original_order().checksum() == \
        graph.checksum()

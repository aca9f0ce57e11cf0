"""Edges listed several times are merged with a warning, or counted as PyG counts them."""
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from training import settings_of

import hpgcn
from hpgcn.config import Config
from hpgcn.datasets import convert
from hpgcn.errors import DataError, DataWarning, UsageError
from hpgcn.graphs.graph import Graph

N, F, C = 30, 5, 3


def multigraph(*, weighted=False, directed=True):
    """Return random edges (2, e) with duplicates and repeated loops, and weights (e,) or None."""
    rng = np.random.default_rng(4)
    edges = rng.integers(0, N, (2, 90))
    again = edges[:, rng.integers(0, 90, 40)]
    loops = np.repeat(rng.integers(0, N, 8), [1, 2, 3, 1, 2, 1, 1, 4])
    edges = np.concatenate([edges, again, np.stack([loops, loops])], axis=1)
    edges = edges[:, rng.permutation(edges.shape[1])]
    if not directed:
        edges = np.concatenate([edges, edges[::-1]], axis=1)
    weights = rng.integers(1, 9, edges.shape[1]) / 4 if weighted else None
    return edges, weights


def graph_of(edges, weights, **options):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, F)).astype(np.float32)
    y = rng.integers(0, C, N)
    split = np.arange(N) % 3
    masks = tuple(split == k for k in range(3))
    return Graph.from_edge_index(edges, weights, X, y, masks, **options)


MODELS = [  # settings, weighted, duplicates that equal PyG's layers
    ({"model": "gcn"}, False, "sum-edges"), ({"model": "gcn"}, True, "sum-edges"),
    ({"model": "gcn", "norm_adj": "in"}, True, "sum-edges"),
    ({"model": "sgc", "hops": 2, "layers": 1}, False, "sum-edges"),
    ({"model": "appnp", "hops": 3}, True, "sum-edges"), ({"model": "sage"}, False, "sum"),
    ({"model": "gin"}, False, "sum")]


@pytest.mark.long
@pytest.mark.parametrize("settings, weighted, duplicates", MODELS, ids=str)
def test_models_equal_those_of_pyg_on_the_edges_as_listed(tmp_path, monkeypatch, settings,
                                                          weighted, duplicates):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from hpgcn.interop.torch import export_pyg, predict_pyg, save_state_dict

    monkeypatch.chdir(tmp_path)
    directed = settings.get("norm_adj") == "in" or settings["model"] in ("sage", "gin")
    edges, weights = multigraph(weighted=weighted, directed=directed)
    if not directed and weighted:
        weights = np.tile(weights[:weights.size // 2], 2)
    graph = graph_of(edges, weights, duplicates=duplicates)
    result = hpgcn.train(graph, Config(epochs=2, hidden=4, **{"layers": 2, **settings}))
    state, code = export_pyg(result)
    save_state_dict("model.pt", state)
    made = {}
    exec(code, made)
    inputs = [torch.from_numpy(graph.features), torch.from_numpy(edges)]
    if weighted:
        inputs.append(torch.from_numpy(weights).float())
    expected = made["model"](*inputs).detach().numpy()
    np.testing.assert_allclose(hpgcn.predict(graph, result)["logits"], expected, atol=2e-6)
    if settings.keys() <= {"model"}:
        np.testing.assert_allclose(predict_pyg(graph, state)["logits"], expected, atol=2e-6)
    merged = graph_of(edges, weights, duplicates="merge")
    assert np.abs(hpgcn.predict(merged, result)["logits"] - expected).max() > 1e-3


def test_attention_reads_each_edge_once_and_says_so(caplog):
    pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from hpgcn.interop.torch import export_pyg, predict_pyg

    edges, _ = multigraph()
    counted, merged = (graph_of(edges, None, duplicates=each) for each in ("sum", "merge"))
    result = hpgcn.train(counted, Config(epochs=1, dtype="float64", **settings_of("gat")))
    assert "weights (numbers of parallel edges), which attention ignores" in caplog.text
    state, _ = export_pyg(result)
    with pytest.raises(DataError, match="has repeated edges"):
        predict_pyg(counted, state)
    np.testing.assert_array_equal(predict_pyg(merged, state)["logits"],
                                  predict_pyg(graph_of(edges, None, duplicates="merge"),
                                              state)["logits"])


TWICE = np.array([[0, 0, 1, 2, 2, 2], [1, 1, 2, 2, 2, 0]])  # an edge and a loop, each twice
WEIGHTS = np.array([1, 2, 3, 4, 5, 6])


def rows(entries):
    return sp.csr_array(([w for *_, w in entries], tuple(zip(*((v, u) for u, v, _ in entries)))),
                        shape=(3, 3)).toarray().tolist()


CASES = [  # weights, duplicates, entries u -> v, expected message
    (None, None, [(0, 1, 1), (1, 2, 1), (2, 2, 1), (2, 0, 1)],
     "2 edges are listed before and count once: duplicates='sum' counts each"),
    (None, "merge", [(0, 1, 1), (1, 2, 1), (2, 2, 1), (2, 0, 1)], None),
    (None, "sum", [(0, 1, 2), (1, 2, 1), (2, 2, 2), (2, 0, 1)],
     "1 self loops are listed before and summed: duplicates='sum-edges' takes the last, as"),
    (None, "sum-edges", [(0, 1, 2), (1, 2, 1), (2, 2, 1), (2, 0, 1)], None),
    (WEIGHTS, None, [(0, 1, 3), (1, 2, 3), (2, 2, 9), (2, 0, 6)],
     "2 edges are listed before: their weights are summed"),
    (WEIGHTS, "sum", [(0, 1, 3), (1, 2, 3), (2, 2, 9), (2, 0, 6)], "1 self loops"),
    (WEIGHTS, "sum-edges", [(0, 1, 3), (1, 2, 3), (2, 2, 5), (2, 0, 6)], None)]


@pytest.mark.parametrize("weights, duplicates, entries, said", CASES, ids=str)
def test_by_hand_in_python_and_from_files(tmp_path, weights, duplicates, entries, said):
    with warnings.catch_warnings(record=True, action="always") as caught:
        graph = Graph.from_edge_index(TWICE, weights, duplicates=duplicates)
    messages = [str(each.message) for each in caught if each.category is DataWarning]
    assert [message.startswith(f"graph: {said}") for message in messages][:1] == [True] * bool(said)
    assert graph.adjacency.toarray().tolist() == rows(entries)
    counted = weights is None and duplicates in ("sum", "sum-edges")
    assert graph.header.parallel_edges == counted
    columns = [*TWICE, np.ones(6, int) if weights is None else weights]
    lines = ["source,target,w", *(",".join(map(str, line)) for line in zip(*columns))]
    (tmp_path / "g.csv").write_text("\n".join(lines))
    np.savez(tmp_path / "g.npz", edge_index=TWICE, edge_weight=columns[2])
    for name, options in (("g.csv", {}), ("g.csv", {"memory": 1}), ("g.npz", {})):
        path = tmp_path / f"{name}.h5"
        if "memory" in options:  # sorted on disk
            options = {"memory": 2 << 20}
        notes = convert.convert(tmp_path / name, path, duplicates=duplicates, overwrite=True,
                                order="none", **options)
        with hpgcn.load(path) as stored:
            assert stored.read().adjacency.toarray().tolist() == rows(entries)
            assert stored.header.parallel_edges == counted
        if said:
            words = said.replace("duplicates='sum'", "--duplicates sum")
            words = words.replace("duplicates='sum-edges'", "--duplicates sum-edges")
            assert any(note.startswith(words) for note in notes)


def test_lists_sorted_on_disk_equal_those_in_memory(tmp_path):
    edges, weights = multigraph(weighted=True)
    edges = np.tile(edges, 40)
    weights = np.tile(weights, 40) + np.arange(edges.shape[1]) / 1024
    for w, name in ((weights, "w"), (np.ones(edges.shape[1]), "ones")):
        path = tmp_path / f"{name}.csv"
        np.savetxt(path, np.column_stack([*edges, w]), "%d,%d,%.10f", header="u,v,w", comments="")
        for duplicates in ("sum", "sum-edges"):
            graphs = []
            for memory in (1 << 30, 100_000):
                out = tmp_path / f"{name}{duplicates}{memory}.h5"
                convert.convert(path, out, duplicates=duplicates, memory=memory, order="none")
                with hpgcn.load(out) as stored:
                    graphs.append(stored.read())
            assert graphs[0].checksum() == graphs[1].checksum()
            assert graphs[0].header.parallel_edges == graphs[1].header.parallel_edges == (
                name == "ones")


def test_multigraphs_of_other_libraries_and_matrices():
    A = sp.coo_array((np.ones(3), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    with pytest.warns(DataWarning, match="mine: 1 edges are listed before and count once"):
        Graph.from_scipy(A, name="mine")
    assert Graph.from_scipy(A, duplicates="sum").adjacency.toarray().tolist() == [[0, 2], [1, 0]]
    networkx = pytest.importorskip("networkx")
    G = networkx.MultiGraph([(0, 1), (0, 1), (1, 1)])
    with pytest.warns(DataWarning, match="2 edges are listed before"):
        hpgcn.from_networkx(G)
    graph = hpgcn.from_networkx(G, duplicates="sum")
    assert graph.adjacency.toarray().tolist() == [[0, 2], [2, 1]]
    with pytest.raises(UsageError, match="duplicates='twice': expected merge, sum, sum-edges"):
        hpgcn.from_networkx(G, duplicates="twice")


def test_weights_that_are_0_or_too_large_are_counted():
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    with pytest.warns(DataWarning, match="removed 2 edges of weight 0"):
        assert Graph.from_edge_index(edges, [0, 0, 1]).header.num_edges == 1
    explicit = sp.csr_array((np.array([0.0, 1]), [1, 0], [0, 1, 2]))
    with pytest.warns(DataWarning, match="removed 1 edges of weight 0"):
        Graph.from_scipy(explicit)
    with pytest.warns(DataWarning, match="1 edges removed whose weights sum to 0"):
        Graph.from_edge_index([[0, 0, 1], [1, 1, 0]], [1, -1, 2], duplicates="sum")
    times = np.array([1600000001, 1600000002, 1 << 24])
    with pytest.warns(DataWarning, match="2 weights are beyond 2.24 and not kept exactly"):
        Graph.from_edge_index(edges, times)
    with warnings.catch_warnings(action="error"):
        Graph.from_edge_index(edges, times, unweighted=True)
        Graph.from_edge_index(edges, [0.1, 1 << 24, -1e-30])


@pytest.mark.parametrize("memory", [1 << 30, 2 << 20])
def test_weights_that_are_too_large_in_a_file(tmp_path, memory):
    (tmp_path / "g.csv").write_text("u,v,w\n0,1,1600000001\n1,2,1\n")
    notes = convert.convert(tmp_path / "g.csv", tmp_path / "g.h5", memory=memory)
    assert any(note.startswith("1 weights are beyond 2^24 and not kept") for note in notes)


@pytest.mark.parametrize("memory", [1 << 30, 2 << 20])
def test_negative_weights_that_symmetrizing_loses_are_counted(tmp_path, memory):
    edges, weights = [[0, 1, 2, 0], [1, 2, 1, 2]], [-1, -2, 3, 4]
    with pytest.warns(DataWarning, match="1 edges of negative weight dropped: max"):
        graph = Graph.from_edge_index(edges, weights, symmetrize=True)
    assert graph.adjacency.toarray().tolist() == [[0, 0, 4], [0, 0, 3], [4, 3, 0]]
    lines = [f"{v},{u},{w}" for u, v, w in zip(*edges, weights)]
    (tmp_path / "g.csv").write_text("\n".join(["u,v,w", *lines]))
    notes = convert.convert(tmp_path / "g.csv", tmp_path / "g.h5", symmetrize=True, memory=memory)
    assert any(note.startswith("1 edges of negative weight dropped") for note in notes)
    assert "1 edges added to make the adjacency symmetric" in notes
    with hpgcn.load(tmp_path / "g.h5") as stored:
        assert stored.read().adjacency.toarray().tolist() == graph.adjacency.toarray().tolist()

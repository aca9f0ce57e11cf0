"""Graphs of PyG, DGL and NetworkX: direction of edges, round trips and refusals."""
import importlib.util
import re
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import are_equal

import hpgcn
from hpgcn import store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.errors import DataError, DataWarning, MissingError
from hpgcn.graphs.graph import Graph
from hpgcn.partition import make_partition
from hpgcn.runtime.advice import install_command

EDGES = np.array([[0, 1, 2, 3, 0], [1, 2, 0, 3, 2]])  # source, target; vertex 4 is isolated
WEIGHTS = np.array([1.5, 2, 3, 4, 0.5], np.float32)
N = 5


def some_graph(*, weighted=True, directed=True, sparse=False, multilabel=False, splits=1, ids=None):
    rng = np.random.default_rng(3)
    A = sp.coo_array((WEIGHTS if weighted else np.ones(5), (EDGES[1], EDGES[0])), shape=(N, N))
    X = rng.normal(size=(N, 3)) * (rng.random((N, 3)) < 0.6)
    y = rng.integers(0, 2, (N, 2)) if multilabel else np.array([0, 1, 2, -1, 1])
    masks = {"train": [0, 1], "val": [2], "test": [4]}
    if splits > 1:
        masks = {"train": np.eye(N, splits) == 1, "val": np.eye(N, splits, 1) == 1,
                 "test": np.zeros((N, splits), bool)}
    return Graph.from_scipy(A, sp.csr_array(X) if sparse else X, y, masks,
                            symmetrize=not directed, original_ids=ids)


def assert_same(graph, other, *, ids=True):
    np.testing.assert_array_equal(graph.adjacency.toarray(), other.adjacency.toarray())
    assert graph.checksum() == other.checksum()
    for name in ("num_nodes", "num_edges", "num_features", "num_classes", "directed", "all_ones",
                 "multilabel", "sparse_features", "num_splits"):
        assert getattr(graph.header, name) == getattr(other.header, name), name
    if ids:
        assert (graph.original_ids is None) == (other.original_ids is None)
        assert graph.original_ids is None or are_equal(graph.original_ids, other.original_ids)


KINDS = [{}, {"weighted": False}, {"directed": False}, {"multilabel": True}, {"splits": 3},
         {"ids": np.array([7, 3, 9, 0, 1])}, {"ids": np.array(["a", "b", "é", "d", ""])}]


@pytest.mark.parametrize("options", [*KINDS, {"sparse": True}], ids=str)
@pytest.mark.parametrize("library", ["scipy", "pyg", "networkx", "dgl"])
def test_round_trip(library, options):
    pytest.importorskip({"pyg": "torch_geometric"}.get(library, library))
    graph = some_graph(**options)
    if library == "scipy":
        assert_same(graph, Graph.from_scipy(*graph.to_scipy()), ids=False)
        return
    there = getattr(hpgcn, f"to_{library}")(graph)
    args = ()
    if library == "networkx":
        args = "features", "label"
    back = getattr(hpgcn, f"from_{library}")(there, *args)
    if options.get("sparse") and library != "pyg":  # DGL and NetworkX have no sparse features
        X = sp.csr_array(back.features)
        back = Graph.from_scipy(back.adjacency, X, back.labels, back.masks)
    named = graph.original_ids is not None and graph.original_ids.dtype.kind == "U"
    assert_same(graph, back, ids=not (library == "dgl" and named))


def test_from_one_library_into_the_next():
    pytest.importorskip("torch_geometric")
    pytest.importorskip("networkx")
    graph = some_graph()
    through = hpgcn.from_pyg(hpgcn.to_pyg(graph))
    through = hpgcn.from_networkx(hpgcn.to_networkx(through), "features", "label")
    assert_same(graph, hpgcn.from_pyg(hpgcn.to_pyg(through)))


def test_a_partitioned_graph_goes_out_in_its_original_order():
    pytest.importorskip("networkx")
    graph = some_graph(ids=np.array(["a", "b", "c", "d", "e"]))
    moved = graph.permuted(np.array([4, 2, 0, 1, 3]))
    assert_same(graph, Graph.from_scipy(*moved.to_scipy(), original_ids=list("abcde")))
    assert_same(graph, hpgcn.from_networkx(hpgcn.to_networkx(moved), "features", "label"))
    with pytest.raises(DataError, match=r"only rows 1..3 are in memory, but all 5 are needed"):
        graph.slab(1, 3).to_scipy()


class TestPyg:
    @pytest.fixture(autouse=True)
    def _library(self):
        self.torch = pytest.importorskip("torch")
        self.Data = pytest.importorskip("torch_geometric.data").Data

    def test_a_tensor_without_values(self):
        with pytest.raises(DataError, match="on the device meta has no values"):
            hpgcn.from_pyg(self.data(x=self.torch.ones(N, 1, device="meta")))

    def data(self, **more):
        fields = {"edge_index": self.torch.from_numpy(EDGES), "num_nodes": N}
        return self.Data(**(fields | more))

    def test_the_target_aggregates_the_source(self):
        """The product with a PyG graph's adjacency equals PyG's own sum over incoming edges."""
        pyg_nn = pytest.importorskip("torch_geometric.nn")
        weights = self.torch.from_numpy(WEIGHTS)
        graph = hpgcn.from_pyg(self.data(edge_weight=weights))
        X = self.torch.arange(10.0).reshape(N, 2)
        conv = pyg_nn.SimpleConv(aggr="sum")
        expected = conv(X, self.torch.from_numpy(EDGES), weights).numpy()
        np.testing.assert_allclose(graph.adjacency @ X.numpy(), expected)

    def test_its_own_gcn_norm_on_what_comes_out(self):
        norm = pytest.importorskip("torch_geometric.nn.conv.gcn_conv").gcn_norm
        data = hpgcn.to_pyg(some_graph(directed=False))
        assert data.is_coalesced() and data.is_undirected()
        index, weight = norm(data.edge_index, data.edge_weight, N)
        assert index.shape[1] == weight.numel()

    @pytest.mark.parametrize("name, shape, weighted", [
        ("edge_weight", (5,), True), ("edge_weight", (5, 1), True), ("edge_attr", (5, 1), False),
        ("edge_attr", (5,), False), ("edge_attr", (5, 3), False)])
    @pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16", "float16", "grad"])
    def test_weights(self, name, shape, weighted, kind):
        weights = self.torch.from_numpy(WEIGHTS)
        if kind == "grad":
            weights.requires_grad_()
        else:
            weights = weights.to(getattr(self.torch, kind))
        if shape == (5, 3):
            weights = self.torch.stack([weights] * 3, 1)
        with nullcontext() if weighted else pytest.warns(DataWarning, match="edge_attr .*not read"):
            graph = hpgcn.from_pyg(self.data(**{name: weights.reshape(shape)}))
        expected = sp.coo_array((WEIGHTS if weighted else np.ones(5), (EDGES[1], EDGES[0])),
                                shape=(N, N))
        np.testing.assert_array_equal(graph.adjacency.toarray(), expected.toarray())

    @pytest.mark.parametrize("layout", ["to_sparse_csr", "to_sparse_csc", "to_sparse_coo"])
    def test_adj_t_in_place_of_edges(self, layout):
        graph = some_graph(sparse=True)
        data = hpgcn.to_pyg(graph)
        adj_t = self.torch.tensor(graph.adjacency.toarray()).to_sparse_coo()
        sparse = self.Data(adj_t=getattr(adj_t, layout)(), x=getattr(data.x.to_dense(), layout)(),
                           y=data.y, train_mask=data.train_mask, val_mask=data.val_mask,
                           test_mask=data.test_mask)
        assert_same(graph, hpgcn.from_pyg(sparse))

    def test_what_its_own_transform_makes(self):
        transforms = pytest.importorskip("torch_geometric.transforms")
        graph = some_graph()
        made = transforms.ToSparseTensor(attr="edge_weight")(hpgcn.to_pyg(graph))
        assert made.edge_index is None
        assert_same(graph, hpgcn.from_pyg(made))

    def test_a_tensor_of_torch_sparse(self):
        adj_t = SimpleNamespace(
            coo=lambda: (self.torch.tensor([1, 2]), self.torch.tensor([0, 1]), None),
            sparse_sizes=lambda: (3, 3), storage=None)
        graph = hpgcn.from_pyg(SimpleNamespace(adj_t=adj_t))
        assert graph.adjacency.toarray().tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]

    def test_its_own_index(self):
        EdgeIndex = pytest.importorskip("torch_geometric").EdgeIndex
        graph = hpgcn.from_pyg(self.data(edge_index=EdgeIndex(EDGES, sparse_size=(N, N))))
        assert graph.header.num_edges == 5

    def test_options_replace_what_is_there(self):
        graph = hpgcn.from_pyg(hpgcn.to_pyg(some_graph()), masks=([3], [], []), labels=[0] * N,
                               symmetrize=True, name="mine")
        assert not graph.header.directed and graph.header.name == "mine"
        assert graph.masks["train"].nonzero()[0].tolist() == [3]

    def test_a_graph_of_edges_alone(self):
        graph = hpgcn.from_pyg(self.Data(edge_index=self.torch.from_numpy(EDGES)))
        assert graph.header.num_nodes == 4 and graph.features is None and graph.masks is None
        assert hpgcn.from_pyg(self.data()).header.num_nodes == N

    @pytest.mark.parametrize("fields, message", [
        ({"edge_index": None}, "a Data without edge_index or adj_t.*dataset.0."),
        ({"edge_index": [[0, 9], [1, 1]]}, r"edge_index row 0: entry 1 is 9, expected 0\.\.4"),
        ({"edge_index": [[-1], [1]]}, "entry 0 is -1"),
        ({"edge_index": [[0.5], [1]]}, "dtype float32"),
        ({"edge_weight": [1, 2]}, r"edge_weight: shape \(2,\), expected \(5,\)"),
        ({"edge_weight": [[1, 2]] * 5}, "edge_weight"),
        ({"edge_weight": [1, 2, float("nan"), 1, 1]}, "edge_weight at 2 is nan"),
        ({"x": [[1.0]] * 4}, r"features have shape \(4, 1\)"),
        ({"x": [[float("inf")]] * 5}, r"feature at \(0, 0\) is inf"),
        ({"y": [0]}, "labels have shape"), ({"y": [0.5] * 5}, "label of vertex 0 is 0.5"),
        ({"y": [0] * 5, "train_mask": [True] * 4}, "train mask"),
        ({"train_mask": [True] * 5, "test_mask": [True] * 5}, "vertex 0 is in both"),
    ])
    def test_refusals(self, fields, message):
        fields = {key: value if value is None else self.torch.tensor(value)
                  for key, value in fields.items()}
        with pytest.raises(DataError, match=message):
            hpgcn.from_pyg(self.data(**fields))

    def test_several_types_are_refused_with_a_way(self):
        hetero = pytest.importorskip("torch_geometric.data").HeteroData()
        hetero["a"].x = self.torch.ones(2, 1)
        hetero["b"].x = self.torch.ones(1, 1)
        hetero["a", "to", "b"].edge_index = self.torch.tensor([[0, 1], [0, 0]])
        with pytest.raises(DataError, match=r"a HeteroData.*to_homogeneous\(\)"):
            hpgcn.from_pyg(hetero)
        with pytest.warns(DataWarning, match="edge_type is not read"):
            assert hpgcn.from_pyg(hetero.to_homogeneous()).header.num_nodes == 3

    def test_it_trains(self):
        data = hpgcn.to_pyg(some_graph(ids=np.array(list("abcde"))))
        graph = hpgcn.from_pyg(data)
        result = hpgcn.train(graph, hpgcn.Config(epochs=2, hidden=4))
        assert hpgcn.predict(graph, result)["original_ids"].tolist() == list("abcde")


class TestNetworkx:
    @pytest.fixture(autouse=True)
    def _library(self):
        self.nx = pytest.importorskip("networkx")

    @pytest.mark.parametrize("kind", ["Graph", "DiGraph", "MultiGraph", "MultiDiGraph"])
    @pytest.mark.parametrize("weighted", [True, False])
    def test_against_its_own_matrix(self, kind, weighted):
        G = getattr(self.nx, kind)()
        for k, (u, v) in enumerate(["ab", "bc", "cc", "ab", "da", "ba"]):
            G.add_edge(u, v, **({"weight": k + 0.5} if weighted else {}))
        G.add_node("alone")
        graph = hpgcn.from_networkx(G)
        expected = self.nx.to_numpy_array(G).T  # rows of NetworkX are starts
        if not weighted:
            expected = (expected != 0).astype(float)
        np.testing.assert_array_equal(graph.adjacency.toarray(), expected)
        assert graph.header.directed == G.is_directed()
        assert graph.original_ids.tolist() == list(G)

    def test_the_end_of_an_edge_aggregates_its_start(self):
        graph = hpgcn.from_networkx(self.nx.DiGraph([(0, 1)]))
        assert graph.adjacency.toarray().tolist() == [[0, 0], [1, 0]]

    @pytest.mark.parametrize("nodes, ids", [
        ([0, 1, 2], None), ([2, 0, 1], [2, 0, 1]), ([10, -5, 7], [10, -5, 7]),
        ([(0, 1), "x", 3], ["(0, 1)", "x", "3"]), ([0, 1, 2**70], ["0", "1", str(2**70)]),
        ([True, 2, 3], ["True", "2", "3"])])
    def test_nodes_are_kept(self, nodes, ids):
        G = self.nx.Graph()
        G.add_nodes_from(nodes)
        graph = hpgcn.from_networkx(G)
        assert (None if graph.original_ids is None else graph.original_ids.tolist()) == ids

    def test_attributes_and_arrays(self):
        G = self.nx.karate_club_graph()
        graph = hpgcn.from_networkx(G, np.eye(34), "club")
        assert graph.labels.tolist() == [int(c == "Officer") for _, c in G.nodes(data="club")]
        assert graph.header.num_edges == 156 and not graph.header.all_ones
        with pytest.warns(DataWarning, match="attributes of nodes are not read: club"):
            assert hpgcn.from_networkx(G, weight=None).header.all_ones
        for node in G:
            G.nodes[node]["f"] = node / 2
            G.nodes[node]["train_mask"] = node < 3
        del G.nodes[5]["club"], G.nodes[6]["train_mask"]
        graph = hpgcn.from_networkx(G, "f", "club")
        assert graph.features[:, 0].tolist() == [k / 2 for k in range(34)]
        assert graph.labels[5] == -1 and graph.masks["train"].sum() == 3

    @pytest.mark.parametrize("edges, args, message", [
        ([(0, 1, {"weight": "a"})], (), "edge '0' - '1': weight is 'a', expected a number"),
        ([(0, 1, {"weight": float("nan")})], (), "adjacency|weight.* is nan"),
        ([(0, 1, {})], ("f",), "node 0: attribute f is missing"),
        ([(0, 1, {})], (None, "y"), "no node has an attribute y"),
        ([(0, 1, {})], (np.eye(3),), r"features have shape \(3, 3\)"),
        ([(1, "1", {})], (), "nodes 1 and '1' are the same as text"),
    ])
    def test_refusals(self, edges, args, message):
        with pytest.raises(DataError, match=message):
            hpgcn.from_networkx(self.nx.Graph(edges), *args)

    def test_what_is_no_graph(self):
        with pytest.raises(DataError, match="a list, expected a graph of NetworkX"):
            hpgcn.from_networkx([(0, 1)])


class FakeDgl:
    """A fake DGLGraph with the attributes that hpgcn uses."""

    is_block = False

    def __init__(self, ntypes=("_N",), **ndata):
        self.ntypes, self.etypes = list(ntypes), ["_E"]
        self.is_homogeneous = len(self.ntypes) == 1
        self.ndata, self.edata = ndata, {"w": WEIGHTS}

    kept = "coo"

    def formats(self):
        return {"created": [self.kept], "not created": ["csr", "csc"] * (self.kept == "coo")}

    def edges(self, order):
        assert order == "eid" and self.kept == "coo"
        return EDGES[0], EDGES[1]

    def adj_tensors(self, kept):
        """Return pointers, indices and edge numbers, which are empty if edges are in order."""
        assert kept == self.kept
        rows, columns = EDGES if kept == "csr" else EDGES[::-1]
        order = np.argsort(rows, kind="stable")
        numbers = [] if (np.diff(order) == 1).all() else order
        return np.searchsorted(rows[order], np.arange(N + 1)), columns[order], np.array(numbers)

    def num_nodes(self):
        return N


def test_dgl_as_it_is_asked():
    graph = some_graph()
    fake = FakeDgl(feat=graph.features, label=graph.labels,
                   **{f"{key}_mask": mask for key, mask in graph.masks.items()})
    for fake.kept in ("coo", "csc", "csr"):
        assert_same(graph, hpgcn.from_dgl(fake))
    with pytest.raises(DataError, match=r"a DGL graph with 2 types.*dgl\.to_homogeneous"):
        hpgcn.from_dgl(FakeDgl(("a", "b")))
    fake.is_block = True
    with pytest.raises(DataError, match="a DGL block"):
        hpgcn.from_dgl(fake)
    with pytest.raises(DataError, match=r"a list, expected a dgl\.DGLGraph"):
        hpgcn.from_dgl([])


@pytest.mark.parametrize("parts", [None, 2])
def test_a_stored_graph_is_converted_as_the_graph_that_it_stores(tmp_path, parts):
    graph = some_graph()
    if parts:
        store.write_partitioned(tmp_path / "g.h5", graph, make_partition(
            graph, parts, method="random"))
    else:
        hpgcn.save(graph, tmp_path / "g.h5")
    with hpgcn.load(tmp_path / "g.h5") as stored:
        for ours, theirs in zip(stored.to_scipy()[:3], graph.to_scipy()[:3], strict=True):
            np.testing.assert_array_equal(*(each.toarray() if sp.issparse(each) else each
                                            for each in (ours, theirs)))
        assert nx_edges(stored) == nx_edges(graph)
        data = hpgcn.to_pyg(stored) if importlib.util.find_spec("torch_geometric") else None
    assert data is None or data.num_edges == graph.header.num_edges


def nx_edges(graph):
    return sorted(hpgcn.to_networkx(graph).edges(data="weight"))


def test_dgl_sums_as_the_adjacency():
    dgl = pytest.importorskip("dgl")
    graph = some_graph()
    g = hpgcn.to_dgl(graph)
    g.update_all(dgl.function.u_mul_e("feat", "weight", "m"), dgl.function.sum("m", "out"))
    np.testing.assert_allclose(g.ndata["out"].numpy(), graph.adjacency @ graph.features, rtol=1e-6)


@pytest.mark.parametrize("library, module, extra", [
    ("pyg", "torch_geometric.data", "pyg"), ("dgl", "dgl", "dgl"), ("networkx", "networkx", "io")])
def test_a_library_that_is_missing_is_named(monkeypatch, library, module, extra):
    if library != "networkx":
        pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingError, match=re.escape(install_command(extra))):
        getattr(hpgcn, f"to_{library}")(some_graph())


@pytest.mark.parametrize("ids", [["a", "bc", "", "é" * 400, "\t"], [5, 4, 2**62, -1, 0]])
@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_ids_go_into_files(tmp_path, ids, compress):
    graph = some_graph(ids=ids)
    store.write_graph(tmp_path / "g.h5", graph, compress=compress)
    with store.load(tmp_path / "g.h5") as stored:
        assert stored.read().original_ids.tolist() == ids
        assert stored.slab(1, 3).original_ids.tolist() == ids[1:3]
        assert stored.slab(2, 2).original_ids.dtype == stored.read().original_ids.dtype
    text = describe_file(tmp_path / "g.h5", verify=True)
    assert ("names" if isinstance(ids[0], str) else "relabeled") in text and "all match" in text


@pytest.mark.parametrize("ids, message", [
    (["a"], r"original_ids have dtype <U1 and shape \(1,\)"), ([0.5] * 5, "dtype float64"),
    ([b"a"] * 5, r"dtype \|S1"), (["x" * 1001] + ["y"] * 4, "1001 bytes, expected at most 1000"),
    (["\ud800"] * 5, "is not valid text"), (np.full(5, 2**63, np.uint64), "entry 0 is 92233720"),
])
def test_ids_that_cannot_be_kept(ids, message):
    with pytest.raises(DataError, match=message):
        some_graph(ids=ids)

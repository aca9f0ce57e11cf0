"""Graph files of every kind are read as they were written: whole, in slabs, and compressed."""
import hashlib
import pickle
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_all, assert_none
from checkout import ROOT
from stored_graphs import assert_same, make_graph, make_partition

import hpgcn
from hpgcn import store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.errors import DataError, StorageError
from hpgcn.graphs.graph import Graph

KINDS = {
    "dense weighted": {}, "ones": {"weighted": False}, "sparse features": {"features": "sparse"},
    "multi-label": {"labels": "multi"}, "no split": {"masks": False},
    "bare": {"features": "none", "labels": "none", "masks": False},
    "ids": {"ids": True, "features": "sparse", "weighted": False},
    "no edges": {"density": 0.0}, "one vertex": {"n": 1, "density": 0.0},
    "one vertex with a loop": {"n": 1, "density": 1.0, "features": "sparse"}}
packed = pytest.mark.parametrize("compress", ["none", "gzip"])


@packed
@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(tmp_path, kind, compress):
    graph = make_graph(**KINDS[kind])
    store.write_graph(tmp_path / "g.h5", graph, compress=compress)
    with store.load(tmp_path / "g.h5") as stored:
        assert (stored.format, stored.partition, stored.offsets) == ("hpgcn-graph", None, None)
        assert_same(stored.read(), graph)


def test_literal_layout(tmp_path):
    """The file of a graph with three edges has the documented names, dtypes and numbers."""
    A = sp.coo_array(([2.0, 1.0, 0.5], ([0, 1, 2], [1, 1, 0])), shape=(3, 3))
    graph = Graph.from_scipy(A, np.eye(3), [0, -1, 2], ([0], [], [2]), name="three",
                             source_sha256="ab" * 32)
    store.write_graph(tmp_path / "g.h5", graph)
    with h5py.File(tmp_path / "g.h5") as file:
        for name, dtype, values in [
                ("adjacency/pointers_to_1", "int64", [0, 1, 2, 3]),
                ("adjacency/indices_1", "int32", [1, 1, 0]),
                ("adjacency/values", "float32", [2, 1, 0.5]), ("labels", "int64", [0, -1, 2]),
                ("masks/train", "uint8", [1, 0, 0]), ("masks/val", "uint8", [0, 0, 0]),
                ("masks/test", "uint8", [0, 0, 1]), ("degree/row", "float64", [2, 1, 0.5]),
                ("degree/column", "float64", [0.5, 3, 0]), ("degree/loop", "float64", [0, 1, 0])]:
            assert file[name].dtype == dtype
            assert file[name][()].tolist() == values
            assert file[name].id.get_offset() is not None, "contiguous"
        assert file["features"].dtype == "float32"
        attributes = {name: value for name, value in file.attrs.items()
                      if not name.startswith("creat")}
        assert attributes == {
            "format": b"hpgcn-graph", "format_version": b"1.0", "source_name": b"three",
            "source_sha256": b"ab" * 32, "split": b"file", "num_nodes": 3, "num_edges": 3,
            "num_features": 3, "num_classes": 3, "directed": 1, "complete": 1}
        assert file["adjacency/data"] == file["adjacency/values"]


def test_ones_are_stored_as_bytes_and_never_read(tmp_path):
    path = tmp_path / "g.h5"
    graph = make_graph(weighted=False)
    store.write_graph(path, graph)
    with h5py.File(path, "r+") as file:
        values = file["adjacency/values"]
        assert values.dtype == np.uint8
        assert_all(values[()] == 1)
        values[0] = 7
    assert_same(store.load(path).read(), graph)
    with pytest.raises(StorageError, match="adjacency/values"):
        describe_file(path, verify=True)


@packed
@pytest.mark.parametrize("features", ["dense", "sparse"])
def test_slabs_equal_slices_of_the_whole(tmp_path, features, compress):
    graph = make_graph(features=features, ids=True)
    store.write_graph(tmp_path / "g.h5", graph, compress=compress)
    with store.load(tmp_path / "g.h5") as stored:
        for rows in [(0, 0), (0, 1), (7, 23), (23, 60), (59, 60), (60, 60), (0, 60)]:
            assert_same(stored.slab(*rows), graph.slab(*rows))
        for rows in [(-1, 3), (5, 4), (0, 61)]:
            with pytest.raises(DataError, match="rows"):
                stored.slab(*rows)


@pytest.mark.long
@packed
def test_slabs_of_datasets_of_many_blocks(tmp_path, compress):
    """Slabs whose rows do not align with checksum blocks of 1 MiB are read correctly."""
    path = tmp_path / "g.h5"
    rng = np.random.default_rng(3)
    n = 3000
    X = rng.standard_normal((n, 363)).astype(np.float32)
    A = sp.random_array((n, n), density=0.06, rng=rng, format="csr", dtype=np.float32)
    store.write_graph(path, Graph.from_scipy(A, X, np.zeros(n, int)), compress=compress)
    with h5py.File(path) as file:
        assert file["manifest/features"].shape == (5,)
        assert file["manifest/adjacency/indices_1"].shape == (3,)
    for verify in (True, False):
        with store.load(path, verify=verify) as stored:
            for start, stop in [(0, 1), (722, 723), (700, 1500), (2999, 3000), (1444, 3000)]:
                slab = stored.slab(start, stop)
                np.testing.assert_array_equal(slab.features, X[start:stop])
                assert (slab.adjacency != A[start:stop]).nnz == 0
    with h5py.File(path, "r+") as file:
        file["features"][2000, 5] = 9
    with store.load(path) as stored:
        np.testing.assert_array_equal(stored.slab(0, 1400).features, X[:1400])
        damaged = r"features: the checksum of block 2 \(bytes 2097152 to 3145728\)"
        with pytest.raises(StorageError, match=damaged):
            stored.slab(1999, 2100)
    with store.load(path, verify=False) as stored:
        assert stored.slab(1999, 2100).features[1, 5] == 9


@pytest.mark.parametrize("features, weighted, compress", [
    ("dense", True, "gzip"), ("sparse", False, "none"), ("none", True, "none")])
def test_partitioned_is_permuted(tmp_path, features, weighted, compress):
    graph = make_graph(features=features, weighted=weighted, ids=True)
    partition = make_partition()
    store.write_graph(tmp_path / "g.h5", graph)
    store.write_partitioned(tmp_path / "p.h5", graph, partition, compress=compress,
                            source=store.load(tmp_path / "g.h5"))
    perm = partition.perm
    sha256 = hashlib.sha256((tmp_path / "g.h5").read_bytes()).hexdigest()
    with store.load(tmp_path / "p.h5") as stored:
        permuted = stored.read()
        assert stored.format == "hpgcn-partitioned-graph"
        assert stored.header.source_sha256 == sha256
        assert (permuted.adjacency != graph.adjacency[perm][:, perm]).nnz == 0
        assert permuted.adjacency.has_canonical_format
        if features != "none":
            dense = [X.toarray() if sp.issparse(X) else X
                     for X in (permuted.features, graph.features)]
            np.testing.assert_array_equal(dense[0], dense[1][perm])
        for name in ("labels", "degree_row", "degree_column", "degree_loop", "original_ids"):
            np.testing.assert_array_equal(getattr(permuted, name), getattr(graph, name)[perm])
        for key in ("train", "val", "test"):
            np.testing.assert_array_equal(permuted.masks[key], graph.masks[key][perm])
        np.testing.assert_array_equal(permuted.vertex, perm)
        for name in ("part", "perm", "iperm", "offsets"):
            np.testing.assert_array_equal(getattr(stored.partition, name), getattr(partition, name),
                                          strict=True)
        for name in ("k", "method", "engine", "engine_version", "seed", "epsilon", "statistics"):
            assert getattr(stored.partition, name) == getattr(partition, name)
        for p in range(3):
            rows = stored.offsets[p:p + 2]
            assert_all(partition.part[stored.slab(*rows).vertex] == p)
            assert_same(stored.slab(*rows), permuted.slab(*rows))


@pytest.mark.long
@packed
@pytest.mark.parametrize("kind", ["dense weighted", "bare", "no edges", "one vertex with a loop"])
def test_vertex_cut_round_trip(tmp_path, kind, compress):
    graph = make_graph(**KINDS[kind])
    n, nnz, path = graph.num_rows, graph.indices.size, tmp_path / "c.h5"
    cut = make_partition(n, edges=nnz)
    store.write_partitioned(path, graph, cut, compress=compress)
    rows = np.repeat(np.arange(n), np.diff(graph.indptr))
    edges = zip(rows.tolist(), graph.indices.tolist())
    part_of = dict(zip(edges, cut.edge_part.tolist()))
    with store.load(path) as stored:
        whole = stored.read()
        stored_rows = np.repeat(whole.vertex, np.diff(whole.indptr)).tolist()
        stored_edges = zip(stored_rows, cut.perm[whole.indices].tolist())
        edge_part = stored.edge_part(0, n)
        assert edge_part.tolist() == [part_of[edge] for edge in stored_edges]
        assert edge_part.dtype == stored.partition.edge_part.dtype == np.int32
        np.testing.assert_array_equal(stored.partition.edge_part, cut.edge_part)
        np.testing.assert_array_equal(stored.partition.part, cut.part)
        assert stored.vertex_partition.edge_part is None
        for start, stop in [(0, 0), (0, 1), (n // 3, n), (n, n)]:
            entries = slice(whole.indptr[start], whole.indptr[stop])
            np.testing.assert_array_equal(stored.edge_part(start, stop), edge_part[entries])
        with pytest.raises(DataError, match=f"rows 0..{n + 1} requested"):
            stored.edge_part(0, n + 1)
        store.write_partitioned(tmp_path / "again.h5", graph, stored.partition, compress=compress)
        least = np.bincount(cut.edge_part, minlength=3).min()
        assert f"vertex cut, edges per part min {least}, mean" in describe_file(path, verify=True)
    with h5py.File(path) as file, h5py.File(tmp_path / "again.h5") as again:
        assert file["partition/owner"] == file["partition/part"], "one dataset of two names"
        np.testing.assert_array_equal(file["partition/edge_part"], again["partition/edge_part"])


def test_partitions_of_other_graphs_and_sizes(tmp_path):
    with pytest.raises(DataError, match="parts for 359 edges, but the graph stores 360"):
        store.write_partitioned(tmp_path / "c.h5", make_graph(), make_partition(edges=359))
    graph = make_graph(4)
    for k in (1, 9):
        store.write_partitioned(tmp_path / f"{k}.h5", graph, make_partition(4, k))
        with store.load(tmp_path / f"{k}.h5") as stored:
            assert stored.partition.k == k
            assert np.diff(stored.offsets).sum() == 4
            assert stored.edge_part(0, 4) is stored.partition.edge_part is None
    with pytest.raises(DataError, match="60 vertices, but the graph 4"):
        store.write_partitioned(tmp_path / "wrong.h5", graph, make_partition())
    with pytest.raises(DataError, match="already"):
        partitioned = store.load(tmp_path / "9.h5").read()
        store.write_partitioned(tmp_path / "twice.h5", partitioned, make_partition(4))
    with pytest.raises(DataError, match=r"only rows 1\.\.3 are in memory"):
        store.write_graph(tmp_path / "slab.h5", graph.slab(1, 3))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.h5", "9.h5"]


def test_interactive_properties(graph_file):
    stored, graph = hpgcn.load(graph_file), make_graph()
    assert (stored.adjacency != graph.adjacency).nnz == 0
    np.testing.assert_array_equal(stored.features, graph.features)
    np.testing.assert_array_equal(stored.labels, graph.labels)
    assert stored.masks["val"].sum() == graph.masks["val"].sum()
    assert stored.features is stored.features
    assert stored.sha256() == hashlib.sha256(graph_file.read_bytes()).hexdigest()


def test_pickle_and_reopen(parts_file, graph_file):
    with store.load(parts_file, verify=False, memory=10**6) as stored:
        copy = pickle.loads(pickle.dumps(stored))
        assert_same(copy.slab(3, 9), stored.slab(3, 9))
        assert copy.reopen(graph_file).format == "hpgcn-graph"


def test_memory_budget(tmp_path, graph_file):
    with store.load(graph_file, memory=4000) as stored:
        assert stored.slab(0, 10).num_rows == 10
        too_much = r"rows 0\.\.60 needs \d+ bytes of memory, but the limit is 4000"
        with pytest.raises(DataError, match=too_much):
            stored.slab(0, 60)
    bomb = tmp_path / "bomb.h5"
    zeros = Graph.from_scipy(sp.csr_array((2000, 2000)), np.zeros((2000, 2000), np.float32))
    store.write_graph(bomb, zeros, compress="gzip")
    assert bomb.stat().st_size < 200_000
    with store.load(bomb, memory=12_000_000) as stored:
        assert_none(stored.slab(0, 1000).features)
        with pytest.raises(DataError, match="needs 16"):
            stored.read()


def test_import_is_light():
    unwanted = {"numba", "mpi4py", "torch", "cupy"}
    code = f"import sys, hpgcn.store; assert not {unwanted} & {{*sys.modules}}"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("features, weighted", [("dense", False), ("sparse", True)])
def test_other_libraries_open_it(tmp_path, weighted, features):
    anndata = pytest.importorskip("anndata")
    binsparse = pytest.importorskip("binsparse")
    graph = make_graph(weighted=weighted, features=features)
    store.write_partitioned(tmp_path / "p.h5", graph, make_partition(), compress="gzip")
    store.write_graph(tmp_path / "g.h5", graph)
    for path in (tmp_path / "p.h5", tmp_path / "g.h5"):
        expected = store.load(path).read()
        with h5py.File(path) as file:
            for name in ("adjacency", "features") if features == "sparse" else ("adjacency",):
                matrix = getattr(expected, name)
                theirs = anndata.io.read_elem(file[name])
                assert theirs.shape == matrix.shape
                assert (theirs != matrix).nnz == 0
                container = binsparse.HDF5BinsparseContainer(file[name])
                tensor = binsparse.BinsparseTensor.parse(container)
                assert (csr_of(tensor) != matrix).nnz == 0


def csr_of(tensor):
    arrays = (np.asarray(tensor.values), tensor.indices_1, tensor.pointers_to_1)
    return sp.csr_array(tuple(map(np.asarray, arrays)), shape=tuple(tensor.shape))


def test_the_page_says_how(tmp_path, monkeypatch):
    pytest.importorskip("anndata")
    binsparse = pytest.importorskip("binsparse")
    monkeypatch.chdir(tmp_path)
    graph = make_graph(weighted=True)
    store.write_graph("graph.h5", graph)
    page = (ROOT / "docs" / "files.md").read_text()
    names = {}
    code = re.search(r"```python\n(import anndata, binsparse.*?)```", page, re.DOTALL)[1]
    exec(code, names)
    assert (names["A"] != graph.adjacency).nnz == 0
    assert (csr_of(names["tensor"]) != graph.adjacency).nnz == 0
    with pytest.raises((KeyError, binsparse.BinsparseParseError)):
        binsparse.load_binsparse("graph.h5")

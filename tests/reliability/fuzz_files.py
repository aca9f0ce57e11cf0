"""Valid files of every kind for the fuzzer to damage, with the contents that a reader must find."""
import gzip
import io
import pickle
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[1] / "store"))

from stored_graphs import ARRAYS, make_graph, make_partition

from hpgcn import store
from hpgcn.config import Config


def edge_lines(separator, weighted, n=40, count=120):
    """Return `count` random lines of edges between `n` vertices, with duplicates and loops."""
    rng = np.random.default_rng(3)
    columns = [*rng.integers(0, n, (2, count)), rng.integers(-300, 300, count) / 4]
    return [separator.join(map(str, row)) for row in zip(*columns[:3 if weighted else 2])]


def snap(_=None):
    return "\n".join(["# Directed graph: made up", "# FromNodeId ToNodeId",
                      *edge_lines("\t", False)]).encode() + b"\n"


def weighted_snap(_=None):
    return "\n".join(["# hpgcn sbm: vertices 50, edges 120",
                      *edge_lines(" ", True)]).encode() + b"\n"


def csv(_=None):
    return "\r\n".join(["source,target,weight", *edge_lines(",", True)]).encode() + b"\r\n"


def mtx(field, symmetry):
    """Return a function that makes the bytes of a MatrixMarket file.

    It has this field and symmetry.
    """
    def make(_=None):
        lines = []
        for k, (u, v, weight) in enumerate(map(str.split, edge_lines(" ", True))):
            value = {"pattern": "", "real": f" {weight}", "integer": f" {k - 60}"}[field]
            lines.append(f"{int(u) + 1} {int(v) + 1}{value}")
        if symmetry == "skew-symmetric":
            lines = [line for line in lines if line.split()[0] != line.split()[1]]
        head = [f"%%MatrixMarket matrix coordinate {field} {symmetry}", "% made up",
                f"40 40 {len(lines)}"]
        return "\n".join(head + lines).encode() + b"\n"
    return make


def npz(save):
    """Return a function that makes an .npz archive with adjacency, features, labels and masks."""
    def make(_=None):
        graph, buffer = make_graph(features="sparse"), io.BytesIO()
        A, X = graph.adjacency, graph.features
        arrays = {f"{prefix}_{name}": getattr(matrix, name) for prefix, matrix in
                  (("adj", A), ("attr", X)) for name in ("data", "indices", "indptr", "shape")}
        masks = {f"{key}_mask": mask for key, mask in graph.masks.items()}
        save(buffer, **arrays, **masks, labels=graph.labels)
        return buffer.getvalue()
    return make


def graph_file(path, **options):
    store.write_graph(path, make_graph(**options), overwrite=True)
    return path.read_bytes()


def parts_file(path, compress="none"):
    graph = make_graph(features="sparse", ids=True)
    store.write_partitioned(path, graph, make_partition(edges=graph.indices.size),
                            compress=compress, overwrite=True)
    return path.read_bytes()


def model_file(path):
    rng = np.random.default_rng(1)
    store.write_model(path, {"W0": rng.standard_normal((7, 16)), "b0": rng.standard_normal(16)},
                      config_toml="layers = 1\n", epoch=3, attributes={"strategy": "p2p"},
                      overwrite=True)
    return path.read_bytes()


def predictions_file(path):
    rng = np.random.default_rng(1)
    arrays = {"logits": rng.standard_normal((60, 4)), "label": rng.integers(0, 4, 60),
              "embedding": rng.standard_normal((60, 16))}
    store.write_predictions(path, arrays, overwrite=True)
    return path.read_bytes()


def planetoid(part):
    """Return a function that writes the eight files of a Planetoid set beside a given path."""
    def make(path):
        y, X = np.eye(2), sp.csr_matrix(np.eye(4, 3, dtype=np.float32))
        parts = {"x": X[:2], "y": y, "tx": X[2:], "ty": y, "allx": X, "ally": np.vstack([y, y]),
                 "graph": {vertex: [(vertex + 1) % 6] for vertex in range(6)}}
        for name, value in parts.items():
            path.with_name(f"ind.t.{name}").write_bytes(pickle.dumps(value, protocol=2))
        path.with_name("ind.t.test.index").write_bytes(b"4\n5\n")
        return path.with_name(f"ind.t.{part}").read_bytes()
    return make


def parquet(path):
    import pyarrow
    from pyarrow.parquet import write_table

    rng = np.random.default_rng(2)
    ends = {name: rng.integers(0, 40, 100) for name in ("source", "target")}
    table = pyarrow.table({**ends, "weight": rng.standard_normal(100)})
    write_table(table, path, write_page_checksum=True)
    return path.read_bytes()


def array(path):
    """Write random features for the graph karate as an .npy file; return its bytes."""
    np.save(path, np.random.default_rng(2).standard_normal((34, 3)).astype(np.float32))
    return path.read_bytes()


def part_array(path):
    graph_file(path.with_name("graph.h5"))
    np.save(path, np.arange(60) % 3)
    return path.read_bytes()


def part_lines(path):
    graph_file(path.with_name("graph.h5"))
    return "".join(f"{vertex % 3}\n" for vertex in range(60)).encode()


def set_of_files(files):
    """Return a function that writes `files` (name: bytes) into the folder of a path."""
    def make(path):
        for name, content in files.items():
            path.with_name(name).write_bytes(content)
        return path.read_bytes()
    return make


def archive(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def matrix(A):
    buffer = io.BytesIO()
    sp.save_npz(buffer, sp.csr_matrix(A))
    return buffer.getvalue()


def npy(values):
    buffer = io.BytesIO()
    np.save(buffer, values)
    return buffer.getvalue()


A = np.array([[0, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0]])
GRAPHSAINT = {
    "adj_full.npz": matrix(A), "feats.npy": npy(np.eye(4)),
    "class_map.json": b'{"0": 1, "1": 0, "2": 1, "3": 0}',
    "role.json": b'{"tr": [0, 3], "va": [1], "te": [2]}'}
GEOMGCN = {
    "out1_graph_edges.txt": b"node_id\tnode_id\n0\t1\n1\t2\n2\t0\n",
    "out1_node_feature_label.txt": b"node_id\tfeature\tlabel\n0\t0,1,0\t1\n1\t1,1,0\t0\n"
                                   b"2\t0,0,1\t1\n",
    "t_split_0.6_0.2_0.npz": archive(train_mask=[1, 0, 0], val_mask=[0, 1, 0], test_mask=[0, 0, 1])}
LINQS = {
    "t.content": b"31\t0\t1\tx\n35\t1\t0\ty\n99\t0\t0\ty\n",
    "t.cites": b"31\t35\n99\t31\n7\t31\n"}
DGLCSV = {
    "meta.yaml": b"dataset_name: t\nedge_data:\n- file_name: edges.csv\nnode_data:\n"
                 b"- file_name: nodes.csv\n",
    "edges.csv": b"src_id,dst_id,weight\n0,1,2\n1,2,0.5\n",
    "nodes.csv": b'node_id,label,train_mask,feat\n0,1,True,"1,2"\n1,0,False,"0,1"\n'
                 b'2,1,False,"2,2"\n'}
NODELINK = (b'{"directed": true, "nodes": [{"id": "a"}, {"id": "b"}, {"id": 3}],\n'
            b'"links": [{"source": "a", "target": "b", "weight": 2},'
            b' {"source": 3, "target": "a"}]}')


def config(path):
    graph_file(path.with_name("graph.h5"))
    return Config(graph="graph.h5", epochs=3, lr=0.25).to_toml().encode()


def convert(source, out=None, *more):
    return ["convert", source, out or source.with_name("to.h5"), "--overwrite", "--memory", 1 << 24,
            *more]


def partition(path):
    return ["partition", path.with_name("graph.h5"), "-k", 3, "--parts", path,
            "-o", path.with_name("to.h5"), "--overwrite"]


FILES = {  # kind: function of a path (ending like the kind) that returns the bytes of a whole file
    "graph-h5": graph_file,
    "multi-h5": lambda path: graph_file(path, labels="multi", weighted=False),
    "parts-h5": parts_file, "packed-h5": lambda path: parts_file(path, "gzip"),
    "model-h5": model_file, "predictions-h5": predictions_file,
    "snap-txt": snap, "weighted-txt": weighted_snap, "csv-csv": csv,
    "mtx-mtx": mtx("real", "general"), "mtx-symmetric-mtx": mtx("integer", "symmetric"),
    "mtx-skew-mtx": mtx("real", "skew-symmetric"), "mtx-pattern-mtx": mtx("pattern", "symmetric"),
    "snap-txt.gz": lambda path: gzip.compress(snap()),
    "csv-csv.gz": lambda path: gzip.compress(csv()),
    "mtx-mtx.gz": lambda path: gzip.compress(mtx("real", "symmetric")()),
    "npz-stored-npz": npz(np.savez), "npz-deflated-npz": npz(np.savez_compressed)}
STORED = tuple(kind for kind in FILES if kind.endswith("h5"))
TEXTS = tuple(kind for kind in FILES if kind not in STORED)

# file name, as FILES, words of a command that reads it
Loose = namedtuple("Loose", "file make command")
LOOSE = {  # inputs without checksums: what is damaged may be as good as before
    **{f"planetoid-{part}": Loose(f"ind.t.{part}", planetoid(part), convert)
       for part in ("graph", "allx", "ty", "test.index")},
    "parquet": Loose("g.parquet", parquet, convert),
    "features-npy": Loose("x.npy", array, lambda path: convert(
        "karate", path.with_name("to.h5"), "--features", path)),
    "parts-npy": Loose("p.npy", part_array, partition),
    "parts-txt": Loose("p.txt", part_lines, partition),
    "config-toml": Loose("c.toml", config,
                         lambda path: ["train", path.with_name("graph.h5"), "--config", path,
                                       "--dry-run"])}
for files in (GRAPHSAINT, GEOMGCN, LINQS, DGLCSV):
    LOOSE |= {name: Loose(name, set_of_files(files), convert) for name in files}
LOOSE["nodelink-json"] = Loose("g.json", lambda path: NODELINK, convert)
LOOSE_TEXTS = ("nodelink-json", *GEOMGCN, *LINQS, *DGLCSV, "class_map.json", "role.json",
               "planetoid-test.index", "parts-txt", "config-toml")


def typed(arrays):
    """Return a dict of (dtype, array) for a dict of arrays."""
    return {name: (getattr(array, "dtype", None), array) for name, array in arrays.items()}


def contents(kind, path):
    """Return all arrays and attributes of a stored HDF5 file as nested tuples and dicts."""
    if kind == "model-h5":
        weights, attributes = store.read_model(path)
        return typed(weights), attributes
    if kind == "predictions-h5":
        arrays, attributes = store.read_predictions(path)
        return typed(arrays), attributes
    with store.load(path, memory=10**8) as stored:
        graph, made = stored.read(), stored.partition
    X = graph.features
    X = {"X": X} if not sp.issparse(X) else {name: getattr(X, name) for name in ARRAYS[:3]}
    arrays = {name: getattr(graph, name) for name in ARRAYS if name != "features"}
    parts = {name: getattr(made, name, None) for name in ("part", "perm", "iperm", "edge_part")}
    told = typed(arrays), typed(X), typed(graph.masks), typed({**parts, "offsets": stored.offsets})
    return stored.format, graph.header, told, made and (made.method, made.seed, made.statistics)

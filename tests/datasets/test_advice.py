"""Refused formats: the advice in each message is followed, and gives the right graph."""
import bz2
import gzip
import importlib
import io
import lzma
import pickle
import re
import shutil
import sqlite3
import subprocess
import tarfile
import zipfile
from contextlib import closing

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from inputs import put

from hpgcn.datasets.convert import read
from hpgcn.errors import DataError

A = np.array([[0, 2, 0], [0, 0, 0.5], [0, 3, 0]])  # entry (u, v) is an edge u -> v
ONES = (A != 0).astype(float)
BOTH = np.maximum(ONES, ONES.T)
EDGES = [(u, v, float(A[u, v])) for u, v in np.argwhere(A).tolist()]
MODULES = ("networkx", "scipy.sparse", "scipy.io", "numpy", "pyarrow.feather", "pyarrow.orc",
           "pyarrow.ipc", "pyarrow.parquet", "pandas", "pickle", "anndata", "h5py", "torch")


def library(name):
    return pytest.importorskip(name, exc_type=ImportError)


def digraph():
    G = library("networkx").DiGraph()
    G.add_nodes_from(range(3))
    G.add_weighted_edges_from(EDGES)
    return G


def table():
    return library("pyarrow").table({"source": [u for u, _, _ in EDGES],
                                     "target": [v for _, v, _ in EDGES],
                                     "weight": [w for _, _, w in EDGES]})


def stream(path):
    with library("pyarrow.ipc").new_stream(path, table().schema) as sink:
        sink.write_table(table())


def database(path):
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE edges (source, target)")
        base.executemany("INSERT INTO edges VALUES (?, ?)", [edge[:2] for edge in EDGES])
        base.commit()


def matlab73(path):
    matrix = sp.csc_array(A)
    with h5py.File(path, "w", userblock_size=512) as file:
        group = file.create_group("A")
        group.attrs["MATLAB_sparse"] = 3
        group["data"], group["ir"], group["jc"] = matrix.data, matrix.indices, matrix.indptr
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file")


def cells(path):
    anndata = library("anndata")
    anndata.AnnData(np.eye(3), obsp={"connectivities": sp.csr_matrix(A)}).write_h5ad(path)


def data():
    torch = library("torch")
    Data = library("torch_geometric.data").Data
    return Data(edge_index=torch.tensor(np.argwhere(A).T.copy()), num_nodes=3,
                edge_weight=torch.tensor([w for _, _, w in EDGES]))


def old_torch(path):
    library("torch").save(data(), path, _use_new_zipfile_serialization=False)


def tarred(path):
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("edges.txt")
        info.size = 12
        archive.addfile(info, io.BytesIO(b"0 1\n1 2\n2 1\n"))


def zipped(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("edges.txt", "0 1\n1 2\n2 1\n")


LEDA = "LEDA.GRAPH\nvoid\nint\n-1\n3\n|{0}|\n|{1}|\n|{2}|\n3\n1 2 0 |{}|\n2 3 0 |{}|\n3 2 0 |{}|\n"
LINES = "".join(f'{{"source": {u}, "target": {v}, "weight": {w}}}\n' for u, v, w in EDGES)
VNA = ("*Node data\nID age\n0 3\n1 4\n2 5\n*Tie data\nfrom to strength\n0 1 2\n1 2 .5\n2 1 3\n"
       "*Tie properties\nfrom to color\n")
GDF = ("nodedef>name VARCHAR,age INT\n0,3\n1,4\n2,5\nedgedef>node1 VARCHAR,node2 VARCHAR,"
       "weight DOUBLE\n0,1,2\n1,2,.5\n2,1,3\n")
PYTHON = [  # a file, what makes it, how the call begins that is advised, and the adjacency
    ("g.lgr", lambda path: path.write_text(LEDA), "networkx.", ONES.T),
    ("g.g6", lambda path: library("networkx").write_graph6(digraph().to_undirected(), path),
     "networkx.", BOTH),
    ("g.s6", lambda path: library("networkx").write_sparse6(digraph().to_undirected(), path),
     "networkx.", BOTH),
    ("g.dot", lambda path: path.write_text("digraph {0 -> 1; 1 -> 2; 2 -> 1}"), "networkx.",
     ONES.T),
    ("g.edgelist", lambda path: library("networkx").write_edgelist(digraph().to_undirected(), path),
     "networkx.", np.maximum(A, A.T)),
    ("g.rua", lambda path: scipy.io.hb_write(path, sp.csc_array(A)), "A = scipy", A),
    ("g.mat", matlab73, "f = h5py", A), ("g.h5ad", cells, "A = anndata", A),
    pytest.param("g.pt", old_torch, "torch.save", A.T, marks=pytest.mark.long),
    ("g.npy", lambda path: np.save(path, np.argwhere(A).T), "numpy.savez", ONES.T),
    ("g.npy", lambda path: np.save(path, A), "A = scipy", A),
    ("g.feather", lambda path: library("pyarrow.feather").write_feather(table(), path),
     "pyarrow.", A.T),
    ("g.arrow", stream, "pyarrow.", A.T),
    ("g.orc", lambda path: library("pyarrow.orc").write_table(table(), path), "pyarrow.", A.T),
    ("g.jsonl", lambda path: path.write_text(LINES), "pandas.", A.T)]
SHELL = [  # a file, what makes it, how the command begins, options of `read`, and the adjacency
    ("g.col", lambda path: path.write_text("c\np edge 3 2\ne 1 2\ne 2 3\n"), "awk",
     {"symmetrize": True}, BOTH),
    ("g.vna", lambda path: path.write_text(VNA), "awk", {}, A.T),
    ("g.gdf", lambda path: path.write_text(GDF), "sed", {}, A),
    ("g.txt", lambda path: path.write_text("# 0\n1 2\n# 1\n2 .5\n# 2\n1 3\n"), "awk",
     {"columns": "u,v,w"}, A),
    ("g.sif", lambda path: path.write_text("0 r 1\n1 s 2\n2 r 1\n"), "awk", {}, ONES),
    ("g.lgl", lambda path: path.write_text("# 0\n1\n# 1\n2\n"), "awk",
     {"columns": "u,v,w", "symmetrize": True}, BOTH),
    ("g.gr", lambda path: path.write_text("p sp 3 3\na 1 2 2\na 2 3 0.5\na 3 2 3\n"), "awk", {}, A),
    ("g.db", database, "sqlite3", {}, ONES.T),
    ("g.txt", lambda path: path.write_text("0 1\n1 2\n2 1\n", "utf-16"), "iconv", {}, ONES),
    ("g.tar", tarred, "tar", {}, ONES), ("g.zip", zipped, "unzip", {}, ONES),
    ("edges.txt.lzma", lambda path: put(path, lzma.compress(b"0 1\n1 2\n2 1\n", 2)), "unlzma", {},
     ONES)]


def advice(path, start, end=", then convert ", begin="which is not supported: ", **options):
    """Return the call or command that a refusal advises, and the file to convert afterwards."""
    with pytest.raises(DataError, match=begin) as error:
        read(path if not options else "karate", **options)
    text = str(error.value)
    assert text.isprintable()
    text = text.partition(begin)[2]
    call, _, rest = text[text.index(start):].partition(end)
    name = re.match(r"\w+\.\w+", rest)
    return call.replace("FILE", repr(str(path))), name[0] if name else "edges.txt"


def execute(code, **names):
    for module in MODULES:
        if module in code:
            importlib.import_module(module)
            names[module.partition(".")[0]] = importlib.import_module(module.partition(".")[0])
    exec(code, names)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, make, start, expected", PYTHON)
def test_python(tmp_path, monkeypatch, name, make, start, expected):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / name)
    code, converted = advice(tmp_path / name, start)
    if "pydot" in code:
        library("pydot")
    execute(code)
    assert read(tmp_path / converted)[0].adjacency.toarray().tolist() == expected.tolist()


@pytest.mark.parametrize("name, make, start, options, expected", SHELL)
def test_shell(tmp_path, name, make, start, options, expected):
    if shutil.which(start) is None:
        pytest.skip(f"no {start}")
    make(tmp_path / name)
    command, converted = advice(tmp_path / name, start)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    graph, _ = read(tmp_path / converted, **options)
    assert graph.adjacency.toarray().tolist() == expected.tolist()


@pytest.mark.parametrize("make, variable, start, expected", [
    (lambda: sp.csr_array(A), "A", "scipy.sparse.save_npz", A),
    (digraph, "G", "networkx.write", A.T),
    pytest.param(data, "data", "torch.save", A.T, marks=pytest.mark.long)])
def test_pickles(tmp_path, monkeypatch, capsys, make, variable, start, expected):
    monkeypatch.chdir(tmp_path)
    path = put(tmp_path / "g.pkl", pickle.dumps(make()))
    execute(advice(path, "print", " in Python")[0])
    assert re.search("csr_array|DiGraph|Data", capsys.readouterr().out)
    code, _ = advice(path, start, ";")
    execute(code, **{variable: make()})
    converted = re.search(r"'(graph\.\w+)'", code)[1]
    assert read(tmp_path / converted)[0].adjacency.toarray().tolist() == expected.tolist()


def test_matlab_4(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scipy.io.savemat("g.mat", {"A": A}, format="4")
    execute(advice(tmp_path / "g.mat", "scipy", begin="MATLAB 4 file with ")[0])
    assert read("graph.mat")[0].adjacency.toarray().tolist() == A.tolist()


@pytest.mark.parametrize("packer, suffix", [
    ("gunzip", ".gz"), ("bunzip2", ".bz2"), ("unxz", ".xz")])
def test_compressed_arrays(tmp_path, packer, suffix):
    if shutil.which(packer) is None:
        pytest.skip(f"no {packer}")
    made = io.BytesIO()
    np.save(made, np.eye(34))
    packed = {".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix].compress(made.getvalue())
    path = put(tmp_path / f"x.npy{suffix}", packed)
    command, _ = advice(path, packer, " unpacks", "expected a plain .npy file: ", features=path)
    subprocess.run([command, path], check=True)
    assert read("karate", features=tmp_path / "x.npy")[0].header.num_features == 34


def test_a_table_of_labels_is_no_list_of_edges(tmp_path):
    path = put(tmp_path / "y.csv", "id,label\n0,1\n1,0\n2,1\n")
    edges = put(tmp_path / "g.txt", "0 1\n1 2\n")
    with pytest.raises(DataError, match="give the edges as the source and this file as --labels"):
        read(path)
    assert read(edges, labels=path)[0].labels.tolist() == [1, 0, 1]


def test_data_of_r_are_named_at_once(tmp_path):
    for pack in (bz2.compress, lzma.compress):
        call, converted = advice(put(tmp_path / "g.rda", pack(b"RDX3\nX\n")), "in R")
        assert "load(" in call and converted == "graph.mtx"


def test_a_matrix_in_a_pickle_within_an_npz(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "p.npz"
    np.savez(path, adj=sp.csr_matrix(A))
    code, converted = advice(path, "A = ", begin="if you trust it, ")
    execute(code)
    assert read(tmp_path / converted)[0].adjacency.toarray().tolist() == A.tolist()


@pytest.mark.parametrize("name, lines", [
    ("g.csv", ",a,b,c\na,0,2,0\nb,0,0,.5\nc,0,3,0\n"),
    ("g.csv", ";a;b;c\na;0;2;0\nb;0;0;.5\nc;0;3;0\n"),
    ("g.txt", "a b c\na 0 2 0\nb 0 0 .5\nc 0 3 0\n"),
    ("g.csv", ",0,1,2\n0,0,2,0\n1,0,0,.5\n2,0,3,0\n")])
def test_a_matrix_with_names(tmp_path, monkeypatch, name, lines):
    monkeypatch.chdir(tmp_path)
    library("pandas")
    path = put(tmp_path / name, lines)
    code, converted = advice(path, "M = ", begin="names of rows and columns: ")
    execute(code)
    graph, _ = read(tmp_path / converted)
    assert graph.adjacency.toarray().tolist() == A.tolist()

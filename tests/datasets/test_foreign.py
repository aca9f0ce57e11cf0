"""Unsupported formats: the error names the format and a way to convert it."""
import bz2
import gzip
import io
import lzma
import pickle
import re
import sqlite3
import tarfile
import zipfile
from contextlib import closing, suppress

import h5py
import numpy as np
import pytest
from inputs import put, refused

from hpgcn.datasets.convert import read
from hpgcn.errors import DataError

METIS = b"% comment\n5 4\n2 3 4\n1\n1 4\n1 3\n\n"
XML = b'<?xml version="1.0" encoding="UTF-8"?>\n'
HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(600)


def zipped(*names):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in names:
            archive.writestr(name, b"0 1\n")
    return made.getvalue()


def tarred():
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("edges.txt"))
    return made.getvalue()


FILES = [  # name, content, the format that the message names
    ("g.xml", XML + b"<net>", "XML"), ("g.txt", b"<!DOCTYPE html><html>404", "a web page"),
    ("g.nt", b"<http://a> <http://b> <http://c> .\n", "RDF"),
    ("g.dot", b"strict digraph G {\n a -> b\n", "Graphviz"),
    ("g.txt", b"graph G\n{\n", "Graphviz"),
    ("g.dl", b"dl n=3 format=edgelist1\n", "UCINET"),
    ("g.lgr", b"LEDA.GRAPH\nstring\n", "LEDA"),
    ("g.col", b"c a graph\np edge 3 2\ne 1 2\ne 2 3\n", "DIMACS"),
    ("g.gr", b"c 9th challenge\nc\np sp 3 2\na 1 2 7\n", "DIMACS"),
    ("g.adj", b"AdjacencyGraph\n3\n2\n", "Ligra"), ("g.g6", b">>graph6<<A_\n", "graph6"),
    ("g.edgelist", b"0 1 {}\n1 2 {'weight': 3}\n", r"networkx's dictionaries.*read_edgelist"),
    ("g.npz", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    ("g.pkl", pickle.dumps({"a": 1}, protocol=0), "pickle.*never executes it"),
    ("g.hgr", b"2 3\n1 2\n2 3\n", "a hypergraph"), ("g.rua", b"1SYMMETRIC", "Harwell-Boeing"),
    ("g.mat", b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512) + HDF5, r"MATLAB 7\.3.*-v7"),
    ("g.h5", HDF5, "an HDF5 file.*to hpgcn partition or hpgcn train"), ("g.h5ad", HDF5, "AnnData"),
    ("g.nc", bytes(512) + HDF5, "an HDF5 file"),
    ("old.pth", pickle.dumps(0x1950a86a20f9469cfc6c, protocol=2), "a file of PyTorch before 1.6"),
    ("g.pickle", pickle.dumps([1], protocol=4), "a pickle.*never executes it"),
    ("g.txt", pickle.dumps([1], protocol=2), "a pickle"),
    ("g.gpickle", b"]q\x00(K\x00K\x01e.", "a pickle"),
    ("g.bin", b"\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd" + bytes(50), "DGL.*load_graphs"),
    ("g.feather", b"ARROW1\0\0\xff\xff\xff\xff", "Arrow or Feather.*write_table"),
    ("g.orc", b"ORC\x0a", "ORC"), ("g.rds", gzip.compress(b"X\n\0\0\0\x03"), "data of R"),
    ("g.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Excel"),
    ("g.csv", zipped("[Content_Types].xml", "xl/workbook.xml"), "an Excel table.*save it as .csv"),
    ("g.ods", zipped("mimetype", "content.xml"), "OpenDocument"),
    ("g.zip", zipped("edges.txt"), "a zip archive.*unzip"),
    ("g.zip", zipped(), "a zip archive"), ("g.tar", tarred(), "a tar archive.*tar xf"),
    ("g.tar.gz", gzip.compress(tarred()), "a tar archive"),
    ("g.rda", bz2.compress(b"RDX3\nX\n"), "data of R"),
    ("g.RData", lzma.compress(b"RDX2\n"), "data of R"),
    ("g.tar.bz2", bz2.compress(tarred()), "a tar archive"),
    ("g.txt.lzma", lzma.compress(b"0 1\n", lzma.FORMAT_ALONE), "lzma data.*unlzma"),
    ("g.txt.zst", b"\x28\xb5\x2f\xfd\x04\x00", "zstd data"),
    ("g.7z", b"7z\xbc\xaf\x27\x1c", "7z archive"), ("g.rar", b"Rar!\x1a\x07\x00", "RAR archive"),
    ("g.txt", b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "a PDF"),
    ("g.txt", b"\x17BU..\n", "binary data of no known format"),
    ("g.graph", b"B\n\x80\x03\x01", "binary data of no known format"),
    ("g.csv", b"\x89PNG\r\n\x1a\n\0\0", "binary data"),
    ("g.mtx", b"\x80\x81\x82\x83" * 30, "binary data"),
    ("g.txt.gz", gzip.compress(bytes(99)), "binary data"),
    ("g.txt.xz", lzma.compress(bytes(99)), "binary data"),
    ("g.txt", b"# fine so far\n\0\1\2 7\n", "binary data"),
]


@pytest.mark.parametrize("name, content, message", FILES)
def test_it_is_named(tmp_path, name, content, message):
    refused(rf"{re.escape(name)}: is .*{message}", put(tmp_path / name, content))


def test_what_libraries_write(tmp_path):
    np.save(tmp_path / "g.npy", np.zeros((2, 5), int))
    with closing(sqlite3.connect(tmp_path / "g.db")) as base:
        base.execute("CREATE TABLE edges (source, target)")
    with h5py.File(tmp_path / "g7.mat", "w", userblock_size=512) as file:
        file["A"] = np.eye(3)
    with open(tmp_path / "g7.mat", "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file")
    feather = pytest.importorskip("pyarrow.feather")
    feather.write_feather(pytest.importorskip("pyarrow").table({"u": [1]}), tmp_path / "g.feather")
    said = {"g7.mat": "MATLAB 7.3", "g.npy": "a single NumPy array",
            "g.db": "an SQLite database", "g.feather": "Arrow or Feather"}
    for name, what in said.items():
        refused(f"{name}: is {what}", tmp_path / name)


def test_neighbors_tell(tmp_path):
    assert read(put(tmp_path / "MUTAG_A.txt", "1, 2\n2, 1\n"))[0].header.num_edges == 2
    put(tmp_path / "MUTAG_graph_indicator.txt", "1\n1\n")
    for name in ("MUTAG_A.txt", "MUTAG_graph_indicator.txt"):
        refused("TU dataset of many graphs", tmp_path / name)
    put(tmp_path / "web.properties", "#BVGraph properties\nnodes=5\n")
    put(tmp_path / "web.graph", b"\x17BU\x00\x91")
    for name in ("web.properties", "web.graph"):
        refused(r"BVGraph.*ArcListASCIIGraph", tmp_path / name)


@pytest.mark.parametrize("unit", [b"/*", b"/* */ ", b"//\n", b"creator a\n \n", b"c\n", b"a,",
                                  b"graph ", b"\t"])
def test_no_bytes_make_it_search_for_ever(tmp_path, unit):
    put(tmp_path / "g.txt", unit * (4096 // len(unit)))
    with suppress(DataError):  # names, some of them
        read(tmp_path / "g.txt")


@pytest.mark.parametrize("name, content", [
    ("roads.net", b"0 1\n1 2\n"), ("g.gr", b"0 1\n"), ("g.json", b"% c\n0 1\n"),
    ("g.edges", b"0 1\n"), ("g.dat", b"3 4\n"),
    ("g.txt", b"3 3\n1 2\n2 3\n3 1\n"), ("g.txt", b"2 1\n1 2\n"),
    ("g.txt", b"4 3\n0 1\n1 2\n2 3\n"),
    ("g.csv", b"3,3\n2,3\n1,3\n1,2\n"), ("g.csv", "# Größe\n0,1\n".encode("latin-1")),
    ("g.txt", "# Réseau\n0 1\n".encode("latin-1")), ("out.moreno", b"% sym\n0 1\n"),
    ("g.net", b"# comment\n" * 500 + b"0 1\n"), ("g.txt", b"# " + b"c" * 5000 + b"\n0 1\n"),
])
def test_edge_lists_are_still_read(tmp_path, name, content):
    assert read(put(tmp_path / name, content))[0].header.num_edges >= 1


def test_a_format_that_is_given_decides_over_the_name(tmp_path):
    path = put(tmp_path / "g.graph", b"0 1\n1 2\n")
    assert read(path, "snap")[0].header.num_edges == 2
    path.write_bytes(b"3 3\n2 3\n1 3\n1 2\n")
    graph, notes = read(path, "snap")
    assert graph.header.num_edges == 3 and "line 1 (3 3) is read as" in " ".join(notes)
    for fmt in ("snap", "csv", "mtx", "npz", "parquet"):
        path.write_bytes(pickle.dumps([1]))
        refused("is a pickle", path, fmt)


@pytest.mark.parametrize("content, fmt, known", [
    (b"<graphml>", "snap", "GraphML, not snap: use --format graphml"),
    (b"*Vertices 3\n", "csv", "Pajek, not csv: use --format pajek"),
    (zipped("g/data.pkl"), "npz", "a PyTorch file, not npz: use --format pt")])
def test_another_format_than_was_asked_for(tmp_path, content, fmt, known):
    refused(f"is {known}", put(tmp_path / "g.txt", content), fmt)


@pytest.mark.parametrize("content, kind", [
    (b"0.5,1\n", "text: rename it"), (b"", "empty: write"),
    (pickle.dumps([1]), "a pickle: write"), (zipped("a/data.pkl"), "a PyTorch file: write"),
    (HDF5, "an HDF5 file: write"), (METIS, "text: rename it"), (b"[1, 2]", "text: rename")])
@pytest.mark.parametrize("field", ["features", "labels"])
def test_features_and_labels(tmp_path, field, content, kind):
    path = put(tmp_path / "y.npy", content)
    refused(rf"y\.npy: not an array in \.npy format but {kind}", "karate",
            **{field: path})


def test_labels_in_an_archive(tmp_path):
    np.savez(tmp_path / "y.npz", y=np.zeros(34, int))
    refused(r"y\.npz: an \.npz, expected an array in \.npy format", "karate",
            labels=tmp_path / "y.npz")

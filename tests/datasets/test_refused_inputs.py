"""Invalid inputs raise the right class of error, and the message names the place."""
import gzip
import os

import numpy as np
import pytest
import scipy.sparse as sp
from inputs import put, refused

from hpgcn.datasets.convert import read
from hpgcn.errors import DataError, InputNotFoundError, UsageError

M = b"%%MatrixMarket matrix coordinate pattern general\n"
R = b"%%MatrixMarket matrix coordinate real general\n"
GZ = gzip.compress(b"0 1\n" * 5000)

TEXT = [  # name, content, expected message
    ("g.mtx", M + b"3 3\n1 2\n", r"line 2: '3 3', expected the numbers"),
    ("g.mtx", M, r"end of the file, expected the numbers"),
    ("g.mtx", M + b"3 3 1\n1 2 5\n", r"line 3: more than 2 fields"),
    ("g.mtx", M + b"3 3 1\n1\n", r"line 3: 1 field\(s\), expected 2"),
    ("g.mtx", R.replace(b"real", b"integer") + b"3 3 1\n1 2 1.5\n",
     r"line 3: value is '1\.5', expected an integer"),
    ("g.mtx", R.replace(b"real", b"complex") + b"3 3 1\n1 2 1 1\n", r"line 1: 'complex'"),
    ("g.mtx", R.replace(b"coordinate", b"list") + b"1 1\n1\n", r"line 1: 'list'"),
    ("g.mtx", R.replace(b"general", b"hermitian") + b"1 1 0\n", r"line 1: 'hermitian'"),
    ("g.mtx", M.replace(b"general", b"skew-symmetric") + b"2 2 1\n2 1\n", r"line 1: .*skew-symm"),
    ("g.mtx", R.replace(b"general", b"skew-symmetric") + b"2 2 1\n2 2 1\n",
     r"entry 1 is 1\.0 at \(2, 2\)"), ("g.mtx", b"%%MatrixMarket\n1 1 0\n", r"line 1: banner"),
    ("g.csv", b"source,target\n", r"no edges"),
    ("g.txt", b"from where\n0 1\n", r"line 1: columns from, where: which two columns are the ends"),
    ("g.txt", b"from\tto\n0 1\n", r"line 2: 1 field\(s\), expected 2 separated by"),
    ("g.txt", b"0 1 2\n2 3\n", r"line 2: 2 field\(s\), expected 3"),
    ("g.txt", b"0\n", r"line 1: 1 field"),
    ("g.txt", b"0 1 2 3\n", r"line 1: 4 columns without a header: name each, as in --columns u,"),
    ("g.txt", b"0 1 nan\n", r"line 1: weight is 'nan'"),
    ("g.txt", b"0 1 1\n0 1 0x10\n", r"line 2: weight is '0x10'"),
    ("g.txt", "0 1\n".encode("utf-16-le"), r"is binary data of no known format"),
    ("g.csv", b"0,1\n1;2\n", r"line 2: first id is '1;2'"),
    ("g.csv", b"0,1\n1,,2\n", r"line 2: second id is ''"),
    ("g.csv", b"0,1\n1 2\n", r"line 2: 1 field\(s\), expected 2 separated by ','"),
    ("g.csv", b"u,v\nc,d\n0,1\n", r"line 2: first id is 'c'"),
    ("g.csv", b"u,v\n0.0,1\n1,2.5\n", r"line 3: second id is '2\.5', expected an integer$"),
    ("g.csv", b"u;v;w\n0;1;0,5\n", "line 2: weight is '0,5', .* with a decimal point"),
    ("g.csv", b"u,v\n0,1\n1,2\nB0,2\n",
     "first id is 'B0', .*; ids are read as names if most edges"),
    ("g.csv", b"u,v\nJos\xe9,b\n", "line 2: not UTF-8 .* iconv -f LATIN1 -t UTF-8 FILE"),
    ("g.csv", b"0,1,0,.5\n" * 4, r"4 columns of numbers: for a matrix .*loadtxt.FILE, delimiter"),
    ("g.csv", b"0.5,1\n", r"line 1: first id is '0\.5'"),
    ("g.txt", b"1" * (1 << 21), r"line 1 has more than 1048576 bytes"),
    ("g.txt", b"# hpgcn rmat: vertices 99999999999999, edges 1\n0 1\n",
     r"99999999999999 vertices: needs"), ("g.txt.gz", GZ[:-9], r"broken gzip data"),
    ("g.txt.gz", GZ[:40] + b"\xff" + GZ[41:], r"broken gzip data|line \d+"),
    ("g.txt.gz", GZ[:-8] + bytes(8), r"broken gzip data")]


@pytest.mark.parametrize("name, content, message", TEXT)
def test_text(tmp_path, name, content, message):
    path = put(tmp_path / name, content)
    assert refused(message, path).startswith(str(path))


CSR = {"adj_data": np.ones(3), "adj_indices": [1, 1, 0], "adj_indptr": [0, 1, 2, 3],
       "adj_shape": [3, 3]}
Y = {**CSR, "y": [0, 1, 0]}

ARRAYS = [  # arrays of an archive; part of the message
    ({**CSR, "adj_indptr": [[0, 1, 2, 3]]}, r"shape \(1, 4\)"),
    ({**CSR, "adj_shape": [-3, -3]}, r"adj_shape: "), ({**CSR, "adj_shape": [3]}, r"adj_shape: "),
    ({**CSR, "adj_shape": [2**62, 2**62]}, r"row pointers"),
    ({"adj_shape": [3, 3]}, r"expected adj_indices, adj_indptr and adj_shape, or edge_index"),
    ({**CSR, "adj_data": np.ones(2)}, r"adj data: shape \(2,\), expected \(3,\)"),
    ({**CSR, "adj_data": ["a", "b", "c"]}, r"adj_data: dtype <U1"),
    ({**CSR, "x": np.ones(3)}, r"features have shape \(3,\), expected \(3, f\)"),
    ({**CSR, "attr_data": [1.0], "attr_indices": [0], "attr_indptr": [0, 1, 1, 1]},
     r"no array attr_shape"), ({**CSR, "y": [0, 1]}, r"labels have shape \(2,\)"),
    ({**Y, "train_idx": [0, 3]}, r"train_idx: entry 1 is 3, expected 0\.\.2"),
    ({**Y, "train_mask": np.zeros((4, 10), bool)},
     r"train_mask: shape \(4, 10\), expected \(3,\), or \(3, s\) or \(s, 3\) for s splits"),
    ({**Y, "train_mask": np.zeros((3, 10), bool)}, r"split 0: train mask is empty"),
    ({**Y, "val_masks": np.ones((3, 3, 3), bool)}, r"val_masks: shape \(3, 3, 3\)"),
    ({**Y, "train_masks": np.eye(3)}, r"train_masks: shape \(3, 3\), the number of splits equals"),
    ({**Y, "train_masks": [[0, 1, 0], [0, 2, 1]]}, r"train_masks: entry \(1, 1\) is 2"),
    ({**Y, "train_masks": np.eye(3)[:2], "val_masks": np.eye(3)[[1, 1]]},
     r"split 1: vertex 1 is in both the train and the val mask"),
    ({**Y, "train_masks": np.eye(3)[:2], "val_masks": np.eye(3)[[2]].repeat(4, 0)},
     r"2 train masks, 4 val masks, expected the same number of each"),
    ({"edges": [[0, 1, 2]]}, r"edges: .*shape \(1, 3\), expected integers \(e, 2\)"),
    ({"edges": [[0, 1], [2, 5]], "node_features": np.ones((3, 1))},
     r"edges column 1: entry 1 is 5, expected 0\.\.2"),
    ({**Y, "train_mask": [0, 1, 2]}, r"train_mask: entry 2 is 2"),
    ({**Y, "train_idx": [0.0]}, r"train_idx: dtype float64"),
    ({"edge_index": [[0, 1, 2]]}, r"edge_index: .*shape \(1, 3\)"),
    ({"edge_index": [[0, 1], [1, 5]], "num_nodes": 3},
     r"edge_index row 1: entry 1 is 5, expected 0\.\.2"),
    ({"edge_index": [[0], [1]], "num_nodes": -1}, r"num_nodes"),
    ({"edge_index": [[0], [1]], "num_nodes": [2, 2]}, r"num_nodes"),
    ({"edge_index": [[0], [5]], "x": np.ones((3, 1))},
     r"edge_index row 1: entry 0 is 5, expected 0\.\.2"),
    ({"edge_index": np.empty((2, 0), int)}, r"no edges, expected two ids each")]


@pytest.mark.parametrize("arrays, message", ARRAYS)
def test_npz(tmp_path, arrays, message):
    path = tmp_path / "g.npz"
    np.savez(path, **arrays)
    assert refused(message, path).startswith(str(path))


def npy(dtype, shape, data=b""):
    """Return the bytes of an .npy file with this dtype, shape and data."""
    header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}".encode()
    text = header + b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize("content, message", [
    (npy("'<f8'", "(35184372088832,)"), r"takes 281474976710656 b"),
    (npy("'<f8'", "(34, 1)", bytes(300)), r"takes 272 bytes, but the file has 300"),
    (npy("[('a', '<f8')]", "(34,)", bytes(272)), r"dtype"),
    (npy("'<f8'", "(-34, -1)", bytes(272)), r"F\.npy: "),
    (npy("__import__('os').system('true')", "()"), r"not an array"),
    (npy("'<f8'", "()", bytes(8)), r"shape \(\), expected 34 rows")])
def test_features_file(tmp_path, content, message):
    path = put(tmp_path / "F.npy", content)
    assert str(path) in refused(message, "karate", features=path)


def test_features_npz(tmp_path):
    path = tmp_path / "F.npz"
    np.savez(path, a=np.ones((34, 1)), b=np.ones((34, 1)))
    refused(r"F\.npz: arrays a, b, expected one", "karate", features=path)
    X = sp.csr_matrix(np.eye(34))
    X.indices[7] = 99
    sp.save_npz(path, X)
    refused(r"indices: entry 7 is 99, expected 0\.\.33", "karate", features=path)
    sp.save_npz(path, sp.dia_matrix(np.eye(34)))
    refused(r"'dia', expected csr, csc or coo", "karate", features=path)
    np.savez(path, format=np.array("csr"), shape=np.array([34, 5]))
    refused(r"no array data", "karate", features=path)


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused("is a directory", tmp_path)
    for missing in ("nothing.txt", "a/b", "", "x\0y", "y" * 5000):
        with pytest.raises(InputNotFoundError if missing else (InputNotFoundError, DataError)):
            read(missing)
    with pytest.raises(InputNotFoundError, match="digits or karate"):
        read("cora")
    os.mkfifo(tmp_path / "pipe")
    refused("not a regular file", tmp_path / "pipe")
    with pytest.raises(InputNotFoundError, match=r"none\.npy"):
        read("karate", features="none.npy")
    with pytest.raises(UsageError, match="format 'xml'"):
        read("karate", fmt="xml")
    refused(r"ind\.NAME\.graph", put(tmp_path / "g.txt", "0 1\n"), fmt="planetoid")


def test_gzip_bomb(tmp_path):
    path = put(tmp_path / "g.txt.gz", gzip.compress(b"0 1\n" * (1 << 21)))
    assert path.stat().st_size < 60_000
    refused(r"g\.txt\.gz: needs \d+ bytes of memory, but the limit is", path, memory=2 * 10**7)


def test_valid_but_larger_than_the_budget(tmp_path):
    path = put(tmp_path / "g.mtx", M + b"1000000 1000000 1\n1 2\n")
    refused(r"line 2: 1000000 rows and 1 entries: needs", path, memory=10_000_000)
    assert read(path)[0].header.num_nodes == 1_000_000


def mutated(content, rng):
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        content[rng.integers(len(content))] = rng.integers(256)
    return bytes(content[:rng.integers(len(content))]) if rng.random() < 0.2 else bytes(content)


@pytest.mark.long
@pytest.mark.parametrize("name", ["g.npz", "g.mtx", "g.txt", "g.csv", "g.txt.gz", "g.parquet"])
def test_mutations_are_read_or_refused_in_one_line(tmp_path, name):
    path = tmp_path / name
    if name == "g.npz":
        np.savez_compressed(path, **Y, x=np.eye(3), train_idx=[0])
    if name == "g.parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"u": np.arange(100), "v": np.arange(100)[::-1]}), path)
    content = {"g.mtx": R + b"% c\n4 4 3\n1 2 0.5\n3 4 -1e2\n4 4 7\n",
               "g.txt": b"# c\n0 1 0.5\n2 3 1e2\n3 3 7\n", "g.csv": b"u,v\n0,1\n2,3\n",
               "g.txt.gz": gzip.compress(b"0 1\n2 3\n")}.get(name) or path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        path.write_bytes(mutated(content, rng))
        try:
            read(path, memory=1 << 28)
        except DataError as error:
            assert "\n" not in str(error) and str(path) in str(error)
            refused += 1
    assert refused > 20

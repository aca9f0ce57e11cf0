"""Bad inputs: what is refused, as which error, and that the message names the place."""
import gzip
import os
import pathlib

import numpy as np
import pytest
import scipy.sparse as sp
from inputs import put, refused

from hpgcn.datasets.convert import read
from hpgcn.errors import DataError, InputNotFoundError, UsageError

M = b"%%MatrixMarket matrix coordinate pattern general\n"
R = b"%%MatrixMarket matrix coordinate real general\n"
GZ = gzip.compress(b"0 1\n" * 5000)

TEXT = [  # name, content, what the message says
    ("g.mtx", M + b"3 3 2\n1 2\n4 1\n", r"line 4: row is '4', expected 1\.\.3"),
    ("g.mtx", M + b"3 3 2\n1 0\n1 1\n", r"line 3: column is '0', expected 1\.\.3"),
    ("g.mtx", M + b"%c\n3 3 1\n-1 1\n", r"line 4: row is '-1'"),
    ("g.mtx", M + b"3 3 3\n1 2\n2 1\n", r"ends after line 4 with 2 entries, the header says 3"),
    ("g.mtx", M + b"3 3 1\n1 2\n\n2 1\n", r"line 5: more entries than the header says"),
    ("g.mtx", M + b"3 3 4000000000000\n1 2\n", r"line 2: 4000000000000 entries declared"),
    ("g.mtx.gz", gzip.compress(M + b"3 3 4000000000000\n1 2\n"),
     r"line 2: 4000000000000 entries declared"),
    ("g.mtx", M + b"9223372036854775807 2 1\n1 2\n",
     r"line 2: 9223372036854775807 rows and 2 columns.*square"),
    ("g.mtx", M + b"9223372036854775807 9223372036854775807 1\n1 2\n", r"line 2: .*memory"),
    ("g.mtx", M + b"99999999999999999999 99999999999999999999 1\n1 2\n",
     r"line 2: '9+.*expected the numbers"),
    ("g.mtx", M + b"3 3\n1 2\n", r"line 2: '3 3', expected the numbers"),
    ("g.mtx", M + b"3 3 -1\n1 2\n", r"line 2"),
    ("g.mtx", M, r"end of the file, expected the numbers"),
    ("g.mtx", M + b"0 0 0\n", r"no vertices"),
    ("g.mtx", M + b"3 3 1\n1 2 5\n", r"line 3: more than 2 fields"),
    ("g.mtx", M + b"3 3 1\n1\n", r"line 3: 1 field\(s\), expected 2"),
    ("g.mtx", R + b"3 3 1\n1 2\n", r"line 3: 2 field\(s\), expected 3"),
    ("g.mtx", R + b"3 3 2\n1 2 1\n1 1 nan\n", r"line 4: value is 'nan', expected a finite number"),
    ("g.mtx", R + b"3 3 2\n1 2 1\n1 1 -Inf\n", r"line 4: value is '-Inf'"),
    ("g.mtx", R + b"3 3 2\n1 2 1\n1 1 1e999\n", r"line 4: .*1e999"),
    ("g.mtx", R + b"3 3 1\n1 2 1e39\n", r"weight \(as float32\)"),
    ("g.mtx", R.replace(b"real", b"integer") + b"3 3 1\n1 2 1.5\n",
     r"line 3: value is '1\.5', expected an integer"),
    ("g.mtx", R.replace(b"real", b"complex") + b"3 3 1\n1 2 1 1\n", r"line 1: 'complex'"),
    ("g.mtx", R.replace(b"coordinate", b"array") + b"1 1\n1\n", r"line 1: 'array'"),
    ("g.mtx", R.replace(b"general", b"hermitian") + b"1 1 0\n", r"line 1: 'hermitian'"),
    ("g.mtx", M.replace(b"general", b"skew-symmetric") + b"2 2 1\n2 1\n",
     r"line 1: .*skew-symmetric"),
    ("g.mtx", R.replace(b"general", b"skew-symmetric") + b"2 2 1\n2 2 1\n",
     r"entry 1 is 1\.0 at \(2, 2\)"),
    ("g.mtx", b"%%MatrixMarket\n1 1 0\n", r"line 1: banner"),
    ("g.mtx", b"3 3 1\n1 2\n", r"line 1: no %%MatrixMarket banner"),
    ("g.mtx", b"", r"line 1: no %%MatrixMarket banner"),
    ("g.txt", b"", r"no edges"),
    ("g.txt", b"\xef\xbb\xbf", r"no edges"),
    ("g.txt", b"# only\n\n# comments\n", r"no edges in 3 lines"),
    ("g.csv", b"source,target\n", r"no edges"),
    ("g.txt", b"0 1\n2 -7\n", r"line 2: second id is '-7', expected 0 or more"),
    ("g.txt", b"# c\n0 1\n\n1.5 2\n", r"line 4: first id is '1\.5', expected an integer"),
    ("g.txt", b"0 1\n1e3 2\n", r"line 2: first id is '1e3'"),
    ("g.txt", b"from where\n0 1\n", r"line 1: columns from, where: which are the ends"),
    ("g.txt", b"from\tto\n0 1\n", r"line 2: 1 field\(s\), expected 2 separated by"),
    ("g.txt", b"0 1\nzero one\n", r"line 2: first id is 'zero'"),
    ("g.txt", b"0 1\n12345678901234567890 2\n",
     r"line 2: first id is '12345678901234567890', expected.*64 bits"),
    ("g.txt", b"0 9223372036854775808\n", r"line 1: second id is '9223372036854775808'"),
    ("g.txt", b"0 1\n2\n", r"line 2: 1 field\(s\), expected 2"),
    ("g.txt", b"0 1\n2 3 4\n", r"line 2: more than 2 fields"),
    ("g.txt", b"0 1 2\n2 3\n", r"line 2: 2 field\(s\), expected 3"),
    ("g.txt", b"0\n", r"line 1: 1 field"),
    ("g.txt", b"0 1 2 3\n",
     r"line 1: 4 columns without a header: name each, as in --columns u,v,-,-"),
    ("g.txt", b"0 1 nan\n", r"line 1: weight is 'nan'"),
    ("g.txt", b"0 1 1\n0 1 inf\n", r"line 2: weight is 'inf'"),
    ("g.txt", b"0 1 1\n0 1 0x10\n", r"line 2: weight is '0x10'"),
    ("g.txt", b"0 1\n\x00\x01 2\n", r"line 2: first id"),
    ("g.txt", "0 1\n".encode("utf-16"), r"is UTF-16 text, which is not read: iconv"),
    ("g.txt", "0 1\n".encode("utf-16-le"), r"is binary data of no known format"),
    ("g.csv", b"0,1\n1;2\n", r"line 2: first id is '1;2'"),
    ("g.csv", b"0,1\n1,,2\n", r"line 2: second id is ''"),
    ("g.csv", b"0,1\n1,2,\n", r"line 2: more than 2 fields"),
    ("g.csv", b"0,1\n1 2\n", r"line 2: 1 field\(s\), expected 2 separated by ','"),
    ("g.csv", b"u,v,c,d\n0,1,2,3\n", r"line 1: columns u, v, c, d: c is not known"),
    ("g.csv", b"u,v\n0,1,2\n", r"line 2: more than 2 fields"),
    ("g.csv", b"u,v\nc,d\n0,1\n", r"line 2: first id is 'c'"),
    ("g.csv", b"0.5,1\n", r"line 1: first id is '0\.5'"),
    ("g.txt", b"1" * (1 << 21), r"line 1 has more than 1048576 bytes"),
    ("g.txt", b"0 1\n" + b"1" * (1 << 21), r"line 2 has more than 1048576 bytes"),
    ("g.txt", b"# hpgcn rmat: vertices 4, edges 1\n0 1\n4 5\n",
     r"line 3: first id is '4', expected 0\.\.3"),
    ("g.txt", b"# hpgcn rmat: vertices 99999999999999, edges 1\n0 1\n",
     r"99999999999999 vertices: needs"),
    ("g.txt.gz", GZ[:-9], r"broken gzip data"),
    ("g.txt.gz", GZ[:40] + b"\xff" + GZ[41:], r"broken gzip data|line \d+"),
    ("g.txt.gz", GZ[:-8] + bytes(8), r"broken gzip data"),
    ("g.npz", b"", r"broken data"),
    ("g.npz", b"0 1\n", r"broken data"),
    ("g.npz", b"PK\x03\x04 and no more", r"broken data"),
    ("g.h5", b"\x89HDF\r\n\x1a\n", r"HDF5"),
]


@pytest.mark.parametrize("name, content, message", TEXT)
def test_text(tmp_path, name, content, message):
    path = put(tmp_path / name, content)
    assert refused(message, path).startswith(str(path))


CSR = {"adj_data": np.ones(3), "adj_indices": np.array([1, 1, 0]),
       "adj_indptr": np.array([0, 1, 2, 3]),
       "adj_shape": np.array([3, 3])}
OBJECT = np.array([None, 1, 2], dtype=object)

ARRAYS = [  # what replaces arrays of a valid file, what the message says
    ({"adj_indices": np.array([1, 3, 0])}, r"indices: entry 1 is 3, expected 0\.\.2"),
    ({"adj_indices": np.array([1, 1, -1])}, r"indices: entry 2 is -1"),
    ({"adj_indices": np.array([1, 2**40, 0])}, r"indices: entry 1 is 1099511627776"),
    ({"adj_indices": np.array([1.0, 1, 0])}, r"indices: dtype float64"),
    ({"adj_indptr": np.array([0, 2, 1, 3])}, r"row pointers fall from 2 to 1 at row 1"),
    ({"adj_indptr": np.array([1, 1, 2, 3])}, r"row pointers start at 1"),
    ({"adj_indptr": np.array([0, 1, 2, 4])}, r"row pointers end at 4, but there are 3"),
    ({"adj_indptr": np.array([0, 3])}, r"2 row pointers, expected 4"),
    ({"adj_indptr": np.array([[0, 1, 2, 3]])}, r"shape \(1, 4\)"),
    ({"adj_shape": np.array([3, 4])}, r"shape: \(3, 4\), expected a square"),
    ({"adj_shape": np.array([-3, -3])}, r"adj_shape: "),
    ({"adj_shape": np.array([3])}, r"adj_shape: "),
    ({"adj_shape": np.array([2**62, 2**62])}, r"row pointers"),
    ({"adj_shape": None}, r"no array adj_shape"),
    ({"adj_data": None, "adj_indptr": None, "adj_indices": None},
     r"expected adj_indices, adj_indptr and adj_shape, or edge_index"),
    ({"adj_data": np.ones(2)}, r"adj data: shape \(2,\), expected \(3,\)"),
    ({"adj_data": np.array([1, np.nan, 1])}, r"weight at 1 is nan"),
    ({"adj_data": np.array([1, 1, np.inf])}, r"weight at 2 is inf"),
    ({"adj_data": np.ones(3, complex)}, r"adj_data: dtype complex128"),
    ({"adj_data": OBJECT}, r"adj_data: dtype object"),
    ({"adj_data": np.array(["a", "b", "c"])}, r"adj_data: dtype <U1"),
    ({"x": np.ones((4, 2))}, r"features have shape \(4, 2\), expected \(3, f\)"),
    ({"x": np.ones(3)}, r"features have shape \(3,\)"),
    ({"x": np.array([[0, 1], [np.nan, 0], [0, 0]])}, r"feature at \(1, 0\) is nan"),
    ({"x": np.array([[0, 1], [0, 0], [0, 1e300]])}, r"feature at \(2, 1\) is inf"),
    ({"x": np.array([OBJECT])}, r"x: dtype object"),
    ({"attr_data": np.ones(1), "attr_indices": np.array([0]),
      "attr_indptr": np.array([0, 1, 1, 1])},
     r"no array attr_shape"),
    ({"attr_data": np.ones(1), "attr_indices": np.array([7]), "attr_indptr": np.array([0, 1, 1, 1]),
      "attr_shape": np.array([3, 4])}, r"attr indices: entry 0 is 7, expected 0\.\.3"),
    ({"attr_data": np.array([np.inf]), "attr_indices": np.array([2]),
      "attr_indptr": np.array([0, 0, 1, 1]),
      "attr_shape": np.array([3, 4])}, r"feature at \(1, 2\) is inf"),
    ({"y": np.array([0, 1])}, r"labels have shape \(2,\)"),
    ({"y": np.array([0, -2, 1])}, r"label of vertex 1 is -2"),
    ({"y": np.array([0, 0.5, 1])}, r"label of vertex 1 is 0\.5"),
    ({"y": np.array([0, 2**40, 1])}, r"label of vertex 1"),
    ({"y": np.array(["a", "b", "c"])}, r"y: dtype <U1"),
    ({"y": np.array([[0, 2], [0, 1], [0, 1]])}, r"multi-label entry at \(0, 1\)"),
    ({"y": np.array([0, 1, 0]), "train_mask": np.zeros(3, bool)}, r"train mask is empty"),
    ({"y": np.array([0, 1, 0]), "train_idx": np.array([0, 3])},
     r"train_idx: entry 1 is 3, expected 0\.\.2"),
    ({"y": np.array([0, 1, 0]), "train_idx": np.array([0, 1]), "test_idx": np.array([1, 2])},
     r"vertex 1 is in both the train and the test"),
    ({"y": np.array([0, -1, 0]), "train_idx": np.array([0, 1])},
     r"vertex 1 is in the train mask but has no label"),
    ({"y": np.array([0, 1, 0]), "train_mask": np.zeros((3, 10), bool)},
     r"train_mask: shape \(3, 10\)"),
    ({"y": np.array([0, 1, 0]), "train_mask": np.array([0, 1, 2])}, r"train_mask: entry 2 is 2"),
    ({"y": np.array([0, 1, 0]), "train_idx": np.array([0.0])}, r"train_idx: dtype float64"),
]


@pytest.mark.parametrize("changes, message", ARRAYS)
def test_npz(tmp_path, changes, message):
    path = tmp_path / "g.npz"
    np.savez(path, **{key: array for key, array in {**CSR, **changes}.items() if array is not None})
    assert refused(message, path).startswith(str(path))


@pytest.mark.parametrize("arrays, message", [
    ({"edge_index": np.array([[0, 1, 2]])}, r"edge_index: .*shape \(1, 3\)"),
    ({"edge_index": np.array([[0.0], [1.0]])}, r"edge_index: dtype float64"),
    ({"edge_index": np.array([[0, -1], [1, 0]])}, r"edge_index row 0: entry 1 is -1"),
    ({"edge_index": np.array([[0, 1], [1, 5]]), "num_nodes": 3},
     r"edge_index row 1: entry 1 is 5, expected 0\.\.2"),
    ({"edge_index": np.array([[0], [1]]), "num_nodes": 10**15},
     r"num_nodes: 1000000000000000 vertices"),
    ({"edge_index": np.array([[0], [1]]), "num_nodes": -1}, r"num_nodes"),
    ({"edge_index": np.array([[0], [1]]), "num_nodes": np.array([2, 2])}, r"num_nodes"),
    ({"edge_index": np.array([[0], [5]]), "x": np.ones((3, 1))},
     r"edge_index row 1: entry 0 is 5, expected 0\.\.2"),
    ({"edge_index": np.empty((2, 0), int)}, r"no vertices"),
])
def test_edge_index(tmp_path, arrays, message):
    path = tmp_path / "g.npz"
    np.savez(path, **arrays)
    refused(message, path)


def npy(header, data=b""):
    text = header.encode() + b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize("content, message", [
    (b"", r"not an array"),
    (b"text", r"not an array"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (35184372088832,)}"),
     r"takes 281474976710656 b"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (34, 2)}", bytes(100)),
     r"takes 544 bytes, but 100"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (34, 1)}", bytes(300)),
     r"takes 272 bytes, but 300"),
    (npy("{'descr': '|O', 'fortran_order': False, 'shape': (34, 2)}", bytes(544)), r"dtype object"),
    (npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (34,)}", bytes(272)),
     r"dtype"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-34, -1)}", bytes(272)), r"F\.npy: "),
    (npy("__import__('os').system('true')"), r"not an array"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 2)}", bytes(48)),
     r"shape \(3, 2\), expected 34 rows"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': ()}", bytes(8)),
     r"shape \(\), expected 34 rows"),
])
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
    X = np.eye(34)
    X[3, 4] = np.nan
    np.save(tmp_path / "F.npy", X)
    refused(r"F\.npy: feature at \(3, 4\) is nan", "karate", features=tmp_path / "F.npy")
    np.save(tmp_path / "y.npy", np.full(34, -3))
    refused(r"y\.npy: label of vertex 0 is -3", "karate", labels=tmp_path / "y.npy")


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused("is a directory", tmp_path)
    for missing in ("nothing.txt", "cora", "a/b", "", "x\0y", "y" * 5000):
        with pytest.raises((InputNotFoundError, DataError) if not missing else InputNotFoundError):
            read(missing)
    with pytest.raises(InputNotFoundError, match="digits or karate"):
        read("cora")
    os.mkfifo(tmp_path / "pipe")
    refused("not a regular file", tmp_path / "pipe")
    with pytest.raises(InputNotFoundError, match=r"none\.npy"):
        read("karate", features="none.npy")
    with pytest.raises(UsageError, match="format 'xml'"):
        read("karate", fmt="xml")
    with pytest.raises(DataError, match=r"ind\.NAME\.graph"):
        pathlib.Path("g.txt").write_text("0 1\n")
        read("g.txt", fmt="planetoid")


def test_gzip_bomb(tmp_path):
    path = tmp_path / "g.txt.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range(40):
            file.write(b"0 1\n" * (1 << 18))
    assert path.stat().st_size < 300_000
    refused(r"g\.txt\.gz: needs \d+ bytes of memory, the limit is 100000000", path,
            memory=100_000_000)


def test_valid_but_larger_than_the_budget(tmp_path):
    path = put(tmp_path / "g.mtx", M + b"1000000 1000000 1\n1 2\n")
    refused(r"line 2: 1000000 rows and 1 entries: needs", path, memory=10_000_000)
    assert read(path)[0].header.num_nodes == 1_000_000


def mutated(content, rng):
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        content[rng.integers(len(content))] = rng.integers(256)
    return bytes(content[:rng.integers(len(content))]) if rng.random() < 0.2 else bytes(content)


@pytest.mark.parametrize("name", ["g.npz", "g.mtx", "g.txt", "g.csv", "g.txt.gz"])
def test_mutations_are_read_or_refused_in_one_line(tmp_path, name):
    path = tmp_path / name
    np.savez_compressed(tmp_path / "g.npz", **CSR, x=np.eye(3), y=np.array([0, 1, 0]),
                        train_idx=np.array([0]))
    content = {"g.npz": (tmp_path / "g.npz").read_bytes(),
               "g.mtx": R + b"% c\n4 4 3\n1 2 0.5\n3 4 -1e2\n4 4 7\n",
               "g.txt": b"# c\n0 1 0.5\n2 3 1e2\n3 3 7\n", "g.csv": b"u,v\n0,1\n2,3\n",
               "g.txt.gz": gzip.compress(b"0 1\n2 3\n")}
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        path.write_bytes(mutated(content[name], rng))
        try:
            read(path, memory=1 << 28)
        except DataError as error:
            assert "\n" not in str(error) and str(path) in str(error)
            refused += 1
    assert refused > 20

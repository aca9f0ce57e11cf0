"""Invalid arrays, pickles, part vectors and graphs in memory.

They follow the rows of docs/reliability.md.
"""
import gzip
import io
import os
import pickle
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from fuzz_files import planetoid
from in_process import refused, succeed

from hpgcn import Graph, store
from hpgcn.errors import DataError

CSR = {"adj_indices": np.array([1, 2, 0]), "adj_indptr": np.array([0, 1, 2, 3]),
       "adj_shape": np.array([3, 3])}
EDGES = {"edge_index": np.array([[0, 1], [1, 2]])}
Y = {**CSR, "y": np.array([0, 1, 0])}
X = {"attr_data": np.ones(1), "attr_indices": np.array([0]), "attr_indptr": np.array([0, 1, 1, 1]),
     "attr_shape": np.array([3, 4])}

ARCHIVES = {
    "05-weight-nan": ({**CSR, "adj_data": np.array([1, np.nan, 1])}, r"weight at 1 is nan"),
    "05-feature-inf": ({**CSR, "x": np.array([[0, 1], [0, -np.inf], [0, 0]])},
                       r"feature at \(1, 1\) is -inf"),
    "05-sparse-feature-nan": ({**CSR, **X, "attr_data": np.array([np.nan])},
                              r"feature at \(0, 0\) is nan"),
    "08-edge-index": ({"edge_index": [[0, -1], [1, 0]]}, r"edge_index row 0: entry 1 is -1"),
    "09-edge-index-float": ({"edge_index": np.array([[0.0], [1.0]])}, r"edge_index: dtype float64"),
    "10-num-nodes": ({**EDGES, "num_nodes": 10**15}, r"1000000000000000 vertices: needs \d+ bytes"),
    "10-features-of-no-width": ({**EDGES, "x": np.empty((1 << 40, 0))}, r"1099511627776 vertices:"),
    "11-no-vertices": ({"adj_indices": np.empty(0, int), "adj_indptr": [0], "adj_shape": [0, 0]},
                       r"no vertices"),
    "12-column-past": ({**CSR, "adj_indices": np.array([1, 3, 0])}, r"indices: entry 1 is 3,"),
    "12-column-2^63": ({**CSR, "adj_indices": np.array([1, 2**63, 0], np.uint64)},
                       r"entry 1 is 9223372036854775808"),
    "12-feature-column": ({**CSR, **X, "attr_indices": np.array([4])}, r"attr indices: entry 0 is"),
    "13-pointers-few": ({**CSR, "adj_indptr": np.array([0, 3])}, r"2 row pointers, expected 4 for"),
    "13-feature-pointers": ({**CSR, **X, "attr_indptr": np.array([0, 1, 0, 1])},
                            r"attr indptr: row pointers decrease"),
    "15-width": ({**CSR, **X, "attr_shape": np.array([3, 1 << 60])}, r"features have shape \(3,"),
    "15-complex": ({**CSR, "x": np.ones((3, 2), complex)}, r"x: dtype complex128"),
    "16-label-below": ({**Y, "y": np.array([0, -2, 1])}, r"label of vertex 1 is -2"),
    "16-masked-unknown": ({**Y, "y": np.array([0, -1, 1]), "train_idx": np.array([0, 1])},
                          r"vertex 1 is in the train mask but has no label"),
    "18-object": ({**CSR, "adj_data": np.array([None, 1, 2], object)}, r"adj_data: dtype object "),
    "19-names": ({f"../{key}": array for key, array in CSR.items()}, r"arrays \.\./adj_indices,"),
    "24-attributes-in-part": ({**CSR, "attr_data": np.ones(1)}, r"no array attr_indices"),
    "24-missing": ({key: CSR[key] for key in ("adj_indices", "adj_indptr")}, r"no array adj_shape"),
    "24-dtype": ({**CSR, "adj_indices": np.array([1.0, 2, 0])}, r"indices: dtype float64")}


@pytest.mark.parametrize("arrays, message", ARCHIVES.values(), ids=ARCHIVES)
def test_archive_is_refused(arrays, message):
    np.savez("g.npz", **arrays)
    refused(65, message, "convert", "g.npz", "out.h5")


def test_archives_that_are_none():
    for content in (b"", b"0 1\n", b"PK\x03\x04 and no more"):
        Path("g.npz").write_bytes(content)
        refused(65, "broken data", "convert", "g.npz", "out.h5")


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_19_archive_with_foreign_members():
    with zipfile.ZipFile("g.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in CSR.items():
            archive.writestr(f"{key}.npy", npy(array))
        for name in ("../up.npy", "/absolute.npy", "folder/x.npy"):
            archive.writestr(name, npy(np.ones(3)))
        link = zipfile.ZipInfo("link.npy")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    said = succeed("convert", "g.npz", "out.h5")
    assert "arrays not read: ../up, /absolute, folder/x, link" in said
    assert sorted(os.listdir()) == ["g.npz", "out.h5"]
    assert not Path("../up.npy").exists()


def test_19_archive_member_past_half_of_the_memory():
    np.savez_compressed("g.npz", **CSR, x=np.zeros((3, 1 << 20)))
    assert Path("g.npz").stat().st_size < 100_000
    refused(65, r"g\.npz x: needs 25165952 bytes of memory, but the limit is 20000000", "convert",
            "g.npz", "out.h5", "--memory", 40_000_000)
    assert "3 vertices" in succeed("convert", "g.npz", "out.h5", "--memory", 100_000_000)


def test_19_archive_member_past_its_declared_size():
    np.savez_compressed("g.npz", **{**CSR, "adj_shape": np.zeros(1 << 20, int)})
    raw = Path("g.npz").read_bytes()
    true, told = (len(npy(np.zeros(size, int))).to_bytes(4, "little") for size in (1 << 20, 2))
    assert true in raw
    Path("g.npz").write_bytes(raw.replace(true, told))
    refused(65, r"adj_shape: ", "convert", "g.npz", "out.h5")


def test_23_damage_to_the_list_of_members_is_no_absence():
    """An .npz archive with a damaged list of members is refused.

    It is not read as if arrays were missing.
    """
    path = Path("g.npz")
    np.savez(path, **CSR, adj_data=np.array([1.0, 2, 3]))
    raw = path.read_bytes()
    start = raw.index(b"PK\x01\x02")
    end = raw.index(b"PK\x05\x06")
    last = raw.rindex(b"PK\x01\x02")
    name = raw.index(b"adj_data", start)
    swallowed = bytearray(raw)  # the first of the last two members takes the other for its comment
    before = raw.rindex(b"PK\x01\x02", 0, last)
    swallowed[before + 32:before + 34] = (end - last).to_bytes(2, "little")
    for damaged in (raw[:name] + b"x" + raw[name + 1:], bytes(swallowed),
                    raw[:end + 10] + b"\x03" + raw[end + 11:]):
        path.write_bytes(damaged)
        refused(65, r"g\.npz: broken data", "convert", path, "out.h5")


def test_15_features_are_cast_swapped_or_copied():
    """Features of any dtype, layout and byte order become equal float32 ones."""
    wanted = np.random.default_rng(0).integers(0, 9, (34, 3)).astype(np.float32)
    for array in (wanted, wanted.astype(int), wanted.astype(np.float16), wanted.astype(">f8"),
                  np.repeat(np.repeat(wanted, 2, 0), 3, 1)[::2, ::3], np.asfortranarray(wanted),
                  wanted.tolist(), sp.csr_array(wanted), sp.coo_array(wanted)):
        X = Graph.from_scipy(sp.eye_array(34), array).features
        assert X.dtype == np.float32
        np.testing.assert_array_equal(X.toarray() if sp.issparse(X) else X, wanted)


@pytest.mark.parametrize(("flag", "content", "message"), [
    ("--features", npy(np.full((34, 2), np.nan)), r"x\.npy: feature at \(0, 0\) is nan"),
    ("--features", npy(np.ones((33, 2))), r"features have shape \(33, 2\), expected 34 rows"),
    ("--features", npy(np.ones((34, 2), complex)), r"dtype complex128, expected numbers"),
    ("--features", b"", r"not an array in \.npy format"),
    ("--features", npy(np.ones((34, 2)))[:-1], r"takes 544 bytes, but the file has 543"),
    ("--features", npy(np.ones((34, 2))).replace(b"(34, 2)", b"(34,2**45)"), r"not an array"),
    ("--features", gzip.compress(npy(np.ones((34, 2)))), r"compressed, expected a plain \.npy"),
    ("--labels", npy(np.full(34, -3)), r"x\.npy: label of vertex 0 is -3"),
    ("--labels", npy(np.arange(34) / 2), r"x\.npy: label of vertex 1 is 0\.5"),
    ("--labels", npy(np.zeros(33, int)), r"labels have shape \(33,\), expected 34 rows"),
    ("--labels", npy(np.full((34, 2), 2)), r"multi-label entry at \(0, 0\) is 2, expected 0 or 1")],
    ids=["05-nan", "15-rows", "15-complex", "20-empty", "20-short", "22-header", "22-gzip",
         "16-below", "16-fraction", "16-rows", "16-multi"])
def test_file_of_features_or_labels_is_refused(flag, content, message):
    Path("x.npy").write_bytes(content)
    refused(65, message, "convert", "karate", "g.h5", flag, "x.npy")


class Executed:
    """An object that creates a folder when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_18_no_pickle_is_executed():
    evil = pickle.dumps(Executed(), protocol=2)
    planetoid("graph")(Path("ind.t.graph"))
    for path in map(Path, ("ind.t.x", "ind.t.ally", "ind.t.graph")):
        original = path.read_bytes()
        path.write_bytes(evil)
        refused(65, f"{path}: forbidden global posix.mkdir", "convert", "ind.t.graph", "out.h5")
        path.write_bytes(original)
    assert "6 vertices" in succeed("convert", "ind.t.graph", "g.h5")
    np.save("p.npy", np.array([Executed()] * 6, object))
    np.savez("x.npz", x=np.array([Executed()] * 6, object))
    refused(65, "p.npy: not an .npy file of numbers",
            "partition", "g.h5", "-k", 2, "--parts", "p.npy")
    for name in ("p.npy", "x.npz"):
        refused(65, r"dtype object \(a pickle, which is never executed\), expected numbers",
                "convert", "ind.t.graph", "o.h5", "--features", name)
    assert not Path("executed").exists()


@pytest.mark.parametrize(("part", "content", "message"), [
    ("graph", pickle.dumps({0: [1, -1]}, 2), r"graph: vertex 0 has the neighbor -1"),
    ("graph", gzip.compress(bytes(1 << 27)), r"graph: compressed, expected a plain file"),
    ("graph", b"\x80\x02" + b"]" * 1_000_000 + b".", r"graph: needs \d+ bytes of memory"),
    ("graph", pickle.dumps(dict.fromkeys(range(1000), list(range(6)) * 1000), 2),
     r"graph: 6000000 edges: needs \d+ bytes of memory")],  # one list named many times
    ids=["12-negative", "22-gzip", "22-objects", "22-edges"])
def test_planetoid_is_refused(part, content, message):
    path = Path(f"ind.t.{part}")
    planetoid(part)(path)
    path.write_bytes(content)
    refused(65, message, "convert", "ind.t.x", "out.h5", "--memory", 1 << 26)


PARTS = np.arange(34) % 3
LINES = "".join(f"{part}\n" for part in PARTS).encode()
VECTORS = {
    "17-short": (PARTS[:33], r"shape \(33,\), expected 34 parts"),
    "17-past-k": (PARTS + 1, r"vertex 2 has part 3, expected 0\.\.2"),
    "17-negative": (PARTS - 1, r"vertex 0 has part -1, expected 0\.\.2"),
    "17-float": (PARTS / 1, r"dtype float64 .* expected integers"),
    "17-matrix": (PARTS[:, None], r"shape \(34, 1\), expected 34 parts"),
    "20-empty": (b"", r"not an \.npy file of numbers"),
    "20-zip": (b"PK\x03\x04", r"an archive, expected an \.npy file"),
    "20-header": (b"\x93NUMPY\x01\x00\x10\x00" + b"{" * 16, r"not an \.npy file of numbers"),
    "22-header": (npy(PARTS).replace(b"(34,)", b"(9" + b"0" * 12 + b",)"),
                  r"takes \d+ bytes, but the file has \d+"),
    "17-lines-short": (LINES[:-2], r"33 lines, expected 34 parts"),
    "17-lines-past-k": (LINES.replace(b"2", b"3"), r"line 3 has part 3, expected 0\.\.2"),
    "09-lines-float": (b"0\n1.0\n" * 17, r"line 2 is '1\.0', expected one integer"),
    "09-lines-20-digits": (b"0\n" + b"9" * 20, r"line 2 is '9+', expected one integer"),
    "09-lines-ragged": (b"0\n1 2\n", r"line 2 is '1 2', expected one integer"),
    "06-lines-empty": (b"", r"0 lines, expected 34 parts"),
    "20-lines-binary": (gzip.compress(LINES), r"line 1 is ")}


@pytest.mark.long
@pytest.mark.parametrize("content, message", VECTORS.values(), ids=VECTORS)
def test_part_vector_is_refused(karate, content, message):
    path = Path("p.txt" if "line" in message else "p.npy")
    path.write_bytes(content if isinstance(content, bytes) else npy(content))
    refused(65, message, "partition", karate / "karate.h5", "-k", 3, "--parts", path, "-o", "o.h5")


@pytest.mark.long
def test_part_vectors_that_are_read(karate):
    make = "partition", karate / "karate.h5", "-o", "out.h5", "-k"
    for content in (LINES, LINES.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + LINES,
                    b"\n" + LINES[:-1]):
        Path("p.txt").write_bytes(content)
        succeed(*make, 3, "--parts", "p.txt", "--overwrite")
        np.testing.assert_array_equal(store.load("out.h5").partition.part, PARTS)
    os.unlink("out.h5")
    for k, message in ((35, "35 parts requested for 34"), (0, "0 parts"), (-1, "-1 parts")):
        refused(65, message, *make, k, "--parts", "p.txt")
    refused(65, "cannot make 35 parts of 34 vertices", *make, 35)
    os.mkfifo("pipe")
    refused(65, "is a special file", *make, 3, "--parts", "pipe")
    refused(66, "No such file", *make, 3, "--parts", "none.txt")


def csr(indptr=(0, 1, 2, 3), indices=(1, 2, 0), data=(1.0, 1.0, 1.0), kind=sp.csr_array):
    """Return a 3 x 3 sparse matrix with these arrays, which SciPy does not check."""
    A = kind((3, 3))
    A.indptr, A.indices, A.data = np.array(indptr), np.array(indices), np.array(data)
    return A


I3 = sp.eye_array(3)
IN_MEMORY = {
    "04-shape": ((np.ones((2, 3)),), r"adjacency has shape \(2, 3\), expected a square matrix"),
    "05-weight": ((np.diag([1, np.nan, 1]),), r"weight at 1 is nan"),
    "05-complex": ((np.eye(3) * 1j,), r"adjacency has dtype complex128, expected numbers"),
    "12-past": ((csr(indices=(1, 3, 0)),), r"adjacency indices: entry 1 is 3, expected 0\.\.2"),
    "12-negative": ((csr(indices=(1, -1, 0), kind=sp.csc_array),), r"adjacency indices: entry 1"),
    "12-feature": ((I3, csr(indices=(1, 2, 5))), r"features indices: entry 2 is 5"),
    "13-fall": ((csr(indptr=(0, 2, 1, 3)),), r"row pointers decrease from 2 to 1 at row 1"),
    "13-past": ((csr(indptr=(0, 1, 2, 4000)),), r"row pointers end at 4000, but there are 3"),
    "13-start": ((csr(indptr=(1, 1, 2, 3)),), r"row pointers start at 1"),
    "13-data": ((csr(data=(1.0, 1.0)),), r"data: 2 values, expected 3"),
    "13-feature": ((I3, csr(indptr=(0, 3, 1, 3))), r"indptr: row pointers decrease from 3"),
    "15-rows": ((I3, np.ones((2, 3))), r"features have shape \(2, 3\), expected \(3, f\)"),
    "15-dtype": ((I3, np.array([["a"]] * 3)), r"features have dtype <U1, expected numbers"),
    "05-feature-past-float32": ((I3, np.array([[0, 1], [0, 1e300], [0, 0]])), r"\(1, 1\) is inf"),
    "16-range": ((I3, None, [0, -2, 1]), r"label of vertex 1 is -2"),
    "16-ragged": ((I3, None, [[0], [1, 2], [3]]), r"labels: not an array"),
    "16-empty-train": ((I3, None, [0, 1, 0], ([], [1], [2])), r"train mask is empty"),
    "16-overlap": ((I3, None, [0, 1, 0], ([0, 1], [1], [2])), r"vertex 1 is in both the train and"),
    "16-two-masks": ((I3, None, [0, 1, 0], ([0], [1])), r"2 masks, expected three: train, val,"),
    "16-name": ((I3, None, [0, 1, 0], {"train": [0], "valid": [1]}), r"mask 'valid' is unknown")}


@pytest.mark.parametrize("arguments, message", IN_MEMORY.values(), ids=IN_MEMORY)
def test_graph_in_memory_is_refused(arguments, message):
    with pytest.raises(DataError, match=message) as error:
        Graph.from_scipy(*arguments)
    assert str(error.value).startswith("graph: ")

"""Damaged or crafted files are refused quickly, in one line that names file and dataset."""
import contextlib
import os

import h5py
import numpy as np
import pytest
from damages import ENTRIES, PARTITION, STRUCTURE, attribute, change, delete, dtype, replace
from stored_graphs import datasets, edit, make_graph, make_partition, middle, restamp

from hpgcn import store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.errors import DataError, InputNotFoundError, StorageError
from hpgcn.store import csr_arrays, manifest


@contextlib.contextmanager
def refuses(message, path, error=DataError):
    """Expect a one-line error that begins with the path."""
    with pytest.raises(error, match=message) as refusal:
        yield
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("case", STRUCTURE)
def test_refused_when_opened(graph_file, case):
    damage, message = STRUCTURE[case]
    edit(graph_file, damage, stamp="filter" not in case, readable=False)
    with refuses(message, graph_file):
        store.load(graph_file)


@pytest.mark.long
@pytest.mark.parametrize("damage, message", ENTRIES.values(), ids=ENTRIES)
def test_refused_when_read_although_its_checksums_match(graph_file, damage, message):
    edit(graph_file, damage, stamp=False)
    for verify in (False, True):
        stored = store.load(graph_file, verify=verify)
        with stored, refuses(message, graph_file):
            stored.read()
        restamp(graph_file)


@pytest.mark.parametrize("case", ["12 negative", "12 past", "14 unsorted", "14 duplicate",
                                  "05 weight", "05 feature"])
def test_blocks_of_rows_name_the_same_entry(graph_file, case, monkeypatch):
    damage, message = ENTRIES[case]
    edit(graph_file, damage)
    words = []
    for entries in (csr_arrays.PIECE, 7):
        monkeypatch.setattr(csr_arrays, "PIECE", entries)
        monkeypatch.setattr(manifest, "LEAST_BLOCKS", 2)
        monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
        with store.load(graph_file) as stored:
            with pytest.raises(DataError, match=message) as refusal:
                stored.slab(0, 60)
            words.append(str(refusal.value))
    assert len(set(words)) == 1


def test_slabs_name_the_row_of_the_whole(graph_file):
    def damage(file):
        file["features"][41, 6] = np.inf
        file["labels"][52] = 9
        file["adjacency/values"][200] = np.nan

    edit(graph_file, damage)
    with h5py.File(graph_file) as file:
        pointers = file["adjacency/pointers_to_1"][()]
    row = int(np.searchsorted(pointers, 200, side="right")) - 1
    with store.load(graph_file) as stored:
        stored.slab(0, 20)
        for rows, message in (((40, 45), r"features\[41, 6\]"), ((50, 60), r"labels\[52\]"),
                              ((row - 2, row + 1), rf"the value at \({row}, ")):
            with pytest.raises(DataError, match=message):
                stored.slab(*rows)


@pytest.mark.parametrize("kind, damage, message", [
    ({"features": "sparse"}, change("features/indices_1", 3, 11), r"features: entry 3 has column"),
    ({"features": "sparse"}, change("features/pointers_to_1", 1, 10**12), "features: row pointers"),
    ({"features": "sparse"}, change("features/values", 0, np.nan), r"features: the value at \(0,"),
    ({"labels": "multi"}, change("labels", (17, 2), 0.5), r"labels\[17, 2\] is neither 0 nor 1")])
def test_other_features_and_labels_are_checked_too(tmp_path, kind, damage, message):
    path = tmp_path / "g.h5"
    store.write_graph(path, make_graph(**kind))
    edit(path, damage)
    with store.load(path) as stored, pytest.raises(DataError, match=message):
        stored.read()


def test_bad_class_names(tmp_path):
    good, bad = tmp_path / "good.h5", tmp_path / "bad.h5"
    store.write_graph(good, make_graph(ids=True))
    for names, message in (
            (list("abcd"), r"class_names has shape \(4,\), expected \(5\)"),
            (list("abcae"), r"class_names\[3\] is 'a', the same as class_names\[0\]"),
            (["a", b"b\xff", "c", "d", "e"], "class_names: text is not UTF-8"),
            (["a", "b", "", "d", "e"], r"class_names\[2\] is '' of 0 bytes, expected 1 to 1000"),
            (["a\0b", "b", "c", "d", "e"], r"class_names\[0\] is 'a\\x00b' of 3 bytes"),
            (["a" * 1001, *"bcde"], "class_names has dtype bytes8008, expected text of at most"),
            (range(5), "class_names has dtype int64, expected text of at most 1000 bytes")):
        bad.write_bytes(good.read_bytes())
        kind = np.int64 if isinstance(names, range) else np.bytes_
        names = [name.encode() if isinstance(name, str) else name for name in names]
        edit(bad, replace("class_names", np.array(names, kind)))
        with refuses(message, bad):
            store.load(bad)


def test_predictions_without_labels_are_described(tmp_path):
    for damage in (delete("label"), dtype("label", np.float64), replace("label", np.eye(3, 2))):
        path = tmp_path / "p.h5"
        store.write_predictions(path, {"logits": np.eye(3), "label": np.arange(3),
                                       "class_names": np.array(["a", "b", "c"])}, overwrite=True)
        assert "2 c: 1 vertices" in describe_file(path)
        edit(path, damage)
        assert "2 c\n" in describe_file(path)
    edit(path, replace("label", np.arange(3) + 1))
    with refuses("labels: entry 2 is 3", path):
        describe_file(path)


@pytest.mark.long
@pytest.mark.parametrize("damage, message", PARTITION.values(), ids=PARTITION)
def test_bad_partitions(parts_file, damage, message):
    edit(parts_file, damage)
    with refuses(message, parts_file), store.load(parts_file) as stored:
        assert stored.partition is None, "not reached"


def own_owner(file):
    delete("partition/owner")(file)
    file["partition/owner"] = file["partition/part"][()]


@pytest.mark.long
@pytest.mark.parametrize("damage, message", [
    (change("partition/edge_part", 359, 3), r"partition/edge_part\[359\] is outside 0\.\.2"),
    (change("partition/edge_part", 0, -1), r"partition/edge_part\[0\] is outside 0\.\.2"),
    (dtype("partition/edge_part", np.int64), "edge_part has dtype int64, expected int32"),
    (replace("partition/edge_part", np.zeros(359, np.int32)), r"partition/edge_part has shape"),
    (delete("partition/edge_part"), "dataset partition/edge_part is missing"),
    (delete("partition/owner"), "dataset partition/owner is missing"),
    (own_owner, "partition/owner is a separate dataset"),
    (change("adjacency/pointers_to_1", 60, 361), "row pointers .* 361"),
    (change("adjacency/pointers_to_1", 0, -1), "row pointers .* -1"),
    (change("adjacency/indices_1", 9, 60), "entry 9 has column 60")])
def test_bad_vertex_cuts(cut_file, damage, message):
    edit(cut_file, damage)
    for read in (lambda stored: stored.partition,
                 lambda stored: (stored.edge_part(0, 60), stored.read())):
        with refuses(message, cut_file), store.load(cut_file) as stored:
            read(stored)


@pytest.mark.long
@pytest.mark.parametrize("compress", ["none", pytest.param("gzip", marks=pytest.mark.long)])
def test_one_flipped_bit_in_any_dataset(tmp_path, compress):
    """A flipped bit in any dataset or its checksums is refused when that dataset is read."""
    graph = make_graph(ids=True, features="sparse")
    good, bad = tmp_path / "good.h5", tmp_path / "bad.h5"
    cut = make_partition(edges=graph.indices.size)
    store.write_partitioned(good, graph, cut, compress=compress)
    names = datasets(good)
    assert len(names) == 20
    with h5py.File(good) as file:
        places = [(name, middle(file[group + name])) for name in names
                  for group in ("", "manifest/")[:1 + (compress == "none")]]
    for name, place in places:
        raw = bytearray(good.read_bytes())
        raw[place] ^= 16
        bad.write_bytes(raw)
        with refuses(name, bad, StorageError):
            describe_file(bad, verify=True)
        if name not in ("partition/iperm", "partition/part", "partition/edge_part"):
            with pytest.raises(StorageError, match=name):
                store.load(bad).read()


def test_changed_attribute(graph_file):
    edit(graph_file, attribute("source_name", "something else"), stamp=False)
    with pytest.raises(StorageError, match="checksum of the attributes"):
        store.load(graph_file)
    assert store.load(graph_file, verify=False).header.name == "something else"


def test_names_are_harmless(graph_file):
    def damage(file):
        attribute("source_name", "../../etc/\x1b[31mred\n")(file)
        file.create_group("a\nb")["x\x1b"] = h5py.SoftLink("/y")

    edit(graph_file, damage, stamp=False)
    with refuses(r"/a\\nb/x\\x1b: is a soft link", graph_file):
        store.load(graph_file)
    edit(graph_file, delete("a\nb"))
    assert store.load(graph_file).header.name == ".._.._etc__[31mred_"
    assert "\x1b" not in describe_file(graph_file)


def test_truncated_at_every_scale(graph_file):
    raw = graph_file.read_bytes()
    size = len(raw)
    for length in [1, 7, 8, 9, 47, 48, 49, 100, 500, 1000, size // 2, size - 1000, size - 1]:
        graph_file.write_bytes(raw[:length])
        for read in (store.load, describe_file):
            with refuses("truncated|not an HDF5 file", graph_file):
                read(graph_file)


def test_not_hdf5(tmp_path):
    path = tmp_path / "x.h5"
    signature = b"\x89HDF\r\n\x1a\n"
    for content, message in [
            (b"", r"is empty \(0 bytes\)"), (b"0 1\n1 2\n", "not an HDF5 file"),
            (b"\0" * 5000, "not an HDF5 file"), (b"PK\3\4" + b"x" * 99, "not an HDF5 file"),
            (signature + b"\xff" * 99, "superblock version 255")]:
        path.write_bytes(content)
        with refuses(message, path):
            store.load(path)
    for libver, message in (("earliest", "superblock version 0, expected 2 or 3"),
                            ("v110", "not an hpgcn file")):
        with h5py.File(path, "w", libver=libver) as file:
            file.attrs["x"] = "hpgcn-graph"
        with pytest.raises(DataError, match=message):
            store.load(path)
    os.mkfifo(tmp_path / "fifo")
    for other, message in ((tmp_path, "is a folder"), (tmp_path / "fifo", "special file")):
        with pytest.raises(DataError, match=message):
            store.load(other)
    for absent in (tmp_path / "absent.h5", path / "below.h5", tmp_path / ("n" * 300), "nul\0byte"):
        with pytest.raises(InputNotFoundError):
            store.load(absent)


def test_a_chunk_larger_than_the_memory(graph_file):
    with h5py.File(graph_file, "r+") as file:
        file.create_dataset("x", (4000, 1000), np.uint8, chunks=(4000, 1000), compression="gzip")
        file["x"][:] = 0
    store.load(graph_file).close()
    with pytest.raises(DataError, match="one chunk of /x needs 4000000 bytes"):
        store.load(graph_file, memory=3_999_999)

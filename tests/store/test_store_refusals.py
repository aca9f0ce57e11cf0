"""What must be refused, one crafted file each: one line with file and dataset, before anything is read."""
import os
import shutil
from contextlib import suppress

import h5py
import numpy as np
import pytest
from stored_graphs import external_storage, link, make_graph, make_partition, restamp, virtual

from hpgcn import store
from hpgcn.errors import DataError, InputNotFoundError, StorageError


def replace(file, name, array, **options):
    del file[name]
    return file.create_dataset(name, data=array, **options)


def change(name, index, value):
    """A change of one element."""
    def apply(file):
        file[name][index] = value
    return apply


def other_dtype(name, dtype):
    return lambda file: replace(file, name, file[name][()].astype(dtype))


def unknown_filter(file):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((60, 7))
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL, (1,))
    del file["features"]
    h5py.h5d.create(file.id, b"features", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((60, 7)), plist)


def double_gzip(file):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((60, 7))
    plist.set_deflate(9)
    plist.set_filter(h5py.h5z.FILTER_DEFLATE, 0, (9,))
    del file["features"]
    h5py.h5d.create(file.id, b"features", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((60, 7)), plist)


def huge(**options):
    def apply(file):
        del file["features"]
        file.create_dataset("features", (2**42, 8), np.float64, **options)
    return apply


def group_cycle(file):
    file["masks/again"] = file["/"]


def extra(name, data):
    return lambda file: file.create_dataset(name, data=data)


def delete(name):
    def apply(file):
        del file[name]
    return apply


def attribute(name, value, group="/"):
    def apply(file):
        if value is None:
            del file[group].attrs[name]
        else:
            file[group].attrs[name] = value
    return apply


STRUCTURE = {
    "external link": (link(h5py.ExternalLink, "/etc/passwd", "/x"), "labels: is an external link"),
    "soft link": (link(h5py.SoftLink, "/masks/train"), "labels: is a soft link"),
    "dangling soft link": (link(h5py.SoftLink, "/nowhere"), "labels: is a soft link"),
    "external storage": (external_storage, "features: is stored in external files"),
    "virtual dataset": (virtual, "features: is a virtual dataset"),
    "variable-length": (lambda file: file.create_dataset("x", (3,), h5py.vlen_dtype(np.int32)),
                        "x: has variable-length elements"),
    "text": (extra("x", "text"), "x: has text elements"),
    "references": (lambda file: file.create_dataset("x", (3,), h5py.ref_dtype), "x: has reference elements"),
    "compound": (extra("x", np.zeros(3, [("a", int)])), "x: has compound elements"),
    "enumeration": (extra("x", np.zeros(3, bool)), "x: has enumeration elements"),
    "null dataspace": (extra("x", h5py.Empty("f4")), "x: has no shape"),
    "named type": (lambda file: file.__setitem__("x", np.dtype("f8")), "x: is a named type"),
    "unknown filter": (unknown_filter, "features: has filters"),
    "two gzip filters": (double_gzip, "features: has filters"),
    "2^45 doubles": (huge(), r"features: claims 281474976710656 bytes"),
    "2^45 doubles in chunks": (huge(chunks=(1000, 8)), "features: claims"),
    "2^45 doubles, gzip": (huge(chunks=(1000, 8), compression="gzip"), "features: claims"),
    "cycle of groups": (group_cycle, "masks/again: is a group that has another name"),
    "too deep": (lambda file: file.create_group("/".join("abcdefghijklmnopqrstuvw")), "levels of groups"),
    "attribute of a type": (attribute("x", np.zeros(2, [("a", int)])), "attribute x is neither"),
    "attribute too long": (attribute("x", np.zeros(10**6)), "attribute x has shape"),
    "no format": (attribute("format", None), "not an hpgcn file"),
    "another format": (attribute("format", "hpgcn-model"), "format is 'hpgcn-model', expected hpgcn-graph"),
    "wrong version": (attribute("format_version", "2.0"), "format_version is '2.0', expected '1.0'"),
    "incomplete": (attribute("complete", None), "complete is None, expected 1"),
    "complete is 0": (attribute("complete", 0), "complete is 0, expected 1"),
    "no num_edges": (attribute("num_edges", None), "num_edges is missing"),
    "negative count": (attribute("num_nodes", -1), "num_nodes is -1, expected an integer >= 0"),
    "count is text": (attribute("num_nodes", "60"), "num_nodes is '60'"),
    "no manifest": (delete("manifest"), "/manifest: attribute attributes_crc32 is missing"),
    "no labels": (delete("labels"), "dataset labels is missing"),
    "no features": (delete("features"), "dataset features is missing"),
    "no mask": (delete("masks/val"), "dataset masks/val is missing"),
    "no degree": (delete("degree/row"), "dataset degree/row is missing"),
    "no pointers": (delete("adjacency/pointers_to_1"), "dataset adjacency/pointers_to_1 is missing"),
    "no values": (delete("adjacency/values"), "dataset adjacency/values is missing"),
    "no adjacency": (delete("adjacency"), "/adjacency: attribute shape is missing"),
    "float16 features": (other_dtype("features", np.float16), "features has dtype float16, expected float32"),
    "big-endian features": (other_dtype("features", ">f4"), r"features has dtype float32 \(big-endian\)"),
    "int32 labels": (other_dtype("labels", np.int32), "labels has dtype int32, expected int64"),
    "uint8 pointers": (other_dtype("adjacency/pointers_to_1", np.uint8), "expected int64"),
    "float64 values": (other_dtype("adjacency/values", np.float64), "expected float32"),
    "features too short": (lambda file: replace(file, "features", file["features"][:59]),
                           r"features has shape \(59, 7\), expected \(60, 7\)"),
    "labels too long": (lambda file: replace(file, "labels", np.zeros(61, int)), r"expected \(60\)"),
    "another number of nodes": (attribute("num_nodes", 61), "expected"),
    "another shape": (attribute("shape", [60, 61], "adjacency"), r"shape is \[60, 61\], expected \[60, 60\]"),
    "another number of edges": (attribute("num_edges", 7), "num_edges is 7"),
}


@pytest.mark.parametrize("case", STRUCTURE)
def test_refused_when_opened(graph_file, case):
    apply, message = STRUCTURE[case]
    with h5py.File(graph_file, "r+") as file:
        apply(file)
    if case not in ("no manifest",) and "filter" not in case:
        restamp_if_readable(graph_file)
    with pytest.raises(DataError, match=message) as refusal:
        store.load(graph_file)
    check_line(refusal, graph_file)


def restamp_if_readable(path):
    """Checksums are put right where the file still allows it: the refusal must not rest on them."""
    with suppress(DataError, KeyError, OSError, AttributeError, MemoryError):
        restamp(path)


def check_line(refusal, path):
    assert str(refusal.value).startswith(str(path))
    assert "\n" not in str(refusal.value)


ENTRIES = {
    "pointers do not start at 0": (change("adjacency/pointers_to_1", 0, 1), "adjacency: row pointers start at 1"),
    "pointers fall": (change("adjacency/pointers_to_1", 5, 2**40), "adjacency: row pointers fall from 1099511627776"),
    "pointers negative": (change("adjacency/pointers_to_1", 5, -1), r"row pointers fall from \d+ to -1 at row 4"),
    "pointers end early": (change("adjacency/pointers_to_1", slice(50, 61), 0), "row pointers fall"),
    "pointers end late": (change("adjacency/pointers_to_1", 60, 361), "row pointers end at 361, but there are 360"),
    "column negative": (change("adjacency/indices_1", 9, -1), r"entry 9 has column -1, expected 0\.\.59"),
    "column out of range": (change("adjacency/indices_1", 9, 60), r"entry 9 has column 60, expected 0\.\.59"),
    "columns not increasing": (change("adjacency/indices_1", slice(0, 40), 3), "columns must increase"),
    "weight is NaN": (change("adjacency/values", 7, np.nan), r"adjacency: the value at \(\d+, \d+\) is nan"),
    "weight is infinite": (change("adjacency/values", 359, -np.inf), r"is -inf, expected a finite number"),
    "feature is NaN": (change("features", (13, 2), np.nan), r"features\[13, 2\] is not a finite number"),
    "degree is NaN": (change("degree/column", 3, np.nan), r"degree/column\[3\] is not a finite number"),
    "label too large": (change("labels", 11, 4), r"labels\[11\] is outside 0\.\.3"),
    "label too small": (change("labels", 59, -2), r"labels\[59\] is outside 0\.\.3"),
    "mask is 2": (change("masks/val", 1, 2), r"masks/val\[1\] is neither 0 nor 1"),
    "masks overlap": (lambda file: [change(f"masks/{key}", 21, 1)(file) for key in ("train", "val")],
                      r"masks/train\[21\] is set, and in masks/val too"),
    "masked without a label": (lambda file: change("labels", np.flatnonzero(file["masks/test"][()])[0], -1)(file),
                               r"masks/test\[\d+\] is set, but the vertex has no label"),
    "empty train mask": (change("masks/train", slice(None), 0), "masks/train is empty"),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_refused_when_read_although_its_checksums_match(graph_file, case):
    apply, message = ENTRIES[case]
    with h5py.File(graph_file, "r+") as file:
        assert file["adjacency/indices_1"].shape == (360,)
        apply(file)
    for verify in (False, True):
        with store.load(graph_file, verify=verify) as stored, pytest.raises(DataError, match=message) as refusal:
            stored.read()
        check_line(refusal, graph_file)
        restamp(graph_file)


def test_slabs_name_the_row_of_the_whole(graph_file):
    with h5py.File(graph_file, "r+") as file:
        file["features"][41, 6] = np.inf
        file["labels"][52] = 9
        row = int(np.searchsorted(file["adjacency/pointers_to_1"][()], 200, side="right")) - 1
        file["adjacency/values"][200] = np.nan
    restamp(graph_file)
    with store.load(graph_file) as stored:
        stored.slab(0, 20)
        with pytest.raises(DataError, match=r"features\[41, 6\]"):
            stored.slab(40, 45)
        with pytest.raises(DataError, match=r"labels\[52\]"):
            stored.slab(50, 60)
        with pytest.raises(DataError, match=rf"the value at \({row}, "):
            stored.slab(row - 2, row + 1)


@pytest.mark.parametrize("case", [
    (change("features/indices_1", 3, 11), r"features: entry 3 has column 11, expected 0\.\.10"),
    (change("features/indices_1", 3, -5), "features: entry 3 has column -5"),
    (change("features/pointers_to_1", 1, 10**12), "features: row pointers fall"),
    (change("features/values", 0, np.nan), r"features: the value at \(0, \d+\) is nan"),
])
def test_sparse_features_are_checked_like_the_adjacency(tmp_path, case):
    apply, message = case
    store.write_graph(tmp_path / "g.h5", make_graph(features="sparse"))
    with h5py.File(tmp_path / "g.h5", "r+") as file:
        apply(file)
    restamp(tmp_path / "g.h5")
    with store.load(tmp_path / "g.h5") as stored, pytest.raises(DataError, match=message):
        stored.read()


def test_multilabel_entries_are_checked(tmp_path):
    store.write_graph(tmp_path / "g.h5", make_graph(labels="multi"))
    with h5py.File(tmp_path / "g.h5", "r+") as file:
        file["labels"][17, 2] = 0.5
    restamp(tmp_path / "g.h5")
    with pytest.raises(DataError, match=r"labels\[17, 2\] is neither 0 nor 1"):
        store.load(tmp_path / "g.h5").read()


@pytest.mark.parametrize("case", [
    (change("partition/offsets", 0, 1), r"partition/offsets\[0\] is 1, expected offsets that rise from 0 to 60"),
    (change("partition/offsets", 3, 59), r"partition/offsets\[3\] is 59"),
    (change("partition/offsets", 1, 61), r"partition/offsets\[2\] is \d+"),
    (change("partition/part", 4, 3), r"partition/part\[4\] is outside 0\.\.2"),
    (change("partition/perm", 4, -1), r"partition/perm\[4\] is outside 0\.\.59"),
    (change("partition/iperm", 4, 60), r"partition/iperm\[4\] is outside 0\.\.59"),
    (change("partition/perm", slice(0, 2), 7), r"partition/perm\[[01]\] is not undone by iperm"),
    (lambda file: change("partition/part", 4, (file["partition/part"][4] + 1) % 3)(file), "a vertex of another part"),
    (attribute("k", 4, "partition"), r"partition/offsets has shape \(4,\), expected \(5\)"),
    (attribute("method", None, "partition"), "attribute method is missing"),
    (delete("partition"), "/partition: attribute k is missing"),
])
def test_bad_partitions(parts_file, case):
    apply, message = case
    with h5py.File(parts_file, "r+") as file:
        apply(file)
    restamp(parts_file)
    with pytest.raises(DataError, match=message) as refusal, store.load(parts_file) as stored:
        assert stored.partition is None, "not reached"
    check_line(refusal, parts_file)


def own_owner(file):
    parts = file["partition/part"][()]
    del file["partition/owner"]
    file["partition/owner"] = parts


@pytest.mark.parametrize("case", [
    (change("partition/edge_part", 359, 3), r"partition/edge_part\[359\] is outside 0\.\.2"),
    (change("partition/edge_part", 0, -1), r"partition/edge_part\[0\] is outside 0\.\.2"),
    (other_dtype("partition/edge_part", np.int64), "partition/edge_part has dtype int64, expected int32"),
    (lambda file: replace(file, "partition/edge_part", np.zeros(359, np.int32)),
     r"partition/edge_part has shape \(359,\), expected \(360\)"),
    (delete("partition/edge_part"), "dataset partition/edge_part is missing"),
    (delete("partition/owner"), "dataset partition/owner is missing"),
    (own_owner, "partition/owner is a dataset of its own"),
    (change("adjacency/pointers_to_1", 60, 361), "row pointers .* 361"),
    (change("adjacency/pointers_to_1", 0, -1), "row pointers .* -1"),
    (change("adjacency/indices_1", 9, 60), "entry 9 has column 60"),
])
def test_bad_vertex_cuts(cut_file, case):
    apply, message = case
    with h5py.File(cut_file, "r+") as file:
        apply(file)
    restamp(cut_file)
    for read in (lambda stored: stored.partition, lambda stored: (stored.edge_part(0, 60), stored.read())):
        with pytest.raises(DataError, match=message) as refusal, store.load(cut_file) as stored:
            read(stored)
        check_line(refusal, cut_file)


@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_one_flipped_bit_in_any_dataset(tmp_path, compress):
    graph = make_graph(ids=True, features="sparse")
    store.write_partitioned(tmp_path / "good.h5", graph, make_partition(edges=graph.indices.size), compress=compress)
    with h5py.File(tmp_path / "good.h5") as file:
        names = []
        file["manifest"].visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        assert len(names) == 19
        places = [(name, middle(file[prefix + name])) for name in names for prefix in ("", "manifest/")]
    good = (tmp_path / "good.h5").read_bytes()
    for name, place in places:
        raw = bytearray(good)
        raw[place] ^= 16
        (tmp_path / "bad.h5").write_bytes(raw)
        with pytest.raises(StorageError, match=name) as refusal:
            store.describe(tmp_path / "bad.h5", verify=True)
        check_line(refusal, tmp_path / "bad.h5")
        if name not in ("partition/iperm", "partition/part", "partition/edge_part"):  # no rank reads these to train
            with pytest.raises(StorageError, match=name):
                store.load(tmp_path / "bad.h5").read()


def middle(dataset):
    """Place in the file of a byte in the middle of a dataset's first or only piece."""
    if dataset.chunks:
        piece = dataset.id.get_chunk_info(0)
        return piece.byte_offset + piece.size // 2
    return dataset.id.get_offset() + dataset.nbytes // 2


def test_changed_attribute(graph_file):
    with h5py.File(graph_file, "r+") as file:
        file.attrs["source_name"] = "something else"
    with pytest.raises(StorageError, match="checksum of the attributes"):
        store.load(graph_file)
    assert store.load(graph_file, verify=False).header.name == "something else"


def test_names_are_harmless(graph_file):
    with h5py.File(graph_file, "r+") as file:
        file.attrs["source_name"] = "../../etc/\x1b[31mred\n"
        file.create_group("a\nb")["x\x1b"] = h5py.SoftLink("/y")
    restamp_if_readable(graph_file)
    with pytest.raises(DataError, match=r"/a\\nb/x\\x1b: is a soft link") as refusal:
        store.load(graph_file)
    check_line(refusal, graph_file)
    with h5py.File(graph_file, "r+") as file:
        del file["a\nb"]
    restamp(graph_file)
    assert store.load(graph_file).header.name == ".._.._etc__[31mred_"
    assert "\x1b" not in store.describe(graph_file)


def test_truncated_at_every_scale(graph_file):
    raw = graph_file.read_bytes()
    for length in [1, 7, 8, 9, 47, 48, 49, 100, 500, 1000, len(raw) // 2, len(raw) - 1000, len(raw) - 1]:
        graph_file.write_bytes(raw[:length])
        for read in (store.load, store.describe):
            with pytest.raises(DataError, match=r"truncated|not an HDF5 file") as refusal:
                read(graph_file)
            check_line(refusal, graph_file)


def test_not_hdf5(tmp_path):
    path = tmp_path / "x.h5"
    for content, message in [(b"", r"is empty \(0 bytes\)"), (b"0 1\n1 2\n", "not an HDF5 file"),
                             (b"\0" * 5000, "not an HDF5 file"), (b"PK\3\4" + b"x" * 99, "not an HDF5 file"),
                             (b"\x89HDF\r\n\x1a\n" + b"\xff" * 99, "superblock version 255")]:
        path.write_bytes(content)
        with pytest.raises(DataError, match=message) as refusal:
            store.load(path)
        check_line(refusal, path)
    with h5py.File(path, "w", libver="earliest") as file:
        file.attrs["format"] = "hpgcn-graph"
    with pytest.raises(DataError, match="superblock version 0, expected 2 or 3"):
        store.load(path)
    with h5py.File(path, "w", libver="v110") as file:
        file["x"] = 1
    with pytest.raises(DataError, match="not an hpgcn file"):
        store.load(path)
    with pytest.raises(DataError, match="is a folder"):
        store.load(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(DataError, match="special file"):
        store.load(tmp_path / "fifo")
    for absent in (tmp_path / "absent.h5", path / "below.h5", tmp_path / ("n" * 300), "nul\0byte"):
        with pytest.raises(InputNotFoundError):
            store.load(absent)


def test_a_chunk_larger_than_the_memory(graph_file, tmp_path):
    shutil.copy(graph_file, tmp_path / "g.h5")
    with h5py.File(tmp_path / "g.h5", "r+") as file:
        file.create_dataset("x", (4000, 1000), np.uint8, chunks=(4000, 1000), compression="gzip")[:] = 0
    store.load(tmp_path / "g.h5").close()
    with pytest.raises(DataError, match="one chunk of /x needs 4000000 bytes"):
        store.load(tmp_path / "g.h5", memory=3_999_999)

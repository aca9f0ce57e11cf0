"""Functions that damage the open file of `make_graph()`, with the message that each causes.

Names begin with a row of docs/reliability.md, if there is one. No checksum detects
these damages.
"""
from pathlib import Path

import h5py
import numpy as np


def change(name, index, value):
    """Return a function that changes elements of the dataset `name` in an open file."""
    return lambda file: file[name].__setitem__(index, value)


def swap(name, i, j):
    """Return a function that swaps elements i and j of the dataset `name` in an open file."""
    def apply(file):
        file[name][[i, j]] = file[name][[i, j]][::-1]
    return apply


def replace(name, array):
    """Return a function that replaces a dataset by `array` or `array(old)`."""
    def apply(file):
        new = array(file[name][()]) if callable(array) else array
        del file[name]
        file[name] = new
    return apply


def dtype(name, kind):
    return replace(name, lambda array: array.astype(kind))


def delete(name):
    return lambda file: file.__delitem__(name)


def attribute(name, value, group="/"):
    """Return a function that sets an attribute of an open file.

    It deletes it if `value` is None.
    """
    def apply(file):
        attributes = file[group].attrs
        if name in attributes:
            del attributes[name]
        if isinstance(value, str):
            kind = h5py.string_dtype("utf-8", len(value))
            attributes.create(name, np.bytes_(value.encode()), dtype=kind)
        elif value is not None:
            attributes[name] = value
    return apply


def add(name, *arguments, **options):
    return lambda file: file.create_dataset(name, *arguments, **options)


def link(kind, *arguments):
    """Return a function that replaces the labels of an open file by a link."""
    def apply(file):
        del file["labels"]
        file["labels"] = kind(*arguments)
    return apply


def external_storage(file):
    """Store the features of an open file in a separate raw file, which is then deleted."""
    raw = Path(file.filename).with_name("raw.bin")
    raw.write_bytes(file["features"][()].tobytes())
    del file["features"]
    storage = [(str(raw), 0, raw.stat().st_size)]
    file.create_dataset("features", (60, 7), np.float32, external=storage)
    raw.unlink()


def virtual(file):
    """Replace the features of an open file by a virtual view of another file."""
    layout = h5py.VirtualLayout((60, 7), np.float32)
    layout[:] = h5py.VirtualSource("other.h5", "x", (60, 7))
    del file["features"]
    file.create_virtual_dataset("features", layout)


def filters(*codes):
    """Return a function that stores the features of an open file with these filter codes."""
    def apply(file):
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((60, 7))
        for code in codes:
            plist.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (1,))
        del file["features"]
        space = h5py.h5s.create_simple((60, 7))
        h5py.h5d.create(file.id, b"features", h5py.h5t.IEEE_F32LE, space, plist)
    return apply


def claims(**options):
    """Return a function that replaces the features by 2^45 doubles that are not allocated."""
    def apply(file):
        del file["features"]
        file.create_dataset("features", (2**42, 8), np.float64, **options)
    return apply


# Damages that are refused when the file is opened: structure, types, names, shapes.
STRUCTURE = {
    "21 external link": (link(h5py.ExternalLink, "/etc/passwd", "/x"), "labels: is an external"),
    "21 soft link": (link(h5py.SoftLink, "/masks/train"), "labels: is a soft link"),
    "21 dangling soft link": (link(h5py.SoftLink, "/nowhere"), "labels: is a soft link"),
    "21 external storage": (external_storage, "features: is stored in external files"),
    "21 virtual dataset": (virtual, "features: is a virtual dataset"),
    "variable-length": (add("x", (3,), h5py.vlen_dtype(np.int32)), "x: has vlen elements"),
    "text": (add("x", data="text"), "x: has string elements"),
    "references": (add("x", (3,), h5py.ref_dtype), "x: has reference elements"),
    "compound": (add("x", data=np.zeros(3, [("a", int)])), "x: has compound elements"),
    "enumeration": (add("x", data=np.zeros(3, bool)), "x: has enum elements"),
    "null dataspace": (add("x", data=h5py.Empty("f4")), "x: has no shape"),
    "named type": (lambda file: file.__setitem__("x", np.dtype("f8")), "x: is a named type"),
    "unknown filter": (filters(32015), "features: has filters"),
    "two gzip filters": (filters(1, 1), "features: has filters"),
    "22 2^45 doubles": (claims(), r"features: claims 281474976710656 bytes in shape \(4398046511"),
    "22 in chunks": (claims(chunks=(1000, 8)), "features: claims"),
    "22 packed": (claims(chunks=(1000, 8), compression="gzip"), "features: claims 28147497671065"),
    "cycle of groups": (lambda file: file.__setitem__("masks/again", file["/"]),
                        "masks/again: is a second name of a group"),
    "too deep": (lambda file: file.create_group("/".join("abcdefghijklmnopqrstuvw")), "levels of"),
    "attribute of a type": (attribute("x", np.zeros(2, [("a", int)])), "attribute x is neither"),
    "attribute too long": (attribute("x", np.zeros(10**6)), "attribute x has shape"),
    "no format": (attribute("format", None), "not an hpgcn file"),
    "24 another format": (attribute("format", "hpgcn-modle"), "format is 'hpgcn-modle', expected"),
    "24 version": (attribute("format_version", "2.0"), "format_version is '2.0', expected '1.0'"),
    "24 incomplete": (attribute("complete", None), "complete is None, expected 1"),
    "complete is 0": (attribute("complete", 0), "complete is 0, expected 1"),
    "24 no num_edges": (attribute("num_edges", None), "attribute num_edges is missing"),
    "negative count": (attribute("num_nodes", -1), "num_nodes is -1, expected an integer >= 0"),
    "count is text": (attribute("num_nodes", "60"), "num_nodes is '60'"),
    "22 width": (attribute("num_features", 2**50), "num_features is 1125899906842624, expected at"),
    "22 classes": (attribute("num_classes", 2**50), "num_classes is 1125899906842624, expected at"),
    "no manifest": (delete("manifest"), "/manifest: attribute attributes_crc32 is missing"),
    "24 no labels": (delete("labels"), "dataset labels is missing"),
    "no adjacency": (delete("adjacency"), "/adjacency: attribute shape is missing"),
    "24 float16": (dtype("features", np.float16), "features has dtype float16, expected float32"),
    "24 big-endian": (dtype("features", ">f4"), r"features has dtype float32 \(big-endian\)"),
    "features too short": (replace("features", lambda array: array[:59]),
                           r"features has shape \(59, 7\), expected \(60, 7\)"),
    "labels too long": (replace("labels", np.zeros(61, int)), r"expected \(60\)"),
    "another number of nodes": (attribute("num_nodes", 61), "expected"),
    "another shape": (attribute("shape", [60, 61], "adjacency"), r"shape is \[60, 61\], expected"),
    "another number of edges": (attribute("num_edges", 7), "num_edges is 7")}


def of_a_row_of_two(file):
    """Return the position of the first entry in a row with several entries."""
    pointers = file["adjacency/indptr"][()]
    return int(pointers[np.flatnonzero(np.diff(pointers) > 1)[0]])


def unsorted(file):
    k = of_a_row_of_two(file)
    swap("adjacency/indices", k, k + 1)(file)


def duplicate(file):
    k = of_a_row_of_two(file)
    file["adjacency/indices"][k + 1] = file["adjacency/indices"][k]


def overlap(file):
    for key in ("train", "val"):
        file[f"masks/{key}"][21] = 1


# Damages that are refused when rows are read, although checksums match.
POINTERS, COLUMNS = "adjacency/pointers_to_1", "adjacency/indices_1"
VALUES = "adjacency/values"
ENTRIES = {
    "13 start": (change(POINTERS, 0, 1), "adjacency: row pointers start at 1, expected 0"),
    "13 fall": (change(POINTERS, 5, 2**40), "adjacency: row pointers decrease from 1099511627776"),
    "13 negative": (change(POINTERS, 5, -1), r"row pointers decrease from \d+ to -1 at row 4"),
    "13 end late": (change(POINTERS, 60, 361), "row pointers end at 361, but there are 360"),
    "12 negative": (change(COLUMNS, 9, -1), r"entry 9 has column -1, expected 0\.\.59"),
    "12 past": (change(COLUMNS, 9, 60), r"entry 9 has column 60, expected 0\.\.59"),
    "14 unsorted": (unsorted, r"row \d+ has column \d+ after \d+: columns must increase"),
    "14 duplicate": (duplicate, "columns must increase, without duplicates"),
    "05 weight": (change(VALUES, 7, np.nan), r"adjacency: the value at \(\d+, \d+\) is nan"),
    "05 feature": (change("features", (13, 2), np.inf), r"features\[13, 2\] is not a finite"),
    "05 degree": (change("degree/row", 3, np.nan), r"degree/row\[3\] is not a finite number"),
    "16 label": (change("labels", 11, 4), r"labels\[11\] is outside 0\.\.3"),
    "mask is 2": (change("masks/val", 1, 2), r"masks/val\[1\] is neither 0 nor 1"),
    "16 overlap": (overlap, r"masks/train\[21\] is set, and in masks/val too"),
    "16 unknown": (change("labels", slice(None), -1), "is set, but the vertex has no label"),
    "16 empty train mask": (change("masks/train", slice(None), 0), "train.* is empty")}

# Damages to a partition into three parts.
PARTITION = {
    "29 start": (change("partition/offsets", 0, 1), r"partition/offsets\[0\] is 1, expected"),
    "29 end": (change("partition/offsets", 3, 59), r"partition/offsets\[3\] is 59"),
    "29 rise": (change("partition/offsets", 1, 61), r"partition/offsets\[2\] is \d+"),
    "29 part": (change("partition/part", 4, 3), r"partition/part\[4\] is outside 0\.\.2"),
    "29 past": (change("partition/perm", 4, -1), r"partition/perm\[4\] is outside 0\.\.59"),
    "29 inverse past": (change("partition/iperm", 4, 60), r"partition/iperm\[4\] is outside 0\.\."),
    "29 twice": (change("partition/perm", slice(0, 2), 7), r"partition/perm\[[01]\] is not undone"),
    "29 swapped": (swap("partition/perm", 3, 4), r"partition/perm\[3\] is not undone by iperm"),
    "29 inverse": (swap("partition/iperm", 3, 4), r"partition/perm\[\d+\] is not undone by iperm"),
    "29 other part": (replace("partition/part", lambda part: (part + (np.arange(60) == 4)) % 3),
                      "a vertex of another part than the offsets say"),
    "k": (attribute("k", 4, "partition"), r"partition/offsets has shape \(4,\), expected \(5\)"),
    "no method": (attribute("method", None, "partition"), "attribute method is missing"),
    "no partition": (delete("partition"), "/partition: attribute k is missing")}

"""docs/files.md describes the files of hpgcn completely: files written by it can be read."""
import json
import re
import zlib
from unittest import mock

import h5py
import numpy as np
import pytest
from checkout import ROOT
from stored_graphs import make_graph, make_partition

import hpgcn
from hpgcn import store
from hpgcn.__main__ import main
from hpgcn.cli.inspect_files import describe_file
from hpgcn.errors import DataError, StorageError
from hpgcn.runtime import machine
from hpgcn.training.files.records import METRICS, SUMMARY

# A path of six vertices 0 - 1 - 2 - 3 - 4 - 5, all weights 1, two features, two classes.
ROWS = [[1], [0, 2], [1, 3], [2, 4], [3, 5], [4]]
DEGREES = np.array([1, 2, 2, 2, 2, 1], np.float64)
GRAPH_ATTRIBUTES = {
    "/": {"format": "hpgcn-graph", "format_version": "1.0", "creator": "by hand",
          "created_utc": "2026-01-31T12:00:00+00:00", "num_nodes": 6, "num_edges": 10,
          "num_features": 2, "num_classes": 2, "directed": 0, "source_name": "path",
          "source_sha256": "", "split": "by hand"},
    "/adjacency": {"shape": np.array([6, 6]), "all_ones": 1}}
GRAPH_DATASETS = {
    "adjacency/pointers_to_1": np.cumsum([0, *map(len, ROWS)], dtype=np.int64),
    "adjacency/indices_1": np.concatenate(ROWS).astype(np.int32),
    "adjacency/values": np.ones(10, np.uint8),
    "features": np.arange(12, dtype=np.float32).reshape(6, 2),
    "labels": np.array([0, 0, 0, 1, 1, -1]),
    "masks/train": np.array([1, 0, 0, 1, 0, 0], np.uint8),
    "masks/val": np.array([0, 1, 0, 0, 1, 0], np.uint8),
    "masks/test": np.array([0, 0, 1, 0, 0, 0], np.uint8),
    "degree/row": DEGREES, "degree/column": DEGREES, "degree/loop": np.zeros(6)}


def write_by_the_document(path, attributes, datasets, without=()):
    """Write an HDF5 file as docs/files.md describes it, without hpgcn."""
    with h5py.File(path, "w", libver="v110") as file:
        for name, array in datasets.items():
            if name in without:
                continue
            file[name] = array
            raw = array.tobytes()
            blocks = [zlib.crc32(raw[start:start + 2**20]) for start in range(0, len(raw), 2**20)]
            checksums = file.create_dataset(f"manifest/{name}", data=np.array(blocks, np.uint32))
            checksums.attrs["dtype"] = array.dtype.str
            checksums.attrs["shape"] = np.array(array.shape)
        for group, values in attributes.items():
            for name, value in values.items():
                if name not in without:
                    file.require_group(group).attrs[name] = value
        file["manifest"].attrs["attributes_crc32"] = np.uint32(attributes_crc(file))
        if "complete" not in without:
            file.attrs["complete"] = 1


def attributes_crc(file):
    objects = {"/": file}
    file.visititems(lambda name, item: objects.update({f"/{name}": item}))
    crc = 0
    for path, item in sorted(objects.items()):
        for name, value in sorted(item.attrs.items()):
            if isinstance(value, str):
                kind, raw = "text", value.encode()
            else:
                kind, raw = f"{value.dtype.str} {value.shape}", value.tobytes()
            crc = zlib.crc32(f"{path}\0{name}\0{kind}\0{len(raw)}\0".encode() + raw, crc)
    return crc


def test_a_graph_written_by_the_document_is_taken(tmp_path, capsys):
    path = tmp_path / "path.h5"
    write_by_the_document(path, GRAPH_ATTRIBUTES, GRAPH_DATASETS)
    assert main(["inspect", str(path), "--verify"]) == 0
    assert "all match: 11 datasets" in capsys.readouterr().out
    graph = hpgcn.load(path).read()
    assert graph.adjacency.toarray().tolist() == [
        [column in columns for column in range(6)] for columns in ROWS]
    assert hpgcn.train(hpgcn.load(path), hpgcn.Config(epochs=1, hidden=4))["epochs"] == 1


@pytest.mark.parametrize("count, message", [
    (2, None), (3, "dataset masks/2/train is missing"), (0, "num_splits is 0, expected 1 to 1000"),
    (1001, "num_splits is 1001")])
def test_several_splits_written_by_the_document(tmp_path, count, message):
    path = tmp_path / "path.h5"
    more = {f"masks/1/{key}": np.roll(GRAPH_DATASETS[f"masks/{key}"][:5], 1)
            for key in ("train", "val", "test")}
    more = {name: np.append(mask, np.uint8(0)) for name, mask in more.items()}
    root = {**GRAPH_ATTRIBUTES["/"], "num_splits": count}
    write_by_the_document(path, {**GRAPH_ATTRIBUTES, "/": root}, {**GRAPH_DATASETS, **more})
    if message:
        with pytest.raises(DataError, match=message):
            describe_file(path)
        return
    describe_file(path, verify=True)
    assert hpgcn.load(path).masks["train"].tolist() == [
        [1, 0], [0, 1], [0, 0], [1, 0], [0, 1], [0, 0]]


REQUIRED = [*GRAPH_ATTRIBUTES["/"], *GRAPH_ATTRIBUTES["/adjacency"], *GRAPH_DATASETS, "complete"]


@pytest.mark.parametrize("name", REQUIRED)
def test_what_the_document_requires_is_missed(tmp_path, name):
    path = tmp_path / "path.h5"
    write_by_the_document(path, GRAPH_ATTRIBUTES, GRAPH_DATASETS, without=[name])
    with pytest.raises(DataError, match=name):
        describe_file(path, verify=True)


def test_a_partition_written_by_the_document_is_taken(tmp_path):
    perm = np.array([4, 0, 5, 2, 1, 3])
    iperm = np.argsort(perm)
    rows = [sorted(iperm[ROWS[old]].tolist()) for old in perm]
    made = {"k": 2, "method": "by hand", "engine": "", "engine_version": "", "seed": 0,
            "epsilon": 0.0}
    root = {**GRAPH_ATTRIBUTES["/"], "format": "hpgcn-partitioned-graph"}
    attributes = {**GRAPH_ATTRIBUTES, "/": root, "/partition": made}
    datasets = {name: array[perm] for name, array in GRAPH_DATASETS.items() if len(array) == 6}
    datasets |= {
        "adjacency/pointers_to_1": np.cumsum([0, *map(len, rows)], dtype=np.int64),
        "adjacency/indices_1": np.concatenate(rows).astype(np.int32),
        "adjacency/values": np.ones(10, np.uint8),
        "partition/part": np.array([0, 1, 1, 1, 0, 0], np.int32),
        "partition/perm": perm, "partition/iperm": iperm, "partition/offsets": np.array([0, 3, 6])}
    write_by_the_document(tmp_path / "p2.h5", attributes, datasets)
    describe_file(tmp_path / "p2.h5", verify=True)
    with hpgcn.load(tmp_path / "p2.h5") as stored:
        assert stored.read().vertex.tolist() == perm.tolist()
        assert stored.partition.k == 2


def test_a_checksum_of_another_block_size_is_noticed(tmp_path):
    features = np.arange(6 * 50_000, dtype=np.float32).reshape(6, -1)  # 1.2 MB: two blocks
    attributes = {**GRAPH_ATTRIBUTES, "/": {**GRAPH_ATTRIBUTES["/"], "num_features": 50_000}}
    path = tmp_path / "wide.h5"
    write_by_the_document(path, attributes, {**GRAPH_DATASETS, "features": features})
    describe_file(path, verify=True)
    with h5py.File(path, "r+") as file:
        assert file["manifest/features"].shape == (2,)
        file["manifest/features"][1] = zlib.crc32(features.tobytes())
    with pytest.raises(StorageError, match="features: the checksum of block 1"):
        describe_file(path, verify=True)


def sections():
    """Return the words in backquotes in each section of docs/files.md, by heading."""
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / "files.md").read_text(), flags=re.DOTALL)
    parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)[1:]
    return {title: {word for quoted in re.findall(r"`([^`]+)`", body) for word in quoted.split()}
            for title, body in zip(parts[::2], parts[1::2])}


SECTIONS = {
    "hpgcn-graph": ("Graph",), "hpgcn-partitioned-graph": ("Graph", "Partitioned graph"),
    "hpgcn-model": ("Model",), "hpgcn-predictions": ("Predictions",),
    "hpgcn-checkpoint": ("Checkpoint", "Model")}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a folder with files of every format and a run with all its possible files."""
    folder = tmp_path_factory.mktemp("written")
    sparse = make_graph(features="sparse", ids=True, weighted=False)
    store.write_graph(folder / "dense.h5", make_graph())
    store.write_graph(folder / "ordered.h5", make_graph(), order=np.arange(60)[::-1])
    store.write_graph(folder / "sparse.h5", sparse)
    masks = {key: np.stack([mask, mask], axis=1) for key, mask in sparse.masks.items()}
    store.write_graph(folder / "splits.h5", hpgcn.Graph.from_scipy(sparse.adjacency, masks=masks))
    store.write_partitioned(folder / "cut.h5", sparse, make_partition(edges=sparse.indices.size))
    stack = {"norm": "batch", "residual": True, "input_layer": True, "output_layer": True}
    for model, settings in (
            ("gcn", {}), ("sage", {**stack, "ffn": True}), ("gin", {}), ("appnp", {}),
            ("sgc", {**stack, "jump": "cat"})):
        config = hpgcn.Config(**{"model": model, "norm": "layer", "epochs": 2, "trace": True,
                                 "checkpoint_every": 1, "out": str(folder / model), **settings})
        hpgcn.train(hpgcn.load(folder / "sparse.h5"), config)
        with mock.patch.object(machine, "limit_threads"):  # those of this process are set
            assert main(["predict", config.out, str(folder / "sparse.h5"), "-q"]) == 0
    return folder


@pytest.mark.long
def test_all_that_hpgcn_writes_is_in_the_document(written):
    named = sections()
    seen = set()
    for path in sorted(written.rglob("*.h5")):
        with h5py.File(path, locking=False) as file:
            kind = file.attrs["format"].decode()
            known = set().union(named["All HDF5 files"], *(named[each] for each in SECTIONS[kind]))
            seen.add(kind)
            assert contents(file) - known == set(), path
    assert seen == SECTIONS.keys()

    known = named["Run directory"] | named["Checkpoint"]
    for path in written.glob("*/**/*"):
        name = path.name if path.is_file() else f"{path.name}/"
        assert name in known or re.fullmatch(r"step-\d{8}/", name), name
    for run in written.glob("*/"):
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        summary = json.loads((run / "summary.json").read_text())
        assert summary.keys() | last.keys() <= known
    assert METRICS.keys() | SUMMARY.keys() <= known


def contents(file):
    """Return the attributes and datasets of a file, named as in docs/files.md."""
    names = {*file.attrs}

    def visit(name, item):
        if name.startswith("manifest/") or name == "manifest":
            names.update(item.attrs)
            return
        names.update(key for key, value in item.attrs.items()
                     if name != "partition" or value.dtype.kind == "S")
        if isinstance(item, h5py.Group):
            return
        group, _, last = name.rpartition("/")
        if "encoding-type" in file[group or "/"].attrs:
            names.update({group, last})
        elif group.partition("/")[0] in ("weights", "best", "optimizer"):
            names.update({f"{group}/NAME", re.sub(r"\d+", "{l}", last)})
        else:
            names.add(re.sub(r"^masks/\d+/", "masks/I/", name))

    file.visititems(visit)
    return names

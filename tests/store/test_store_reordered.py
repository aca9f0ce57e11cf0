"""A partitioned file that is written from blocks of a graph file is that of the graph in memory."""
import dataclasses
import errno
from collections import Counter

import h5py
import numpy as np
import pytest
from stored_graphs import assert_same, make_graph, make_partition

from hpgcn import Graph, store
from hpgcn.errors import DataError, StorageError
from hpgcn.runtime.disk import page_cache
from hpgcn.store.blocks import reordered
from hpgcn.store.reader import Reader
from hpgcn.store.schema import EDGE_FEATURES

GRAPHS = [{}, {"weighted": False, "labels": "multi", "ids": True},
          {"features": "sparse", "labels": "none", "masks": False}]


def content(path):
    """Return all datasets and attributes of a file except the time of its creation."""
    found = {}

    def add(name, item):
        data = item[()].tobytes() if isinstance(item, h5py.Dataset) else None
        found[name] = data, {key: str(value) for key, value in item.attrs.items()}

    with h5py.File(path) as file:
        file.visititems(add)
        add("/", file)
    for name, key in (("/", "created_utc"), ("manifest", "attributes_crc32")):
        del found[name][1][key]
    return found


def from_memory(source, partition, path):
    """Write a partitioned file from the graph in memory."""
    graph = source.read()
    header = dataclasses.replace(graph.header, source_sha256=source.sha256())
    store.write_partitioned(path, dataclasses.replace(graph, header=header), partition)


@pytest.mark.parametrize("options", GRAPHS)
@pytest.mark.parametrize("reordered_rows", [False, True])
@pytest.mark.parametrize("large", [0, 1 << 20])
def test_blocks_and_windows_change_nothing(tmp_path, monkeypatch, options, reordered_rows, large):
    order = np.random.default_rng(5).permutation(60) if reordered_rows else None
    store.write_graph(tmp_path / "g.h5", make_graph(**options), order=order)
    monkeypatch.setattr(reordered, "LARGE", large)
    for name, size in {"ENTRIES": 50, "BLOCK": 200, "WINDOW": 600}.items():
        monkeypatch.setattr(reordered, name, size)

    with store.load(tmp_path / "g.h5") as source:
        partition = make_partition(edges=source.header.num_edges)
        from_memory(source, partition, tmp_path / "memory.h5")
        structure = source.structure()
        store.write_partitioned(tmp_path / "blocks.h5", structure, partition, source=source)
        graph = source.read()
    assert content(tmp_path / "blocks.h5") == content(tmp_path / "memory.h5")

    zeros = np.zeros(60)
    bare = dataclasses.replace(graph, data=None, features=None, labels=None, original_ids=None,
                               degree_row=zeros, degree_column=zeros, degree_loop=zeros)
    assert_same(structure, bare)


@pytest.mark.parametrize("windows", [2, 5])
def test_features_are_read_at_most_twice(tmp_path, monkeypatch, windows):
    graph = make_graph()
    store.write_graph(tmp_path / "g.h5", graph)
    rows = []

    def read_features(reader, header, start, stop):
        rows.append(stop - start)
        return read(reader, header, start, stop)

    read = reordered.row_arrays.read_features
    monkeypatch.setattr(reordered.row_arrays, "read_features", read_features)
    monkeypatch.setattr(reordered, "BLOCK", 200)
    with store.load(tmp_path / "g.h5") as source:
        window = graph.features.nbytes // windows
        store.write_partitioned(tmp_path / "p.h5", source.structure(), make_partition(),
                                source=source, window=window)
    assert sum(rows) == 60 * (2 if windows == 2 else 1)


@pytest.mark.parametrize("large", [0, 1 << 20])
def test_entries_of_many_windows_are_read_once(tmp_path, monkeypatch, large):
    """Each array is grouped by window on disk; values need the columns once more."""
    A = make_graph().adjacency
    draws = np.random.default_rng(4)
    graph = Graph.from_scipy(A, make_graph(features="sparse").features,
                             edge_features=draws.random((A.nnz, 2)))
    store.write_graph(tmp_path / "g.h5", graph)
    counts = Counter()

    def count(reader, name, start=0, stop=None):
        rows = read(reader, name, start, stop)
        counts[name] += len(rows)
        return rows

    read = Reader.read
    monkeypatch.setattr(Reader, "read", count)
    monkeypatch.setattr(reordered, "ENTRIES", 50)
    monkeypatch.setattr(reordered, "LARGE", large)
    contents = []
    for window in (150, 1 << 20):
        with store.load(tmp_path / "g.h5") as source:
            structure = source.structure()
            counts.clear()
            store.write_partitioned(tmp_path / f"{window}.h5", structure, make_partition(),
                                    source=source, window=window)
        passes = {name: counts[name] / source.reader.entries[name].rows for name in counts}
        assert passes["adjacency/indices_1"] == 3  # for itself, values and edge features
        assert passes["adjacency/values"] == passes[EDGE_FEATURES] == 1
        assert passes["features/indices_1"] == 2 and passes["features/values"] == 1
        contents.append(content(tmp_path / f"{window}.h5"))
    assert contents[0] == contents[1]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_disk_without_room_for_rows_is_named(tmp_path, monkeypatch):
    def refuse(**options):
        raise OSError(errno.ENOSPC, "No space left on device")

    store.write_graph(tmp_path / "g.h5", make_graph())
    monkeypatch.setattr(page_cache.tempfile, "TemporaryFile", refuse)
    with (store.load(tmp_path / "g.h5") as source,
          pytest.raises(StorageError, match=r"p\.h5: writing failed: No space left")):
        store.write_partitioned(tmp_path / "p.h5", source.structure(), make_partition(),
                                source=source, window=100)
    assert [path.name for path in tmp_path.iterdir()] == ["g.h5"]


def test_features_of_entries_are_written(tmp_path, monkeypatch):
    draws = np.random.default_rng(3)
    A = make_graph().adjacency
    graph = Graph.from_scipy(A, edge_features=draws.random((A.nnz, 2)))
    store.write_graph(tmp_path / "g.h5", graph, order=draws.permutation(60))
    monkeypatch.setattr(reordered, "WINDOW", 1000)
    with store.load(tmp_path / "g.h5") as source:
        from_memory(source, make_partition(), tmp_path / "memory.h5")
        store.write_partitioned(tmp_path / "blocks.h5", source.structure(), make_partition(),
                                source=source)
    assert content(tmp_path / "blocks.h5") == content(tmp_path / "memory.h5")


def test_contradictions_are_refused(tmp_path):
    graph = make_graph()
    wrong = dataclasses.replace(graph, degree_row=graph.degree_row + 1)
    store.write_graph(tmp_path / "g.h5", wrong)
    with (store.load(tmp_path / "g.h5") as source,
          pytest.raises(DataError, match=r"degree/row\[0\] is")):
        source.structure()

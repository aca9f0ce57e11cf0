"""Graphs of every kind, and a function that updates the checksums of a changed file."""
import zlib
from contextlib import suppress

import h5py
import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError
from hpgcn.graphs.graph import Graph
from hpgcn.partition import Partition
from hpgcn.store.manifest import attributes_crc
from hpgcn.store.objects import raw_attributes

ARRAYS = ("indptr", "indices", "data", "features", "labels", "degree_row", "degree_column",
          "degree_loop", "vertex", "original_ids", "edge_features")


def make_graph(n=60, *, weighted=True, features="dense", labels="class", masks=True, ids=False,
               density=0.1, seed=0):
    """Return a random directed graph with the given kinds of features and labels.

    `features` is dense, sparse or none; `labels` is class, multi or none. With `ids`,
    classes have names, of which the last is unused.
    """
    rng = np.random.default_rng(seed)
    A = sp.random_array((n, n), density=density, rng=rng, format="csr")
    X = {"dense": rng.standard_normal((n, 7)), "none": None,
         "sparse": sp.random_array((n, 11), density=0.2, rng=rng, format="csr")}[features]
    y = {"class": rng.integers(0, 4, n), "multi": rng.integers(0, 2, (n, 3)), "none": None}[labels]
    order = rng.permutation(n)
    parts = order[:max(1, n // 3)], order[n // 3 + 1:n // 2], order[n // 2 + 1:]
    split = [np.isin(np.arange(n), part) for part in parts] if masks else None
    original_ids = rng.permutation(10 * n)[:n].astype(np.int64) if ids else None
    class_names = [f"classe n\u00ba {k}" for k in range(5 - 2 * (labels == "multi"))]
    return Graph.from_scipy(A, X, y, split, name=f"random-{seed}", unweighted=not weighted,
                            original_ids=original_ids, split="made up",
                            class_names=class_names if ids and y is not None else None)


def make_partition(n=60, k=3, seed=1, edges=None):
    """Return a random partition with a random order in each part.

    `edges` entries get parts as well.
    """
    rng = np.random.default_rng(seed)
    return Partition.from_parts(
        rng.integers(0, k, n), k, order=rng.permutation(n), method="random", engine="numpy",
        engine_version="2", seed=seed, epsilon=0.25,
        edge_part=None if edges is None else rng.integers(0, k, edges),
        statistics={"volume": 123456789012, "imbalance_nnz": 0.0123})


def assert_same(graph, expected):
    """Check that all arrays, their dtypes and the headers of two Graphs are equal."""
    assert (graph.header, graph.start) == (expected.header, expected.start)
    assert graph.class_names == expected.class_names
    for name in ARRAYS:
        array, wanted = getattr(graph, name), getattr(expected, name)
        assert sp.issparse(array) == sp.issparse(wanted), name
        if sp.issparse(wanted):
            array, wanted = array.toarray(), wanted.toarray()
        np.testing.assert_array_equal(array, wanted, err_msg=name)
        if wanted is not None:
            dtype = {"features": np.float32}.get(name, wanted.dtype)
            assert array.dtype == (np.float64 if name.startswith("degree") else dtype), name
    assert (graph.masks is None) == (expected.masks is None)
    for key, mask in (expected.masks or {}).items():
        np.testing.assert_array_equal(graph.masks[key], mask.astype(bool), strict=True)


def datasets(path):
    """Return the names of the datasets in a file's manifest."""
    names = {}
    with h5py.File(path) as file:
        file["manifest"].visititems(lambda name, item: names.update({name: type(item)}))
    return [name for name, kind in names.items() if kind is h5py.Dataset]


def edit(path, change, *, stamp=True, readable=True):
    """Call `change` on the open file, then update all checksums unless `stamp` is false."""
    with h5py.File(path, "r+") as file:
        change(file)
    failures = () if readable else (DataError, KeyError, OSError, AttributeError, MemoryError)
    if stamp:
        with suppress(*failures):
            restamp(path)


def restamp(path):
    """Update all checksums of a file after its arrays or attributes changed."""
    names = datasets(path)
    with h5py.File(path, "r+") as file:
        for name in names:
            del file[f"manifest/{name}"]
            if name in file and isinstance(file[name], h5py.Dataset):
                array = file[name][()]
                raw = array.tobytes()
                crcs = [zlib.crc32(raw[i:i + 2**20]) for i in range(0, len(raw), 2**20)]
                data = np.array(crcs, np.uint32)
                entry = file["manifest"].create_dataset(name, data=data)
                entry.attrs["dtype"] = array.dtype.str
                entry.attrs["shape"] = np.array(array.shape, np.int64)
        attributes = {"/": raw_attributes(file)}
        file.visititems(lambda name, item: attributes.update({f"/{name}": raw_attributes(item)}))
        file["manifest"].attrs["attributes_crc32"] = np.uint32(attributes_crc(attributes))


def middle(dataset):
    """Return the file offset of a byte in the middle of a dataset's first chunk."""
    if dataset.chunks:
        piece = dataset.id.get_chunk_info(0)
        return piece.byte_offset + piece.size // 2
    return dataset.id.get_offset() + dataset.nbytes // 2

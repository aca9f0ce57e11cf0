"""Graphs of every kind, changes to their files, and a way to stamp right checksums on a file that was changed."""
import zlib
from pathlib import Path

import h5py
import numpy as np
import scipy.sparse as sp

from hpgcn.graph import Graph
from hpgcn.partition import Partition
from hpgcn.store.manifest import attributes_crc
from hpgcn.store.objects import raw_attributes


def make_graph(n=60, *, weighted=True, features="dense", labels="class", masks=True, ids=False, density=0.1, seed=0):
    """A random directed graph of n vertices; `features` is dense, sparse or none, `labels` class, multi or none."""
    rng = np.random.default_rng(seed)
    A = sp.random_array((n, n), density=density, rng=rng, format="csr")
    X = {"dense": rng.standard_normal((n, 7)), "sparse": sp.random_array((n, 11), density=0.2, rng=rng, format="csr"),
         "none": None}[features]
    y = {"class": rng.integers(0, 4, n), "multi": rng.integers(0, 2, (n, 3)), "none": None}[labels]
    order = rng.permutation(n)
    parts = order[:max(1, n // 3)], order[n // 3 + 1:n // 2], order[n // 2 + 1:]
    split = [np.isin(np.arange(n), part) for part in parts] if masks else None
    return Graph.from_scipy(A, X, y, split, name=f"random-{seed}", unweighted=not weighted,
                            original_ids=rng.permutation(10 * n)[:n].astype(np.int64) if ids else None, split="made up")


def make_partition(n=60, k=3, seed=1, edges=None):
    """A random partition with a random order inside each part; with `edges`, of as many edges too."""
    rng = np.random.default_rng(seed)
    return Partition.from_parts(rng.integers(0, k, n), k, order=rng.permutation(n), method="random", engine="numpy",
                                engine_version="2", seed=seed, epsilon=0.25,
                                edge_part=None if edges is None else rng.integers(0, k, edges),
                                statistics={"volume": 123456789012, "imbalance_nnz": 0.0123})


def assert_same(found, expected):
    """All arrays and the header of two Graphs are equal."""
    assert found.header == expected.header
    assert found.start == expected.start
    for name in ("indptr", "indices", "data", "labels", "degree_row", "degree_column", "degree_loop", "vertex",
                 "original_ids"):
        a, b = getattr(found, name), getattr(expected, name)
        if b is None:
            assert a is None, name
        else:
            assert a.dtype == (np.float64 if name.startswith("degree") else b.dtype), name
            np.testing.assert_array_equal(a, b, err_msg=name)
    if sp.issparse(expected.features):
        assert sp.issparse(found.features)
        assert found.features.shape == expected.features.shape
        np.testing.assert_array_equal(found.features.toarray(), expected.features.toarray())
    elif expected.features is None:
        assert found.features is None
    else:
        assert found.features.dtype == np.float32
        np.testing.assert_array_equal(found.features, expected.features)
    if expected.masks is None:
        assert found.masks is None
    else:
        for key, mask in expected.masks.items():
            assert found.masks[key].dtype == bool
            np.testing.assert_array_equal(found.masks[key], mask)


def restamp(path):
    """Make all checksums right again after a test has changed arrays or attributes."""
    with h5py.File(path, "r+") as file:
        entries = []
        file["manifest"].visititems(lambda name, item: entries.append(name) if isinstance(item, h5py.Dataset) else None)
        for name in entries:
            del file[f"manifest/{name}"]
            if name in file and isinstance(file[name], h5py.Dataset):
                array = file[name][()]
                raw = array.tobytes()
                crcs = [zlib.crc32(raw[i:i + 2**20]) for i in range(0, len(raw), 2**20)]
                entry = file["manifest"].create_dataset(name, data=np.array(crcs, np.uint32))
                entry.attrs["dtype"] = array.dtype.str
                entry.attrs["shape"] = np.array(array.shape, np.int64)
        attributes = {"/": raw_attributes(file)}
        file.visititems(lambda name, item: attributes.update({f"/{name}": raw_attributes(item)}))
        file["manifest"].attrs["attributes_crc32"] = np.uint32(attributes_crc(attributes))


def external_storage(file):
    """Keep the features in a file of their own."""
    raw = Path(file.filename).with_name("raw.bin")
    raw.write_bytes(file["features"][()].tobytes())
    del file["features"]
    file.create_dataset("features", (60, 7), np.float32, external=[(str(raw), 0, raw.stat().st_size)])


def virtual(file):
    """Make the features a view of another file."""
    layout = h5py.VirtualLayout((60, 7), np.float32)
    layout[:] = h5py.VirtualSource("other.h5", "x", (60, 7))
    del file["features"]
    file.create_virtual_dataset("features", layout)


def link(kind, *arguments):
    """A change that puts a link where the labels were."""
    def apply(file):
        del file["labels"]
        file["labels"] = kind(*arguments)
    return apply

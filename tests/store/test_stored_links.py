"""Links in files: written, read by slabs, carried along by orders and partitions, and checked."""
import dataclasses
import pickle

import h5py
import numpy as np
import pytest
from graphs import make

import hpgcn
from hpgcn.cli.inspect_files import describe_file
from hpgcn.errors import DataError
from hpgcn.graphs.links import LinkSet
from hpgcn.partition import Partition
from hpgcn.store import write_graph, write_partitioned

N = make().num_rows
RNG = np.random.default_rng(0)


def draw(*shape):
    """Return distinct vertices in each row."""
    return np.stack([RNG.choice(N, shape[1], replace=False) for _ in range(shape[0])])


LINKS = {"train": LinkSet(draw(20, 2), weight=RNG.random(20).astype(np.float32)),
         "val": LinkSet(draw(7, 2), negative=draw(9, 2)),
         "test": LinkSet(draw(5, 2), negative_targets=draw(5, 3))}
GRAPH = dataclasses.replace(make(), links=LINKS)


def assert_same(found, expected, vertex=None):
    """Compare two dicts of LinkSet; `vertex` are the ORIGINAL numbers of the rows of `found`."""
    assert list(found) == list(expected)
    for key, links in expected.items():
        arrays = found[key].read().arrays()
        assert list(arrays) == list(links.arrays())
        for name, array in links.arrays().items():
            moved = vertex is not None and name != "weight"
            np.testing.assert_array_equal(vertex[arrays[name]] if moved else arrays[name], array)


@pytest.fixture
def path(tmp_path):
    hpgcn.save(GRAPH, tmp_path / "g.h5")
    return tmp_path / "g.h5"


def test_written_and_read(path):
    with hpgcn.load(path) as stored:
        assert_same(stored.links, LINKS)
        assert_same(stored.read().links, LINKS)
        assert_same(pickle.loads(pickle.dumps(stored)).links, LINKS)
        np.testing.assert_array_equal(stored.links["train"].positive[3:8],
                                      LINKS["train"].positive[3:8])
        assert stored.links["val"].negative[9:].shape == (0, 2)
        assert stored.slab(2, 5).links["val"].positive.shape == (7, 2)
    text = describe_file(path, verify=True)
    assert "links of train  20 links" in text and "7 links, 9 negatives" in text
    assert "5 links, 3 negative targets of each" in text
    hpgcn.save(make(), path, overwrite=True)
    assert hpgcn.load(path).links is None


@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_orders_and_partitions_carry_them_along(tmp_path, from_file, ordered):
    order = RNG.permutation(N) if ordered else None
    write_graph(tmp_path / "g.h5", GRAPH, order=order)
    partition = Partition.from_parts(RNG.integers(0, 3, N), 3)
    with hpgcn.load(tmp_path / "g.h5") as source:
        assert_same(source.links, LINKS, order)
        assert_same(source.read().links, LINKS)
        write_partitioned(tmp_path / "p.h5", None if from_file else source.read(), partition,
                          source=source if from_file else None)
    with hpgcn.load(tmp_path / "p.h5") as stored:
        assert_same(stored.links, LINKS, stored.vertices(0, N))
        assert_same(stored.in_original_order().links, LINKS)
        assert_same(stored.merged(1).links, LINKS, stored.vertices(0, N))


@pytest.mark.parametrize("name, value, message", [
    ("train/positive", (3, 0, N), rf"links/train/positive\[3\] has a vertex outside 0..{N - 1}"),
    ("train/weight", (4, np.inf), r"links/train/weight\[4\] is not a finite number: inf"),
    ("test/negative_targets", (2, 1, -1), r"links/test/negative_targets\[2\] has a vertex outside"),
])
def test_wrong_values_are_refused(path, name, value, message):
    with h5py.File(path, "r+") as file:
        file[f"links/{name}"][value[:-1]] = value[-1]
    with hpgcn.load(path, verify=False) as stored, pytest.raises(DataError, match=message):
        stored.read()


@pytest.mark.parametrize("name, array, message", [
    ("val/positive", np.zeros((7, 3), np.int64), r"shape \(7, 3\), expected \(any, 2\)"),
    ("val/positive", np.zeros((7, 2), np.int32), "dtype int32, expected int64"),
    ("val/positive", None, "dataset links/val/positive is missing"),
    ("train/weight", np.zeros(3, np.float32), r"shape \(3,\), expected \(20\)"),
    ("val/negative_targets", np.zeros((7, 1), np.int64), "expected one of them"),
])
def test_wrong_datasets_are_refused(path, name, array, message):
    with h5py.File(path, "r+") as file:
        if f"links/{name}" in file:
            del file[f"links/{name}"]
        if array is not None:
            file[f"links/{name}"] = array
    with pytest.raises(DataError, match=message):
        hpgcn.load(path, verify=False)

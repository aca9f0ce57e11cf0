"""Random features and labels depend on (seed, id, column) only; and a split of all vertices."""
import numpy as np
import pytest
from arrays import assert_all, assert_differ
from inputs import put, refused

import hpgcn
from hpgcn import store
from hpgcn.__main__ import main
from hpgcn.datasets.convert import convert, read
from hpgcn.errors import DataError, UsageError

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (4, 5), (6, 7), (7, 4)]
RANDOM = {"features": "random:6:3", "labels": "random:5:4"}


def text(edges, separator=" "):
    return "".join(f"{u}{separator}{v}\n" for u, v in edges)


@pytest.fixture
def edges(tmp_path):
    return put(tmp_path / "g.txt", text(EDGES))


def test_draws_are_of_seed_id_and_column(edges):
    graph, notes = read(edges, **RANDOM)
    X, y = graph.features, graph.labels
    assert X.dtype == np.float32 and X.shape == (8, 6) and y.shape == (8,)
    assert X.min() >= -1 and X.max() < 1 and np.unique(X).size == X.size
    assert y.min() >= 0 and y.max() < 5
    assert any("random:6:3" in note for note in notes)

    # fewer columns are the first ones; another seed draws all anew; labels differ from features
    fewer, _ = read(edges, features="random:2:3")
    np.testing.assert_array_equal(fewer.features, X[:, :2])
    other, _ = read(edges, features="random:6", labels="random:5")
    assert not np.intersect1d(other.features, X).size
    assert_differ(other.labels, y)


def test_draws_are_spread_evenly(tmp_path):
    path = put(tmp_path / "path.txt", text((i, i + 1) for i in range(9999)))
    graph, _ = read(path, features="random:8", labels="random:10")
    assert abs(graph.features.mean()) < .01 and abs(graph.features.var() - 1 / 3) < .01
    assert np.abs(np.corrcoef(graph.features.T) - np.eye(8)).max() < .05
    counts = np.bincount(graph.labels, minlength=10)
    assert counts.min() > 850 and counts.max() < 1150


def test_the_order_of_edges_and_missing_ids_change_nothing(edges, tmp_path):
    graph, _ = read(edges, **RANDOM)
    shuffled, _ = read(put(tmp_path / "s.txt", text(EDGES[::-1])), **RANDOM)
    np.testing.assert_array_equal(shuffled.features, graph.features)

    # ids: of a component, compacted, or from 1
    kept, _ = read(edges, largest_component=True, **RANDOM)
    ids = kept.original_ids
    assert ids.size == 4
    np.testing.assert_array_equal(kept.features, graph.features[ids])
    np.testing.assert_array_equal(kept.labels, graph.labels[ids])
    gaps = put(tmp_path / "gaps.txt", text([(3, 7), (7, 5)]))
    compact, _ = read(gaps, compact=True, **RANDOM)
    np.testing.assert_array_equal(compact.features, graph.features[[3, 5, 7]])
    one, _ = read(gaps, base=1, **RANDOM)
    np.testing.assert_array_equal(one.features[6], graph.features[7])


def test_names_have_draws_of_their_own(tmp_path):
    names = [("ann", "bob"), ("bob", "cy"), ("cy", "d")]
    first, _ = read(put(tmp_path / "a.txt", text(names)), **RANDOM)
    again, _ = read(put(tmp_path / "b.txt", text(names[::-1])), **RANDOM)
    assert first.original_ids.tolist() != again.original_ids.tolist()
    order = [again.original_ids.tolist().index(name) for name in first.original_ids]
    np.testing.assert_array_equal(first.features, again.features[order])
    assert np.unique(first.features).size == first.features.size


def test_order_of_rows_changes_no_bit(edges, tmp_path):
    for order in ("none", "degree"):
        convert(edges, tmp_path / f"{order}.h5", order=order, split="random", **RANDOM)
    first, second = (store.load(tmp_path / f"{order}.h5").in_original_order()
                     for order in ("none", "degree"))
    np.testing.assert_array_equal(first.features, second.features)
    np.testing.assert_array_equal(first.labels, second.labels)
    in_memory, _ = read(edges, **RANDOM)
    np.testing.assert_array_equal(first.features, in_memory.features)


def test_features_are_never_whole_in_memory(edges, tmp_path):
    """Random features of more bytes than any memory are generated when their rows are read."""
    from hpgcn.datasets.random_contents import RandomDraw, RandomFeatures

    few = RandomFeatures(RandomDraw(8, 0), np.arange(7, dtype=np.uint64))
    np.testing.assert_array_equal(few[np.array([6, 5])], few[5:7][::-1])
    X = RandomFeatures(RandomDraw(8, 0), np.broadcast_to(np.uint64(5), 1 << 50))
    assert X.shape == (1 << 50, 8)
    np.testing.assert_array_equal(X[8:10], few[[5, 5]])


def test_the_file_says_that_they_are_random(edges, tmp_path, capsys):
    path = tmp_path / "g.h5"
    assert main(["convert", str(edges), str(path), "--features", "random:6:3", "--labels",
                 "random:40", "--split", "all"]) == 0
    assert main(["partition", str(path), "-k", "2", "--method", "block"]) == 0
    for name in ("g.h5", "g.p2.h5"):
        with hpgcn.load(tmp_path / name) as stored:
            header = stored.header
            assert (header.random_features, header.random_labels) == ("random:6:3", "random:40:0")
            assert header.num_classes == 40 and header.split == "all"
            assert_all([*stored.masks.values()])
        capsys.readouterr()
        main(["inspect", str(tmp_path / name), "--verify"])
        shown = capsys.readouterr().out
        assert "6 wide, dense float32, random (random:6:3)" in shown
        assert "random (random:40:0)" in shown
        assert "train 8, val 8, test 8 (all)" in shown
    plain, _ = read(edges)
    assert not plain.header.random_features and not plain.header.random_labels


def test_all_trains_and_evaluates_every_vertex(edges, tmp_path):
    graph, _ = read(edges, split="all", **RANDOM)
    result = hpgcn.train(graph, hpgcn.Config(epochs=2))
    assert result["best_val_acc"] == result["test_acc"]


def test_all_leaves_out_vertices_without_label(edges, tmp_path):
    labels = put(tmp_path / "y.txt", "0\n1\n-1\n0\n1\n1\n0\n0\n")
    graph, _ = read(edges, labels=labels, split="all")
    assert np.flatnonzero(~graph.masks["val"]).tolist() == [2]
    refused("no labels, but a split needs them", edges, split="all")


def test_other_masks_that_overlap_are_refused(edges):
    ones, half = np.ones(4, bool), np.array([True, False, True, False])
    with pytest.raises(DataError, match="in both the train and the val mask"):
        hpgcn.Graph.from_scipy(np.eye(4), masks=(ones, ones, ones))
    with pytest.raises(DataError, match="in both the train and the val mask"):
        hpgcn.Graph.from_scipy(np.eye(4), masks=(ones, half, ones), split="all")
    graph = hpgcn.Graph.from_scipy(np.eye(4), masks=(ones, ones, ones), split="all")
    assert graph.header.split == "all"


@pytest.mark.parametrize("flag, text", [
    ("features", "random:0"), ("features", "random:x"), ("features", "random:5:-1"),
    ("features", "random:5:"), ("features", "random"), ("features", "random:99999999"),
    ("features", f"random:5:{2**63}"), ("labels", "random:0"), ("labels", "random:-1"),
    ("labels", "random:70000"), ("labels", "random:5:x:1")])
def test_bad_values_are_refused_in_a_line(edges, flag, text):
    with pytest.raises(UsageError, match=rf"--{flag} {text}: expected random:") as error:
        read(edges, **{flag: text})
    assert str(error.value).isprintable()


def test_random_features_are_not_normalized(edges):
    with pytest.raises(UsageError, match="--row-normalize"):
        read(edges, features="random:5", row_normalize=True)


def test_input_features_and_labels_are_replaced():
    graph, _ = read("karate", **RANDOM)
    assert graph.header.num_features == 6 and graph.header.num_classes == 5
    assert graph.class_names is None

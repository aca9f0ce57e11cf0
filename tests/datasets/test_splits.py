"""Splits: their sizes and balance, and that they depend on seed and labels only."""
import numpy as np
import pytest
from arrays import assert_differ, assert_none, assert_some
from inputs import put, refused

from hpgcn.datasets.convert import read
from hpgcn.datasets.split import (
    parse_split,
    per_class_split,
    planetoid_split,
    random_split,
)
from hpgcn.errors import DataError, UsageError

LABELS = np.repeat([0, 1, 2, -1], [100, 50, 10, 40])


def test_random_is_balanced_and_disjoint():
    masks = random_split(LABELS, (60, 20, 20), 0, "g")
    assert [np.bincount(LABELS[masks[key]]).tolist() for key in ("train", "val", "test")] == [
        [60, 30, 6], [20, 10, 2], [20, 10, 2]]
    assert sum(mask.astype(int) for mask in masks.values()).max() == 1
    assert_none([mask[LABELS < 0] for mask in masks.values()])


def test_random_depends_on_the_seed_and_the_labels():
    first, again, other = (random_split(LABELS, (60, 20, 20), seed, "g")["train"]
                           for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert_differ(first, other)
    longer = random_split(np.concatenate([LABELS, [-1] * 7, [5] * 9]), (60, 20, 20), 3,
                          "g")["train"]
    np.testing.assert_array_equal(longer[:LABELS.size], first)


def test_random_rest_and_fractions():
    masks = random_split(np.zeros(1000, int), (12.5, 0, 50), 0, "g")
    assert [int(mask.sum()) for mask in masks.values()] == [125, 0, 500]
    assert int(random_split(np.array([0, 1]), (60, 20, 20), 0, "g")["train"].sum()) == 2
    assert int(random_split(np.eye(10), (60, 20, 20), 0, "g")["train"].sum()) == 6


def test_planetoid():
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [1000, 700, 100]))
    masks = planetoid_split(labels, "g")
    assert np.bincount(labels[masks["train"]]).tolist() == [20, 20, 20]
    assert [int(masks[key].sum()) for key in ("val", "test")] == [500, 1000]
    shares = 500 * np.array([980, 680, 80]) / 1740
    assert np.abs(np.bincount(labels[masks["val"]]) - shares).max() <= 1
    assert sum(mask.astype(int) for mask in masks.values()).max() == 1


@pytest.mark.parametrize("labels, message", [
    (np.repeat([0, 1], [3000, 19]), "class 1 has 19"),
    (np.repeat([0, 1], [700, 839]), "1499 labeled vertices remain after 20"),
    (np.full(5000, -1), "0 labeled"), (np.ones((5000, 2)), "one class per vertex"),
    (None, "--labels")])
def test_planetoid_too_small(labels, message):
    with pytest.raises(DataError, match=message):
        planetoid_split(labels, "g")


def test_per_class():
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, -1], [400, 51, 100, 30]))
    masks, again, other = (per_class_split(labels, (20, 30), seed, "g") for seed in (3, 3, 4))
    counts = {"train": [20] * 3, "val": [30] * 3, "test": [350, 1, 50]}
    for key, expected in counts.items():
        assert np.bincount(labels[masks[key]]).tolist() == expected
        np.testing.assert_array_equal(masks[key], again[key])
        assert_some(masks[key] != other[key])
    assert_none([mask[labels < 0] for mask in masks.values()])
    with pytest.raises(DataError, match="class 1 has 51 labeled vertices, but split per-class"):
        per_class_split(labels, (21, 30), 0, "g")


@pytest.mark.parametrize("text", ["", "half", "per-class:20", "per-class:0/30", "per-class:2.5/3",
                                  "random:", "random:60/20", "random:60/20/30",
                                  "random:0/50/50", "random:-1/2/3", "random:60/20/20:x",
                                  "random:60/20/20:99999999999999999999", "Planetoid"])
def test_words_that_are_no_split(text):
    with pytest.raises(UsageError, match="split"):
        parse_split(text)


def test_recorded_and_chosen(tmp_path, data_dir):
    assert read("karate", split="random:60/20/20")[0].header.split == "random:60/20/20:0"
    assert read("karate", split="random:12.5/20/20:7")[0].header.split == "random:12.5/20/20:7"
    assert read("karate", split="per-class:3/4:9")[0].header.split == "per-class:3/4:9"
    assert read("karate", split="file")[0].header.split == "file"
    refused("split planetoid", "karate", split="planetoid")
    cora = data_dir / "planetoid" / "ind.cora.graph"
    own = read(cora)[0].masks
    for split in ("file", "planetoid"):
        graph, _ = read(cora, split=split)
        assert graph.header.split == "planetoid"
        for key, mask in own.items():
            np.testing.assert_array_equal(mask, graph.masks[key])
    refused(r"g\.txt: no split in the input", put(tmp_path / "g.txt", "0 1\n"), split="file")
    refused(r"g\.txt: no labels.*--labels", tmp_path / "g.txt", split="random:60/20/20")


@pytest.mark.parametrize("split", ["random:60/20/20:5", "per-class:3/4:5"])
def test_several_are_those_of_the_seeds_that_follow(split):
    graph, _ = read("karate", split=split, num_splits=3)
    assert graph.header.split == f"{split}..7" and graph.header.num_splits == 3
    for i in range(3):
        alone = read("karate", split=f"{split[:-1]}{5 + i}")[0].masks
        for key, mask in graph.of_split(i).masks.items():
            np.testing.assert_array_equal(mask, alone[key], strict=True)


@pytest.mark.parametrize("split, count", [
    (None, 2), ("file", 2), ("planetoid", 3), ("random", 0), ("random", 1001), ("random", 2.0),
    (f"random:60/20/20:{2**63 - 1}", 2)])
def test_several_that_cannot_be_drawn(split, count):
    with pytest.raises(UsageError, match="num_splits"):
        read("karate", split=split, num_splits=count)

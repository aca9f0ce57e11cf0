"""A graph with several splits gives the results of a graph with only the selected split."""
import json
from unittest import mock

import h5py
import numpy as np
import pytest
from commands import refused, succeed
from graphs import make

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import ConfigError, DataError
from hpgcn.graphs.graph import Graph
from hpgcn.store.reader import Reader

COUNT = 10
NAMES = ("train", "val", "test")


def many(count=COUNT):
    """Return a graph with `count` splits of different sizes."""
    graph = make(train=40)
    rng = np.random.default_rng(1)
    known = np.flatnonzero(graph.labels >= 0)
    masks = {key: np.zeros((graph.num_rows, count), bool) for key in NAMES}
    for i in range(count):
        order = rng.permutation(known)
        parts = order[:20 + i], order[20 + i:60], order[60:150]
        for key, part in zip(NAMES, parts):
            masks[key][part, i] = True
    return Graph.from_scipy(graph.adjacency, graph.features, graph.labels, masks, name="many")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write many.h5 with all splits, three.h5 with only split 3, and both in 3 parts."""
    folder = tmp_path_factory.mktemp("splits")
    graph = many()
    hpgcn.save(graph, folder / "many.h5")
    hpgcn.save(graph.of_split(3), folder / "three.h5")
    for name in ("many", "three"):
        succeed("partition", folder / f"{name}.h5", "-k", 3, "--method", "random", "-q")
    return folder


def losses(source, **settings):
    result = hpgcn.train(source, Config(epochs=4, hidden=8, **settings))
    return [(row["loss"], row["val_loss"], row["test_acc"]) for row in result.history]


def test_one_of_many_is_that_split_alone(folder):
    alone = losses(folder / "three.h5")
    assert losses(folder / "many.h5", split_index=3) == alone
    assert losses(many(), split_index=3) == alone
    assert losses(many().of_split(3)) == alone
    assert losses(folder / "many.h5") == losses(many().of_split(0)) != alone


def test_files_hold_all_and_give_one(folder):
    graph = many()
    with hpgcn.load(folder / "many.h5") as stored, hpgcn.load(folder / "many.p3.h5") as parts:
        assert stored.header.num_splits == parts.header.num_splits == COUNT
        assert "10 splits" in str(stored.header)
        perm = parts.vertex_partition.perm
        for key, mask in graph.masks.items():
            np.testing.assert_array_equal(stored.masks[key], mask, strict=True)
            np.testing.assert_array_equal(parts.masks[key], mask[perm], strict=True)
            np.testing.assert_array_equal(parts.slab(5, 90, 7).masks[key], mask[perm][5:90, 7])
    with h5py.File(folder / "many.h5", locking=False) as file:
        assert file.attrs["num_splits"] == COUNT
        np.testing.assert_array_equal(file["masks/9/val"], graph.masks["val"][:, 9])


def test_a_slab_reads_the_masks_of_its_split_alone(folder):
    read = []
    original = Reader.read

    def noted(self, name, *rows):
        read.append(name)
        return original(self, name, *rows)

    with hpgcn.load(folder / "many.h5") as stored, mock.patch.object(Reader, "read", noted):
        slab = stored.slab(0, 50, 4)
    assert sorted(name for name in read if "masks" in name) == [
        f"masks/4/{key}" for key in sorted(NAMES)]
    assert slab.header.num_splits == 1 and slab.masks["train"].shape == (50,)


def test_a_file_with_one_split_is_as_ever(tmp_path):
    hpgcn.save(many(1), tmp_path / "one.h5")
    with h5py.File(tmp_path / "one.h5", locking=False) as file:
        assert sorted(file["masks"]) == sorted(NAMES) and "num_splits" not in file.attrs
    with hpgcn.load(tmp_path / "one.h5") as stored:
        assert stored.slab(0, 9).masks["train"].shape == (9,)


@pytest.mark.parametrize("masks, message", [
    ((np.eye(4, 2, dtype=bool), [3], []), None),  # other vertices differ between splits
    ((np.eye(4, 1, dtype=int), [], []), None),
    ((np.eye(4, 3, 1, dtype=bool), [], []), "split 0: train mask is empty"),
    ((np.eye(4, 2, dtype=bool), [1], []), "split 1: vertex 1 is in both the train and the val"),
    ((np.eye(4, 4, dtype=bool), [], []), "split 3: vertex 3 is in the train mask but has no label"),
    ((np.eye(4, 2, dtype=bool), np.zeros((4, 3), bool), []), "2 train masks, 3 val masks, expecte"),
    ((np.eye(2, 4, dtype=bool), [], []), r"shape \(2, 4\), expected \(4,\) or \(4, s\)"),
    ((np.eye(4, 2), [], []), r"dtype float64 and shape \(4, 2\), expected bool \(4,\) or \(4, s\)"),
    ((np.ones((4, 0), bool), [], []), "expected 1 to 1000 splits")])
def test_masks_are_checked_split_by_split(masks, message):
    make_it = lambda: Graph.from_scipy(np.eye(4), None, [0, 1, 0, -1], masks)  # noqa: E731
    if message is None:
        graph = make_it() if masks[1] != [3] else Graph.from_scipy(np.eye(4), masks=masks)
        assert graph.header.num_splits == np.shape(masks[0])[1]
        assert graph.of_split(0).masks["train"].tolist() == [True, False, False, False]
        return
    with pytest.raises(DataError, match=message):
        make_it()


def test_what_is_wrong_in_a_file_is_named(folder, tmp_path):
    graph = many(3)
    graph.masks["train"][:, 2] = False
    hpgcn.save(graph, tmp_path / "g.h5")
    assert "g.h5: masks/2/train is empty" in refused(65, "partition", tmp_path / "g.h5", "-k", 2)
    line = refused(65, "train", tmp_path / "g.h5", "--split-index", 2, "--out", tmp_path / "run")
    assert "the train mask of split 2 is empty" in line
    graph = many(3)
    both = int(np.flatnonzero(graph.masks["val"][:, 1])[0])
    graph.masks["train"][both, 1] = True
    hpgcn.save(graph, tmp_path / "b.h5")
    line = refused(65, "inspect", tmp_path / "b.h5", "--verify")
    assert f"masks/1/train[{both}] is set, and in masks/1/val too" in line
    with h5py.File(tmp_path / "b.h5", "r+") as file:
        del file["masks/2/test"]
    assert "dataset masks/2/test is missing" in refused(65, "inspect", tmp_path / "b.h5")


@pytest.mark.parametrize("command", ["train", "plan", "partition"])
def test_a_split_that_is_not_there(folder, tmp_path, command):
    more = {"train": ["--out", tmp_path / "run"], "plan": [],
            "partition": ["-k", 2, "--balance-train", "--out", tmp_path / "p.h5"]}[command]
    line = refused(78, command, folder / "many.h5", "--split-index", 10, *more)
    assert "many.h5: --split-index 10, but the graph has 10 splits, 0 to 9" in line
    line = refused(78, command, folder / "three.h5", "--split-index", 1, *more)
    assert "three.h5: --split-index 1, but the graph has one split, 0" in line
    assert not list(tmp_path.iterdir())


def test_refused_in_python():
    with pytest.raises(ConfigError, match="split_index=10, but the graph has 10 splits"):
        hpgcn.train(many(), Config(split_index=10, epochs=1))


@pytest.mark.long
def test_a_run_goes_on_with_its_split_alone(folder, tmp_path):
    run = tmp_path / "run"
    given = "train", folder / "many.h5", "--out", run, "--hidden", 8, "-q"
    succeed(*given, "--split-index", 3, "--epochs", 2, "--checkpoint-every", 1)
    line = refused(78, *given, "--split-index", 4, "--epochs", 4, "--resume")
    assert "split_index is 4, but the run was started with 3" in line
    succeed(*given, "--epochs", 4, "--resume")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in rows] == [
        loss for loss, *_ in losses(folder / "many.h5", split_index=3)]


def test_a_checkpoint_from_before_there_were_several(folder, tmp_path):
    whole = Config.to_toml

    def older(self):
        return "".join(line + "\n" for line in whole(self).splitlines()
                       if not line.startswith("split_index"))

    config = Config(epochs=2, hidden=8, checkpoint_every=1, out=str(tmp_path / "run"))
    with mock.patch.object(Config, "to_toml", older):
        hpgcn.train(folder / "three.h5", config)
    assert "split_index" not in (tmp_path / "run" / "config.toml").read_text()
    result = hpgcn.train(folder / "three.h5", config.replace(epochs=4), resume=tmp_path / "run")
    assert [row["loss"] for row in result.history] == [
        loss for loss, *_ in losses(folder / "three.h5")]


def test_a_model_of_one_split_predicts_where_there_is_none(folder, tmp_path):
    result = hpgcn.train(folder / "many.h5", Config(split_index=9, epochs=2, hidden=8))
    expected = hpgcn.predict(folder / "many.h5", result)["logits"]
    graph = many()
    bare = Graph.from_scipy(graph.adjacency, graph.features, graph.labels)
    for source in (bare, folder / "three.h5"):
        np.testing.assert_array_equal(hpgcn.predict(source, result)["logits"], expected)


def test_plan_and_partition_are_of_the_split(folder, tmp_path):
    reports = {name: json.loads(succeed("plan", folder / f"{name}.h5", "-k", 2, "--json", "-q",
                                        *more))["rows_per_level"]
               for name, more in (("many", ["--split-index", 3]), ("three", []))}
    assert reports["many"] == reports["three"]
    assert reports["many"]["train"][-1] == 23
    for name, more in (("many", ["--split-index", 3]), ("three", [])):
        succeed("partition", folder / f"{name}.h5", "-k", 4, "--method", "block", "-q",
                "--balance-train", "--out", tmp_path / f"{name}.h5", *more)
    with hpgcn.load(tmp_path / "many.h5") as ours, hpgcn.load(tmp_path / "three.h5") as theirs:
        np.testing.assert_array_equal(ours.partition.part, theirs.partition.part)
        train = many().masks["train"][:, 3]
        assert np.bincount(ours.partition.part[train], minlength=4).max() <= 23 / 4 + 1
        assert ours.header.num_splits == COUNT


def test_inspect_counts_them(folder):
    said = succeed("inspect", folder / "many.h5", "--verify")
    assert "10 splits, each of train 20 to 29, val 31 to 40, test 90 (file)" in said
    said = succeed("inspect", folder / "three.h5")
    assert "split      train 23, val 37, test 90 (file)" in said

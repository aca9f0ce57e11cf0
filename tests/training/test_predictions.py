"""`hpgcn predict -o FILE`: the suffix sets the format; vertices and classes have their names."""
import csv
import shutil
import sys
from functools import partial

import numpy as np
import pytest
from commands import hpgcn as started
from commands import run, succeed
from graphs import IDS, cliques

import hpgcn
from hpgcn import report, store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.errors import DataError
from hpgcn.graphs.graph import Graph
from hpgcn.report import page
from hpgcn.store import prediction_files

NAMES = ("chat", "chien; loup", '=été, "hiver"\r\n')
graph = partial(cliques, names=NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with g.h5, whose rows are reordered, and a run trained on it."""
    folder = tmp_path_factory.mktemp("predictions")
    store.write_graph(folder / "g.h5", graph(), order=np.arange(12)[::-1])
    succeed("train", folder / "g.h5", "--out", folder / "run", "--epochs", 60, "--lr", .1,
            "--dropout", 0, "--strategy", "p2p")
    return folder


def rows(path):
    """Return the rows of a CSV or TSV file, as Python's csv module reads them."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


@pytest.mark.long
def test_every_kind_of_file(folder):
    truth = [NAMES[k // 4] for k in range(12)]
    found = hpgcn.predict(folder / "g.h5", folder / "run")
    assert found["id"].tolist() == found["original_ids"].tolist() == IDS
    assert found["class_names"][found["label"]].tolist() == truth
    shares = np.exp(found["logits"].astype(float))
    shares = (shares / shares.sum(axis=1, keepdims=True)).max(axis=1)

    for name in ("p.csv", "p.tsv", "p.parquet", "p.npz", "p.h5"):
        succeed("predict", folder / "run", "-o", folder / name)
    for name in ("p.csv", "p.tsv"):
        header, *lines = rows(folder / name)
        assert header == ["id", "label", "probability"]
        assert [line[:2] for line in lines] == [list(pair) for pair in zip(IDS, truth)]
        np.testing.assert_allclose([float(line[2]) for line in lines], shares, rtol=1e-5)
    assert (folder / "p.csv").read_bytes().startswith(b"id,label,probability\nv0,chat,")

    with np.load(folder / "p.npz") as arrays:  # nothing in it is pickled
        assert sorted(arrays) == ["class_names", "embedding", "id", "label", "logits"]
        assert arrays["class_names"][arrays["label"]].tolist() == truth
        np.testing.assert_array_equal(arrays["logits"], found["logits"])
    arrays, _ = store.read_predictions(folder / "p.h5")
    assert arrays["id"].tolist() == IDS and arrays["class_names"].tolist() == list(NAMES)
    assert "2 =été" in (text := describe_file(folder / "p.h5", verify=True))
    assert ": 4 vertices" in text and "\r" not in text and "12, in their original order" in text

    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(folder / "p.parquet").to_pydict()
    assert table["id"] == IDS and table["label"] == truth
    np.testing.assert_allclose(table["probability"], shares, rtol=1e-5)


@pytest.mark.long
@pytest.mark.usefixtures("forks")
def test_several_ranks_write_the_same(folder):
    succeed("predict", folder / "run", "-o", folder / "one.csv")
    ended = started("predict", folder / "run", "-o", folder / "three.csv", ranks=3)
    assert ended.returncode == 0, ended.stderr
    one, three = rows(folder / "one.csv"), rows(folder / "three.csv")
    assert [row[:2] for row in one] == [row[:2] for row in three]
    np.testing.assert_allclose([float(row[2]) for row in one[1:]],
                               [float(row[2]) for row in three[1:]], rtol=1e-5)


def test_refused_before_any_work(folder, monkeypatch):
    monkeypatch.setattr("hpgcn.training.inference.predict", print)
    before = sorted(folder.iterdir())
    (folder / "there.csv").write_text("mine")
    for name, code, message in (
            ("p.txt", 2, "predictions must end in .csv, .tsv, .parquet, .npz, .h5 or .hdf5"),
            ("p", 2, "must end in"), ("there.csv", 73, "exists already; use --overwrite"),
            ("none/p.csv", 73, "there is no folder")):
        ended = run("predict", folder / "run", "-o", folder / name)
        assert ended.returncode == code and message in ended.stderr
    assert (folder / "there.csv").read_text() == "mine"
    (folder / "there.csv").unlink()
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    ended = run("predict", folder / "run", "-o", folder / "q.parquet")
    assert ended.returncode == 69 and "writing Parquet needs pyarrow" in ended.stderr
    assert sorted(folder.iterdir()) == before


def test_without_names_there_are_numbers(tmp_path):
    """Without names, predictions have class numbers and vertex numbers.

    Vertex numbers start at the input's base.
    """
    (tmp_path / "g.txt").write_text("".join(f"{k} {k % 12 + 1}\n" for k in range(1, 13)))
    np.save(tmp_path / "y.npy", np.arange(12) // 4)
    succeed("convert", tmp_path / "g.txt", tmp_path / "g.h5", "--base", 1, "--features",
            "identity", "--labels", tmp_path / "y.npy", "--split", "random:50/25/25")
    succeed("train", tmp_path / "g.h5", "--out", tmp_path / "run", "--epochs", 1)
    succeed("predict", tmp_path / "run", "-o", tmp_path / "p.csv")
    _, *lines = rows(tmp_path / "p.csv")
    assert [line[0] for line in lines] == [str(k) for k in range(1, 13)]
    assert {line[1] for line in lines} <= {"0", "1", "2"}
    assert hpgcn.load(tmp_path / "g.h5").header.base == 1
    assert "class_names" not in hpgcn.predict(tmp_path / "g.h5", tmp_path / "run")


def edges(ids, separator):
    """Return the text of an edge list: three cliques of 4 vertices and one bridge."""
    ends = [(u, v) for u in range(12) for v in range(u) if u // 4 == v // 4] + [(3, 4)]
    return "".join(f"{ids[u]}{separator}{ids[v]}\n" for u, v in ends)


@pytest.mark.long
@pytest.mark.parametrize("name, ids, flags", [
    ("g.csv", [f"v{k}" for k in range(12)], ()), ("g.txt", range(1, 13), ("--base", 1)),
    *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("g.txt", [10**12 - 7 * k for k in range(12)], ()), ("g.mtx", range(1, 13), ())))])
def test_labels_by_name_come_back_by_id(tmp_path, name, ids, flags):
    """Predictions, matched by id, equal the labels of a CSV file whose rows are in any order."""
    text = edges(ids, "," if name == "g.csv" else " ")
    if name == "g.csv":
        text = "source,target\n" + text
    if name == "g.mtx":
        count = text.count("\n")
        text = f"%%MatrixMarket matrix coordinate pattern symmetric\n12 12 {count}\n{text}"
    (tmp_path / name).write_text(text)
    places = np.random.default_rng(1).permutation(12).tolist()
    wanted = {str(ids[k]): ("red", "green", "blue, light")[k // 4] for k in places}
    with open(tmp_path / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([("id", "label"), *wanted.items()])
    with open(tmp_path / "x.csv", "w", newline="") as file:
        csv.writer(file).writerows([("id", "a", "b", "c"), *(
            (ids[k], *np.eye(3, dtype=int)[k // 4]) for k in reversed(places))])
    succeed("convert", tmp_path / name, tmp_path / "g.h5", "--labels", tmp_path / "labels.csv",
            "--features", tmp_path / "x.csv", "--split", "per-class:2/1", "--symmetrize", *flags)
    assert hpgcn.load(tmp_path / "g.h5").class_names == ("blue, light", "green", "red")
    succeed("partition", tmp_path / "g.h5", "-k", 1)
    succeed("train", tmp_path / "g.p1.h5", "--out", tmp_path / "run", "--epochs", 40, "--lr", .1,
            "--dropout", 0)
    succeed("predict", tmp_path / "run", "-o", tmp_path / "p.csv")
    assert {line[0]: line[1] for line in rows(tmp_path / "p.csv")[1:]} == wanted
    succeed("predict", tmp_path / "run", tmp_path / "g.h5", "-o", tmp_path / "q.csv")
    assert rows(tmp_path / "q.csv") == rows(tmp_path / "p.csv")


def test_several_labels_a_vertex(tmp_path):
    """Several predicted labels are joined by a semicolon, which class names may not contain."""
    found = {"id": np.arange(3), "logits": np.array([[1., 0, 2], [-1, -2, -3], [-1, 800, -800]]),
             "label": np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0]], np.uint8),
             "class_names": np.array(["a", "b", "c,"])}
    write = store.prediction_writer(tmp_path / "p.csv")
    write(tmp_path / "p.csv", found, {})
    assert rows(tmp_path / "p.csv")[1:] == [
        ["0", "a;c,", "0.731059;0.880797"], ["1", "", ""], ["2", "b", "1"]]
    with pytest.raises(DataError, match="class 'b;' contains ;, which separates labels"):
        write(tmp_path / "q.csv", {**found, "class_names": np.array(["a", "b;", "c"])}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def test_the_model_remembers_its_classes(folder, tmp_path):
    """Predictions have the model's class names, even if the graph has others or none."""
    other = graph(names=("x", "y", "z"))
    assert hpgcn.predict(other, folder / "run")["class_names"].tolist() == list(NAMES)
    bare = Graph.from_scipy(other.adjacency, other.features)
    found = hpgcn.predict(bare, folder / "run" / "model.h5")
    assert found["class_names"].tolist() == list(NAMES) and found["id"].tolist() == [*range(12)]
    assert "class_names" not in hpgcn.predict(
        bare, hpgcn.train(graph(names=None), hpgcn.Config(epochs=1)))
    result = hpgcn.train(graph(), hpgcn.Config(epochs=1, out=str(tmp_path / "run")))
    again = hpgcn.train(graph(), resume=tmp_path / "run")
    assert result.class_names == again.class_names == NAMES
    assert hpgcn.predict(bare, result)["class_names"].tolist() == list(NAMES)
    unnamed = hpgcn.train(graph(names=None), hpgcn.Config(epochs=1))
    assert hpgcn.predict(other, unnamed)["class_names"].tolist() == ["x", "y", "z"]

    text = describe_file(folder / "run" / "model.h5", verify=True)
    assert "0 chat\n" in text and "1 chien; loup\n" in text
    text = describe_file(folder / "g.h5", verify=True)
    assert "0 chat: 4 vertices\n" in text and "3 classes of 4, 4, 4 vertices" in text
    model = store.read_model(folder / "run" / "model.h5")
    store.write_model(tmp_path / "m.h5", model[0], config_toml=model[1]["config_toml"], epoch=1,
                      names={"class_names": ("a", "b")})
    with pytest.raises(DataError, match="2 class_names, but the model has 3 classes"):
        hpgcn.predict(bare, tmp_path / "m.h5")


def test_reports_list_classes(folder, tmp_path):
    assert "run: classes chat, chien; loup, =été" in succeed("report", folder / "run")
    assert "0 chat\n" in succeed("inspect", folder / "run")
    run_of_classes, = report.read_runs([folder / "run"])
    assert ("classes", "chat, chien; loup, " + NAMES[2]) in page._facts(run_of_classes)
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run" / "model.h5").write_bytes(b"half")
    assert "names of classes are not read: " in succeed("report", tmp_path / "run")


def test_large_files_are_written_in_pieces(folder, monkeypatch):
    succeed("predict", folder / "run", "-o", folder / "whole.csv")
    monkeypatch.setattr(prediction_files, "ROWS_AT_ONCE", 5)
    succeed("predict", folder / "run", "-o", folder / "pieces.csv")
    assert (folder / "pieces.csv").read_bytes() == (folder / "whole.csv").read_bytes()


@pytest.mark.parametrize("method", ["block", "cover"])
def test_one_rank_predicts_on_any_parts(folder, tmp_path, method):
    succeed("partition", folder / "g.h5", "-k", 3, "--method", method, "-o", tmp_path / "p.h5")
    with store.load(tmp_path / "p.h5") as stored:
        parts = stored.read()
    whole = hpgcn.predict(folder / "g.h5", folder / "run")
    for source in (tmp_path / "p.h5", parts):
        found = hpgcn.predict(source, folder / "run")
        assert found["id"].tolist() == IDS
        np.testing.assert_allclose(found["logits"], whole["logits"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{"strategy": "2d", "grid": "2x1"},
                                     {"strategy": "1.5d", "replication": 2}])
def test_a_model_is_used_on_other_numbers_of_ranks_than_a_grid_holds(options):
    result = hpgcn.train(graph(), hpgcn.Config(epochs=1, **options), ranks=2)
    whole, other = (hpgcn.predict(graph(), result, ranks=ranks)["logits"] for ranks in (1, 3))
    np.testing.assert_allclose(whole, other, rtol=1e-5, atol=1e-6)

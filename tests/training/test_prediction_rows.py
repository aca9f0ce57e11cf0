"""`hpgcn predict --vertices --probabilities`: some vertices by their ids, and all probabilities."""
import csv
import shutil
from functools import partial

import numpy as np
import pytest
from commands import hpgcn as started
from commands import refused, succeed
from graphs import cliques
from scipy.special import expit, softmax

import hpgcn
from hpgcn import store
from hpgcn.errors import DataError, UsageError

NAMES = ("chat", "chien", "a, b")
graph = partial(cliques, names=NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with g.h5, whose rows are reordered, a list of ids, and a run."""
    folder = tmp_path_factory.mktemp("rows")
    store.write_graph(folder / "g.h5", graph(), order=np.arange(12)[::-1])
    (folder / "few.txt").write_text("v7\r\na,b\n\nv0\n")
    succeed("train", folder / "g.h5", "--out", folder / "run", "--epochs", 5, "-q")
    return folder


def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize("multilabel", [False, True])
def test_probabilities_are_those_of_the_logits(multilabel):
    source = graph(multilabel=multilabel)
    result = hpgcn.train(source, hpgcn.Config(epochs=3))
    found = hpgcn.predict(source, result, probabilities=True)
    share = found["probabilities"]
    np.testing.assert_allclose(share, (expit if multilabel else softmax)(
        found["logits"].astype(float), **({} if multilabel else {"axis": 1})), rtol=1e-12)
    if not multilabel:
        np.testing.assert_allclose(share.sum(1), 1, rtol=1e-14)
        np.testing.assert_array_equal(share.argmax(1), found["label"])
    else:
        np.testing.assert_array_equal(share > 0.5, found["label"])
    assert "probabilities" not in hpgcn.predict(source, result)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_rows_of_some_vertices(folder, ranks):
    """Rows are in the given order, and equal those of all vertices."""
    for source in (folder / "g.h5", graph(), hpgcn.load(folder / "g.h5")):
        whole = hpgcn.predict(source, folder / "run", ranks=ranks)
        few = hpgcn.predict(source, hpgcn.read_run(folder / "run"), ranks=ranks,
                            vertices=["v7", "a,b", "v0", "v7"])
        assert few["id"].tolist() == ["v7", "a,b", "v0", "v7"]
        for name in ("logits", "label", "embedding"):
            np.testing.assert_array_equal(few[name], whole[name][[7, 11, 0, 7]])
        assert few["class_names"].tolist() == list(NAMES)


def test_a_run_reads_its_model_once(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    run = hpgcn.read_run(tmp_path / "run")
    expected = hpgcn.predict(graph(), run)["logits"]
    shutil.rmtree(tmp_path / "run")
    np.testing.assert_array_equal(hpgcn.predict(graph(), run)["logits"], expected)


@pytest.mark.parametrize("ids, base, asked", [
    (None, 1, [12, 1]), (None, 0, [11, 0]), ([10**12 - 7 * k for k in range(12)], 0,
                                            [10**12 - 77, 10**12])])
def test_ids_that_are_numbers(tmp_path, ids, base, asked):
    source = graph(ids=ids)
    if base:
        (tmp_path / "g.txt").write_text("".join(f"{k} {k % 12 + 1}\n" for k in range(1, 13)))
        succeed("convert", tmp_path / "g.txt", tmp_path / "g.h5", "--base", 1, "--features",
                "degree", "--labels", "random:3", "--split", "all")
        source = hpgcn.load(tmp_path / "g.h5")
    result = hpgcn.train(source, hpgcn.Config(epochs=1))
    whole = hpgcn.predict(source, result)
    for vertices in (asked, np.array(asked, np.uint64), [f" {each}" for each in asked]):
        few = hpgcn.predict(source, result, vertices=vertices)
        assert few["id"].tolist() == asked
        np.testing.assert_array_equal(few["logits"], whole["logits"][[11, 0]])
    for bad in (base - 1, 5 * 10**18, "x", str(10**30), "1.0"):
        with pytest.raises(DataError, match=rf"vertices\[1\]: .* has no vertex '?{bad}"):
            hpgcn.predict(source, result, vertices=np.array([asked[0], bad])
                          if isinstance(bad, int) else [str(asked[0]), bad])


@pytest.mark.parametrize("vertices", [[], 3, [[1]], [0.5], [None]])
def test_what_is_no_list_of_ids_is_refused(vertices):
    result = hpgcn.train(graph(), hpgcn.Config(epochs=1))
    with pytest.raises(UsageError, match="expected ids, numbers or text"):
        hpgcn.predict(graph(), result, vertices=vertices)


def test_columns_of_files(folder):
    flags = ("--probabilities", "--vertices", folder / "few.txt", "--overwrite")
    found = hpgcn.predict(folder / "g.h5", folder / "run", vertices=["v7", "a,b", "v0"],
                          probabilities=True)
    for name in ("p.csv", "p.tsv", "p.parquet", "p.npz", "p.h5"):
        succeed("predict", folder / "run", "-o", folder / name, *flags)
    header, *lines = rows(folder / "p.csv")
    assert header == ["id", "label", "probability", *(f"probability:{name}" for name in NAMES)]
    assert [line[0] for line in lines] == ["v7", "a,b", "v0"]
    share = np.array([line[3:] for line in lines], float)
    np.testing.assert_allclose(share, found["probabilities"], rtol=1e-5)
    np.testing.assert_allclose(share.max(1), [float(line[2]) for line in lines], rtol=1e-6)
    assert (folder / "p.tsv").read_text().count("\t") == 4 * 5

    with np.load(folder / "p.npz") as arrays:
        np.testing.assert_array_equal(arrays["probabilities"], found["probabilities"])
    arrays, _ = store.read_predictions(folder / "p.h5")
    np.testing.assert_array_equal(arrays["probabilities"], found["probabilities"])
    assert arrays["id"].tolist() == ["v7", "a,b", "v0"]
    assert "a probability for each class" in succeed("inspect", folder / "p.h5")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(folder / "p.parquet").to_pydict()
    assert [*table] == header and table["id"] == ["v7", "a,b", "v0"]


def test_a_file_of_predictions_is_checked(tmp_path):
    arrays = {"logits": np.zeros((2, 3)), "label": np.zeros(2, int),
              "probabilities": np.zeros((2, 2))}
    with pytest.raises(DataError, match=r"probabilities has shape \(2, 2\), expected"):
        store.write_predictions(tmp_path / "p.h5", arrays)


def test_several_labels_have_a_column_each(tmp_path):
    store.write_graph(tmp_path / "g.h5", graph(multilabel=True))
    succeed("train", tmp_path / "g.h5", "--out", tmp_path / "run", "--epochs", 2, "-q")
    succeed("predict", tmp_path / "run", "-o", tmp_path / "p.csv", "--probabilities")
    header, *lines = rows(tmp_path / "p.csv")
    assert header[3:] == [f"probability:{name}" for name in NAMES]
    found = hpgcn.predict(tmp_path / "g.h5", tmp_path / "run")
    np.testing.assert_allclose([[float(cell) for cell in line[3:]] for line in lines],
                               expit(found["logits"].astype(float)), rtol=1e-5)


def test_unknown_vertices_are_refused_before_the_work(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("hpgcn.training.inference._infer", None)
    for text, code, message in (
            ("v0\nv12\n", 65, "ids: line 2: {graph} has no vertex 'v12'"),
            ("v0\n\n v1\n", 65, "ids: line 3: {graph} has no vertex ' v1'"),
            ("", 65, "ids: no ids, expected one a line"), ("v0\n\xff", 65, "byte 3 is not UTF-8")):
        (tmp_path / "ids").write_bytes(text.encode("latin-1"))
        line = refused(code, "predict", folder / "run", "-o", tmp_path / "p.csv", "--vertices",
                       tmp_path / "ids")
        assert message.format(graph=folder / "g.h5") in line
    assert "none" in refused(66, "predict", folder / "run", "-o", tmp_path / "p.csv", "--vertices",
                             tmp_path / "none")
    (tmp_path / "v.csv").write_text("v0\n")
    refused(2, "predict", folder / "run", "-o", tmp_path / "v.csv", "--vertices",
            tmp_path / "v.csv", "--overwrite")
    assert not (tmp_path / "p.csv").exists()


@pytest.mark.long
@pytest.mark.usefixtures("forks")
def test_under_mpiexec(folder):
    flags = ("--probabilities", "--vertices", folder / "few.txt", "--overwrite")
    succeed("predict", folder / "run", "-o", folder / "one.csv", *flags)
    ended = started("predict", folder / "run", "-o", folder / "two.csv", *flags, ranks=2)
    assert ended.returncode == 0, ended.stderr
    one, two = rows(folder / "one.csv"), rows(folder / "two.csv")
    assert [row[:2] for row in one] == [row[:2] for row in two]
    np.testing.assert_allclose([[float(cell) for cell in row[2:]] for row in one[1:]],
                               [[float(cell) for cell in row[2:]] for row in two[1:]], rtol=1e-4)
    (folder / "unknown").write_text("v99\n")
    ended = started("predict", folder / "run", "-o", folder / "three.csv", "--vertices",
                    folder / "unknown", ranks=2)
    assert ended.returncode == 65 and ended.stderr.count("has no vertex 'v99'") == 1


@pytest.mark.long
def test_rows_of_models_of_pyg_and_with_arrays_in_files(folder, tmp_path):
    pytest.importorskip("torch")
    succeed("export", folder / "run", tmp_path / "m.pt", "--to", "pyg", "-q")
    flags = ("--vertices", folder / "few.txt", "--probabilities")
    succeed("predict", folder / "run", "-o", tmp_path / "own.csv", *flags)
    succeed("predict", tmp_path / "m.pt", folder / "g.h5", "--from", "pyg", "-o",
            tmp_path / "pyg.csv", *flags)
    succeed("predict", folder / "run", "-o", tmp_path / "files.csv", *flags, "--memory", "2G",
            "--scratch", tmp_path, "--ranks", 3)
    own = rows(tmp_path / "own.csv")
    for name in ("pyg.csv", "files.csv"):
        found = rows(tmp_path / name)
        assert [row[0] for row in found] == [row[0] for row in own]
        np.testing.assert_allclose([[float(cell) for cell in row[3:]] for row in found[1:]],
                                   [[float(cell) for cell in row[3:]] for row in own[1:]],
                                   rtol=1e-4)

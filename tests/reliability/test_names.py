"""File names of any length and characters give one-line errors.

These have no control codes, and leave no file.
"""
import dataclasses
import shutil

import numpy as np
import pytest
from in_process import refused, run, succeed
from resuming import lines

import hpgcn
from hpgcn import partition, store
from hpgcn.errors import OutputError, UsageError
from hpgcn.training.setup.run_partition import kept_partition

TOO_LONG = {"300": "x" * 300, "5000": "x" * 5000, "folders": "/".join(["y" * 200] * 30)}
ODD = {"line feed, return, escape, unseen": "a\nb\rc\x1b[31md\u200ee", "bytes": "a\udcffb"}


@pytest.fixture
def folder(karate, tmp_path):
    """Copy the graph karate.h5 to g.h5 in the working folder, and return this folder."""
    shutil.copy(karate / "karate.h5", tmp_path / "g.h5")
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("name", TOO_LONG.values(), ids=TOO_LONG)
def test_a_name_that_is_too_long(folder, name):
    train = ("train", "g.h5", "--epochs", 1)
    cut = ("partition", "g.h5", "-k", 2)
    for code, *words in [
            (73, "convert", "karate", f"{name}.h5"), (73, "generate", "sbm", f"{name}.h5"),
            (73, *cut, "-o", f"{name}.h5"), (73, *cut, "-o", f"{name}.npy"),
            (66, *cut, "--parts", name, "-o", "p.h5"), (73, *train, "--out", name),
            (73, *train, "--out", f"new/{name}"), (73, *train, "--out", name, "--resume"),
            (66, *train, "--config", name), (66, "plan", "g.h5", "--machine", name),
            *((66, word, name) for word in ("train", "predict", "report", "inspect", "plan"))]:
        line = refused(code, "(?i)file name too long|no such|no folder", *words)
        assert len(line) < 700 or len(name) < 400, "a long word is cut"


@pytest.mark.long
@pytest.mark.parametrize("name", ["é" * 300, "x" * 5000, "../../x", "a\n\x1b[31mb"], ids=len)
def test_a_graph_of_any_name_trains_in_a_directory_of_its_own(folder, name):
    graph = store.load("g.h5").read()
    named = dataclasses.replace(graph, header=dataclasses.replace(graph.header, name=name))
    store.write_graph("named.h5", named)
    said = succeed("train", "named.h5", "--epochs", 1)
    assert all(line.isprintable() for line in said.split("\n"))
    made, = folder.glob("run-*")
    assert len(made.name.encode()) < 120 and len(lines(made)) == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ODD.values(), ids=ODD)
def test_names_of_odd_letters_are_printed_escaped(folder, name):
    path = f"{name}.h5"
    for words in (("convert", "karate", path), ("inspect", path), ("plan", path, "-k", 2),
                  ("partition", path, "-k", 2, "--method", "block"),
                  ("train", "g.h5", "--epochs", 1, "--out", f"{name}.run")):
        code, errors, output = run(*words)
        assert code == 0 or "text that UTF-8 can hold" in errors, errors
        assert all(line.isprintable() for line in (output + errors).split("\n"))
    refused(66, r"^hpgcn: no[^\n]*: No such file or directory", "inspect", f"no{name}")


def test_a_name_without_an_end_or_with_nul_in_python(folder):
    with pytest.raises(UsageError, match=r"out = 'a.x00b': expected text without NUL"):
        hpgcn.Config(out="a\0b")
    with pytest.raises(OutputError, match="cannot be created: File name too long"):
        hpgcn.train("g.h5", hpgcn.Config(epochs=1, out="x" * 300))
    (folder / "run.toml").write_text('out = "a\\u0000b"\n')
    refused(2, "--out .*: expected text without NUL", "train", "g.h5", "--config", "run.toml")


def test_a_partition_beside_a_graph_of_a_long_name_is_refused_before_the_work(folder, monkeypatch):
    monkeypatch.setattr(partition, "make_partition", None)
    name = folder / f"{'x' * 251}.h5"
    shutil.copy(folder / "g.h5", name)
    with pytest.raises(OutputError, match="cannot be created: File name too long"):
        kept_partition(store.load(name), 2, "block")


@pytest.mark.long
def test_memory_that_there_is_not_is_one_line(folder):
    refused(70, "out of memory: Unable to allocate", "train", "g.h5", "--hidden", 1 << 24,
            "--layers", 3, "--out", "run")


@pytest.mark.parametrize("words", [
    ("predict", "run", "--threads", -1), ("bench", "tune", "--threads", -1),
    ("train", "g.h5", "--threads", 2**62)], ids=str)
def test_threads_have_bounds_everywhere(folder, words):
    refused(2, "--threads .*: expected 0 to 4096", *words)


def test_lines_of_the_command_line_speak_of_flags_and_those_of_python_of_arguments(folder):
    succeed("train", "g.h5", "--epochs", 1, "--out", "run")
    refused(73, "--resume continues it, --overwrite replaces it; or choose another --out$",
            "train", "g.h5", "--out", "run")
    refused(73, "exists already; use --overwrite to replace it$", "convert", "karate", "g.h5")
    refused(78, "a new run with another --out, or --overwrite$", "train", "g.h5", "--epochs", 2,
            "--out", "run", "--resume")
    with pytest.raises(OutputError, match="resume= continues it, overwrite=True replaces it; or"):
        hpgcn.train("g.h5", hpgcn.Config(epochs=1, out="run"))
    with pytest.raises(OutputError, match=r"exists already; use overwrite=True to replace it$"):
        store.write_graph("g.h5", store.load("g.h5").read())
    with pytest.raises(hpgcn.HpgcnError, match=r"a new run with another out=, or overwrite=True$"):
        hpgcn.train("g.h5", hpgcn.Config(epochs=2), resume="run")


WRONG = {  # call, and the message of its UsageError
    "graph": (lambda: hpgcn.train([1]), "graph is of type list, expected hpgcn.Graph,"),
    "array": (lambda: hpgcn.train(np.eye(3)), "graph is of type ndarray"),
    "config": (lambda: hpgcn.train("g.h5", {"epochs": 1}), "config is of type dict, expected"),
    "comm": (lambda: hpgcn.train("g.h5", comm=3), "comm is of type int, expected a communicator"),
    "resume": (lambda: hpgcn.train("g.h5", resume=True), "resume is of type bool, expected the"),
    "run": (lambda: hpgcn.predict("g.h5", 3), "a int: expected a run directory, its model.h5, or"),
    "predict": (lambda: hpgcn.predict(None, "run"), "graph is of type NoneType"),
    "device": (lambda: hpgcn.predict("g.h5", "run", device="gpu"), "device = 'gpu': expected one"),
    "load": (lambda: hpgcn.load(3), "path is of type int, expected str or path-like")}


@pytest.mark.parametrize("call, words", WRONG.values(), ids=WRONG)
def test_arguments_of_the_wrong_type(folder, call, words):
    with pytest.raises(UsageError, match=words):
        call()
    assert [path.name for path in folder.iterdir()] == ["g.h5"]


def test_a_path_is_a_graph(folder):
    config = hpgcn.Config(epochs=2, out=folder / "run")
    losses = {hpgcn.train(source, config, overwrite=True)["final_loss"]
              for source in (folder / "g.h5", "g.h5", hpgcn.load("g.h5"))}
    assert len(losses) == 1
    logits = [hpgcn.predict(source, folder / "run")["logits"]
             for source in ("g.h5", hpgcn.load("g.h5"))]
    np.testing.assert_array_equal(*logits)

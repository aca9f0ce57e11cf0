"""Input files that change while hpgcn reads them are detected, and no output is left."""
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import refused as refused_elsewhere
from graphs import make
from in_process import refused, run, succeed

from hpgcn import load, partition, store
from hpgcn.config import Config
from hpgcn.datasets import convert
from hpgcn.datasets.sorting import external
from hpgcn.datasets.tables import join
from hpgcn.errors import ConfigError, DataError
from hpgcn.strategies import Strategy
from hpgcn.training.run import train
from hpgcn.training.saved import checkpoint
from hpgcn.training.setup import run_partition


def rename(path, other):
    shutil.copy(other, "aside")
    os.replace("aside", path)


def in_place(path, other):
    with open(path, "r+b") as file:
        file.write(Path(other).read_bytes())


def in_place_with_the_old_times(path, other):
    before = os.stat(path)
    in_place(path, other)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def remove(path, other):
    os.unlink(path)


CHANGES = rename, in_place, in_place_with_the_old_times, remove


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write g.h5, and other.h5 that differs in one feature.

    Both are of equal size, in the working folder.
    """
    monkeypatch.setattr(Strategy, "method", "block")  # quick
    store.write_graph("g.h5", make(n=120, f=9))
    graph = make(n=120, f=9)
    graph.features[3, 2] += 1
    store.write_graph("other.h5", graph)
    assert os.path.getsize("g.h5") == os.path.getsize("other.h5")
    return tmp_path


def after(monkeypatch, where, name, action):
    """Patch a function so that after its first call `action` is called once."""
    real, done = getattr(where, name), []

    def wrapped(*args, **options):
        result = real(*args, **options)
        done.append(done or action())
        return result

    monkeypatch.setattr(where, name, wrapped)


@pytest.mark.parametrize("change, out", [
    *((change, "parts.h5") for change in CHANGES), (rename, "parts.npy")],
    ids=lambda value: getattr(value, "__name__", value))
def test_a_graph_that_changes_while_it_is_partitioned(folder, monkeypatch, change, out):
    after(monkeypatch, partition, "make_partition", lambda: change("g.h5", "other.h5"))
    code, errors, _ = run("partition", "g.h5", "-k", 2, "--method", "block", "-o", out)
    said = "g.h5: changed while it was read; run again when no other program writes it"
    assert (code, errors) == (65, f"hpgcn: {said}\n")
    assert set(os.listdir()) <= {"g.h5", "other.h5"}


@pytest.mark.parametrize("change", CHANGES[1:3], ids=lambda change: change.__name__)
def test_a_graph_that_changes_while_ranks_partition_it(folder, monkeypatch, change):
    with load("g.h5") as stored:
        after(monkeypatch, partition, "make_partition", lambda: change("g.h5", "other.h5"))
        with pytest.raises(DataError, match=r"g\.h5: changed while it was read"):
            run_partition.kept_partition(stored, 2, "block")
    assert sorted(os.listdir()) == ["g.h5", "other.h5"]


def test_a_partition_of_another_graph_is_not_used(folder):
    with load("g.h5") as stored:
        path, checksum = run_partition.kept_partition(stored, 2, "block")
        assert run_partition.kept_partition(stored, 2, "block") == (path, checksum)
    rename("g.h5", "other.h5")
    with load("g.h5") as stored:
        other, _ = run_partition.kept_partition(stored, 2, "block")
        assert (path, other) == ("g.p2.h5", "g.p2-block-0.h5")
        np.testing.assert_array_equal(np.sort(load(other).features, 0), np.sort(stored.features, 0))


def test_a_file_is_read_as_it_was_when_it_was_opened(folder):
    """A file overwritten after it was opened is refused.

    Times and checksums that still fit change nothing.
    """
    with load("g.h5") as stored:
        stored.adjacency_rows(0, 120)
        in_place_with_the_old_times("g.h5", "other.h5")
        with pytest.raises(DataError, match="changed while it was read"):
            stored.slab(0, 120)


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES[::2], ids=lambda change: change.__name__)
def test_a_graph_that_changes_before_the_first_checkpoint(folder, monkeypatch, change):
    """A run resumes on its original graph, and refuses the graph that replaced the file."""
    shutil.copy("g.h5", "true.h5")
    config = Config(out="run", epochs=2, hidden=4, checkpoint_every=1)
    after(monkeypatch, checkpoint, "capture", lambda: change("g.h5", "other.h5"))
    train(load("g.h5"), config)
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match="was trained on other data than other"):
        train(load("other.h5"), config.replace(epochs=3), resume="run")
    assert train(load("true.h5"), config.replace(epochs=3), resume="run")["epochs"] == 3


def test_a_checkpoint_of_an_older_version_goes_on(folder, monkeypatch):
    """A checkpoint without `content_sha256` resumes on the same file only.

    Older versions wrote it.
    """
    config = Config(out="run", epochs=2, hidden=4, checkpoint_every=1)
    real = store.write_state

    def write_state(path, arrays, *, attributes, **options):
        del attributes["content_sha256"]
        real(path, arrays, attributes=attributes, **options)

    monkeypatch.setattr(store, "write_state", write_state)
    train(load("g.h5"), config)
    assert "content_sha256" not in store.read_state("run/checkpoints/step-00000002/state.h5")[1]
    with pytest.raises(ConfigError, match="was trained on other data than other"):
        train(load("other.h5"), config.replace(epochs=3), resume="run")
    assert train(load("g.h5"), config.replace(epochs=3), resume="run")["epochs"] == 3


INPUTS = {  # name: input, its successor, arguments, and the function after which it comes
    "text": ("0 1\n1 2\n", "0 2\n2 1\n", (), (convert, "_build")),
    "sorted on disk": ("0 1\n1 2\n" * 9, "0 2\n2 1\n" * 9, ("--memory", "200"),
                       (external, "collect")),
    "features": ("0 1\n1 2\n", None, ("--features", "x.npy"), (join, "check_features")),
    "labels": ("0 1\n1 2\n", None, ("--labels", "y.npy"), (join, "check_labels"))}


@pytest.mark.parametrize("change", CHANGES[:3], ids=lambda change: change.__name__)
@pytest.mark.parametrize("case", INPUTS)
def test_an_input_that_changes_while_it_is_converted(monkeypatch, case, change):
    first, second, options, where = INPUTS[case]
    Path("edges.txt").write_text(first)
    Path("other").write_text(second or "")
    np.save("x.npy", np.zeros((3, 2)))
    np.save("y.npy", np.zeros(3, int))
    name = "edges.txt" if second else options[1]
    if second is None:
        shutil.copy(name, "other")
    if case == "text":  # before the SHA-256, right after the bytes are read
        real = convert.formats.reader
        monkeypatch.setattr(convert.formats, "reader",
                            lambda fmt: lambda *args, **options: (
                                real(fmt)(*args, **options), change(name, "other"))[0])
    else:
        after(monkeypatch, *where, lambda: change(name, "other"))
    refused(65, rf"hpgcn: {name}: changed while it was read", "convert", "edges.txt", "g.h5",
                 *options)


@pytest.mark.parametrize("name", ["parts.txt", "parts.npy"])
def test_a_part_vector_that_changes_while_it_is_read(folder, monkeypatch, name):
    for path in (name, f"again-{name}"):
        partition.write_parts(path, np.arange(120) % 2)
    reader = "_read_text" if name.endswith("txt") else "_read_array"
    after(monkeypatch, partition.part_files, reader, lambda: rename(name, f"again-{name}"))
    refused(65, rf"hpgcn: {name}: changed while it was read", "partition", "g.h5", "-k", 2,
                 "--parts", name, "-o", "out.h5")


TRAIN = ("train", "g.h5", "--strategy", "p2p", "--epochs", 1, "--out", "run", "-q")
HOOKS = {  # as another process may do at this moment
    "between two ranks": """
from hpgcn import store
from hpgcn.runtime.launcher import launched_rank
real = store.load
def load(*args, **options):
    if launched_rank() == 0:
        result = real(*args, **options)
        open("opened", "w").close()
        return result
    while not os.path.exists("opened"):
        time.sleep(0.01)
    os.replace("other.h5", "g.h5")
    return real(*args, **options)
store.load = load
""",
    "a partition in use": """
from hpgcn.strategies import Strategy
from hpgcn.training.setup import run_partition
Strategy.method = "block"
real = run_partition.kept_partition
def kept(*args, **options):
    result = real(*args, **options)
    os.replace("other.p2.h5", "g.p2.h5")
    return result
run_partition.kept_partition = kept
"""}


@pytest.mark.long
@pytest.mark.parametrize(("hook", "command", "code", "words"), [
    ("between two ranks", TRAIN, 78, "checksum is"),
    ("between two ranks", ("predict", "trained", "g.h5", "-o", "p.h5"), 78, "checksum is"),
    ("a partition in use", TRAIN, 65, "g.p2.h5: changed while it was read")])
def test_real_processes(folder, hook, command, code, words):
    (folder / "hooks").mkdir()
    (folder / "hooks/sitecustomize.py").write_text(f"import os, time\n{HOOKS[hook]}")
    succeed("train", "g.h5", "--epochs", 1, "--out", "trained", "-q")
    if hook == "a partition in use":
        for name in ("g.h5", "other.h5"):
            with load(name) as stored:
                run_partition.kept_partition(stored, 2, "block")
    apart = {"opened", "other.h5", "other.p2.h5"}
    before = {*os.listdir()} - apart
    assert words in refused_elsewhere(code, *command, ranks=2, PYTHONPATH=str(folder / "hooks"))
    assert {*os.listdir()} - apart == before

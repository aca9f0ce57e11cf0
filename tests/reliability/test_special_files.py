"""Commands neither block on pipes and sockets nor write through links given as files."""
import contextlib
import os
import shutil
import signal
import socket

import pytest
from in_process import refused, run, succeed
from resuming import lines

from hpgcn.partition import write_parts


@pytest.fixture
def folder(trained, tmp_path):
    """Copy `trained` into the working folder and add a named pipe; an alarm ends a blocked test."""
    def waited(*_):
        raise TimeoutError("waited for a pipe")

    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    os.mkfifo(tmp_path / "pipe")
    before = signal.signal(signal.SIGALRM, waited)
    signal.alarm(60)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


GIVEN = {
    "--config": ("train", "karate.h5", "--config"), "--machine": ("plan", "karate.h5", "--machine"),
    "--parts": ("partition", "karate.h5", "-k", "2", "-o", "new.h5", "--parts"),
    "graph": ("train",), "inspected": ("inspect",),
    "partitioned": ("partition", "-k", "2"), "predicted with": ("predict",),
    "on": ("predict", "done"), "--features": ("convert", "karate", "new.h5", "--features"),
    "--labels": ("convert", "karate", "new.h5", "--labels"), "reported": ("report",)}


@pytest.mark.parametrize("name, kind", [
    *((name, "pipe") for name in GIVEN),
    *((name, kind) for name in ("--config", "--parts", "inspected")
      for kind in ("socket", "/dev/zero", "link"))])
def test_what_is_given_is_a_regular_file(folder, name, kind):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as listening:
        listening.bind("socket")
        (folder / "link").symlink_to("pipe")
        refused(65, kind, *GIVEN[name], kind)


@pytest.mark.parametrize("member", ["metrics.jsonl", "config.toml", "summary.json", "trace.json",
                                    "traffic.npy", "sums.npy"])
def test_a_run_that_is_reported_has_regular_files(folder, member):
    pytest.importorskip("matplotlib")
    replace(folder / "done" / member, os.mkfifo)
    refused(65, f"done/{member}: is a special file", "report", "done", "--html", "page.html")


@pytest.mark.parametrize("member", ["metrics.jsonl", "config.toml", "summary.json", "model.h5"])
@pytest.mark.parametrize("how", ["--resume", "--overwrite"])
def test_a_run_that_goes_on_has_regular_files(folder, member, how):
    replace(folder / "done" / member, os.mkfifo)
    code, errors, _ = run("train", "karate.h5", "--out", "done", how, "--epochs", 6)
    assert code in (65, 73), errors
    assert f"{member}: is a special file" in errors
    assert len(errors.splitlines()) == 1


@pytest.mark.parametrize("member", ["state.h5", "manifest.json"])
def test_a_checkpoint_with_a_pipe_in_it_is_passed_over(folder, member, caplog):
    newest = max((folder / "done" / "checkpoints").iterdir())
    (folder / "done" / "summary.json").unlink()
    replace(newest / member, os.mkfifo)
    succeed("train", "karate.h5", "--out", "done", "--resume")
    newest = f"done/checkpoints/step-00000004/{member}"
    assert f"falling back to step-00000002: {newest}: is a special file" in caplog.text


def replace(path, make):
    path.unlink(missing_ok=True)
    make(path)


LINKS = ("metrics.jsonl", "config.toml", "summary.json", "model.h5", "trace.json", "traffic.npy",
         "predictions.h5")


@pytest.mark.parametrize("how", [("--resume", "--epochs", 6), ("--overwrite", "--epochs", 2)])
def test_links_in_a_run_directory_are_not_written_through(folder, how):
    kept = {}
    for name in LINKS:
        target = folder / f"kept-{name}"
        path = folder / "done" / name
        if path.exists():
            path.rename(target)
        else:
            target.write_text("mine")
        path.symlink_to(target)
        kept[target] = target.read_bytes()
    if how[0] == "--resume":
        succeed("predict", "done", "--overwrite")
    succeed("train", "karate.h5", "--out", "done", *how, "--trace")
    assert {target: target.read_bytes() for target in kept} == kept
    assert not any((folder / "done" / name).is_symlink() for name in LINKS)
    assert len(lines(folder / "done")) == how[2]


def test_a_folder_of_that_name_is_not_removed(folder):
    replace(folder / "done" / "model.h5", os.mkdir)
    (folder / "done" / "model.h5" / "mine").write_text("mine")
    refused(73, "model.h5: is a folder", "train", "karate.h5", "--out", "done", "--overwrite")
    assert (folder / "done" / "model.h5" / "mine").read_text() == "mine"
    assert (folder / "done" / "metrics.jsonl").exists()


@pytest.mark.parametrize("name", ["g.part.2", "g.npy", "g.txt"])
def test_part_vectors_have_no_name_that_can_be_foreseen(tmp_path, name):
    planted = tmp_path / f".{name}.{os.getpid()}.tmp"
    planted.symlink_to(tmp_path / "victim")
    write_parts(tmp_path / name, [0, 1])
    assert not (tmp_path / "victim").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, planted.name])

"""A command that gets a signal cleans up, exits with the signal's code, and leaves no file.

Signals at a named function reach a fork (forked_commands.py). Those that a test sends
itself, or sends while Python imports, reach processes of their own.
"""
import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import in_process
import pytest
import resuming
from commands import MPIEXEC, clean_environment, refused, succeed, without_notice
from jobs import none_left

from hpgcn import store
from hpgcn.runtime import signals
from hpgcn.runtime.advice import resume_command

SIGNALLED = Path(__file__).with_name("signalled.py")
WRITES = "hpgcn.store.writer.Writer.finish"  # a temporary file exists at this point
PIECES = "convert", "edges.txt", "new.h5", "--memory", "300K"
SYNCHRONIZES = "hpgcn.runtime.atomic.synchronize"
SERIAL = {  # name -> (point, arguments); files are those of `folder`
    "convert": (WRITES, ("convert", "karate", "new.h5")),
    "read in pieces": ("hpgcn.datasets.sorting.sort_kernels.append", PIECES),
    "write in pieces": ("hpgcn.store.graph_files.write_csr", PIECES),
    "generate": (WRITES, ("generate", "sbm", "new.h5", "--scale", "6")),
    "generate text": (SYNCHRONIZES, ("generate", "sbm", "new.txt", "--scale", "6")),
    "partition": (WRITES, ("partition", "karate.h5", "-k", "2", "-o", "new.h5")),
    "partition by an engine": ("hpgcn.partition.engines.engine_process._answer",
                               ("partition", "karate.h5", "-k", "2", "-o", "new.h5")),
    "inspect": ("hpgcn.cli.inspect_files.describe_file", ("inspect", "karate.h5")),
    "predict": (WRITES, ("predict", "done", "karate.h5", "-o", "new.h5")),
    "report": (SYNCHRONIZES, ("report", "done", "--html", "new.html")),
    "doctor": ("hpgcn.doctor.describe_launcher", ("doctor",)),
    "train": ("hpgcn.training.setup.shard.GraphShard.release_features",
              ("train", "karate.h5", "--out", "new", "--input-dropout", "0")),
    "train in a checkpoint": (WRITES, ("train", "karate.h5", "--out", "new",
                                       "--checkpoint-every", "1"))}
NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1)


@pytest.fixture
def folder(trained, monkeypatch):
    """Add edges.txt to the folder `trained`, and make it the working folder."""
    (trained / "edges.txt").write_text("".join(f"{u} {(7 * u + 1) % 5000}\n" for u in range(5000)))
    monkeypatch.chdir(trained)
    return trained


@pytest.fixture
def run(forked):
    """Return a function that runs signalled.py, in forks of one process."""
    def run(how, point, *args, ranks=None, **environment):
        """Send a signal `how` at the function `point`; return the finished process."""
        if ranks is not None and MPIEXEC is None:
            pytest.skip("no mpiexec: pip install '.[mpi,mpich]'")
        launcher = [MPIEXEC, "-n", str(ranks)] if ranks else []
        command = [*launcher, f"{forked}/python", SIGNALLED, how, point, *map(str, args)]
        return subprocess.run(command, timeout=300, capture_output=True, text=True, check=False,
                              env={**clean_environment(), "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
                                   **environment})

    return run


def lines(done):
    text = without_notice(done.stderr)
    return [line for line in text.splitlines() if line.startswith("hpgcn: ")]


def leftovers(*folders):
    return [path for each in folders for path in each.rglob("*")
            if path.name.startswith((".", "new", "hpgcn"))]


@pytest.mark.long
@pytest.mark.parametrize("name, number", [
    ("read in pieces", signal.SIGTERM), *(pytest.param(*case, marks=pytest.mark.long) for case in (
        *((name, NUMBERS[place % 3]) for place, name in enumerate(SERIAL)),
        ("convert", signal.SIGUSR1)))])
def test_every_command_ends_in_order(run, folder, tmp_path, name, number):
    point, args = SERIAL[name]
    if name == "partition by an engine":
        pytest.importorskip("mtkahypar")
    done = run(f"0:{number.name}:1", point, *args, TMPDIR=str(tmp_path))
    code = 128 + number
    if name == "train in a checkpoint":  # it is completed
        assert resuming.steps(folder / "new") == ["step-00000001", "step-00000002"]
        shutil.rmtree(folder / "new")
        code = 75
    assert done.returncode == code, done.stderr
    assert len(lines(done)) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert leftovers(folder, tmp_path) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [
    signal.SIGINT, *(pytest.param(number, marks=pytest.mark.long)
                     for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1))])
def test_a_signal_in_compiled_code_ends_in_order(run, folder, number):
    point, args = SERIAL["generate"]
    done = run(f"0:{number.name}!:1", point, *args)
    assert done.returncode == 128 + number, done.stderr
    assert lines(done) == [f"hpgcn: {signals.describe(number)}"]
    assert "Traceback" not in done.stderr
    assert leftovers(folder) == []


@pytest.mark.long
def test_what_a_killed_process_left_is_swept_and_nothing_else(tmp_path):
    """A command removes the temporary folder of a killed command, but not that of a running one."""
    with waiting("convert", "karate", tmp_path / "a.h5", point=WRITES) as killed, \
            waiting("convert", "karate", tmp_path / "b.h5", point=WRITES) as living:
        killed.kill()
        killed.wait()
        assert len(list(tmp_path.iterdir())) == 2
        (tmp_path / ".hpgcn-mine.tmp").write_text("mine")
        other = tmp_path / f".hpgcn-00000000-{killed.pid}-1-0123456789abcdef.tmp"
        other.write_text("another machine's")
        in_process.succeed("convert", "karate", tmp_path / "new.h5")
        kept = {"new.h5", ".hpgcn-mine.tmp", other.name}
        (name,) = {path.name for path in tmp_path.iterdir()} - kept
        assert f"-{living.pid}-" in name


@contextlib.contextmanager
def waiting(*args, point, after=1, **environment):
    """Start a command that stops and waits at the function `point`; yield its process."""
    child = subprocess.Popen([sys.executable, SIGNALLED, f"0:none:{after}", point, *map(str, args)],
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env={**clean_environment(), **environment})
    with child:
        try:
            assert child.stdout.readline() == "here\n", child.stderr.read()
            yield child
        finally:
            child.kill()


AT_IMPORT = """
import os, signal, sys
number, *argv = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored here
class Finder:
    def find_spec(self, name, *_):
        if name == "argparse":
            os.kill(os.getpid(), int(number))
sys.modules.pop("argparse", None)
sys.meta_path.insert(0, Finder())
sys.argv = ["hpgcn", *argv]
from hpgcn.__main__ import main
sys.exit(main())
"""


@pytest.mark.long
@pytest.mark.parametrize("number, code, words, args", [
    (signal.SIGUSR1, 75, "stopped by SIGUSR1 before epoch 1",
     ("train", "karate.h5", "--out", "new")),
    (signal.SIGINT, 130, "interrupted", ("convert", "karate", "new.h5")),
    pytest.param(signal.SIGTERM, 75, "stopped by SIGTERM before epoch 1",
                 ("train", "karate.h5", "--out", "new"), marks=pytest.mark.long),
    pytest.param(signal.SIGTERM, 143, "ended by SIGTERM",
                 ("train", "karate.h5", "--dry-run"), marks=pytest.mark.long),
    pytest.param(signal.SIGUSR1, 138, "ended by SIGUSR1",
                 ("partition", "karate.h5", "-k", "2", "-o", "new.h5"), marks=pytest.mark.long)])
def test_a_signal_while_the_program_is_imported(folder, number, code, words, args):
    done = subprocess.run([sys.executable, "-c", AT_IMPORT, str(int(number)), *args], timeout=120,
                          text=True, capture_output=True, check=False, env=clean_environment())
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert leftovers(folder) == []


def losses(out):
    return [line["loss"] for line in resuming.lines(out)]


@pytest.mark.long
@pytest.mark.parametrize("ranks, graph, how, point", [
    (None, "karate.h5", "0:SIGUSR1:1", "hpgcn.training.trainer.warm_up"),
    (None, "karate.h5", "0:SIGUSR2:1", "hpgcn.training.files.run_directory.RunDirectory.__init__"),
    (2, "karate.p2.h5", "1:SIGXCPU:1", "hpgcn.training.trainer.warm_up"),
    (2, "karate.h5", "0:SIGTERM:1", "hpgcn.partition.engines.engine_process._spawn")])
def test_a_run_that_is_stopped_before_epoch_1_starts_there_again(run, folder, tmp_path, ranks,
                                                                 graph, how, point):
    if "partition" in point:
        pytest.importorskip("mtkahypar")
    command = ("train", graph, "--strategy", "p2p", "--epochs", 3, "--effort", "default",
               "--out", tmp_path / "run")
    done = run(how, point, *command, ranks=ranks)
    assert done.returncode == 75, done.stderr
    (line,) = [line for line in lines(done) if "partition" not in line]
    again = resume_command(folder / graph, tmp_path / "run", ranks or 1)
    name = how.split(":")[1]
    assert line == f"hpgcn: stopped by {name} before epoch 1; continue with `{again}`"
    assert not (tmp_path / "run" / "model.h5").exists()
    started = ("--ranks", ranks or 1)
    succeed(*command, "--resume", *started)
    succeed(*command[:-1], tmp_path / "whole", *started)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.mark.long
@pytest.mark.parametrize("ranks, graph, rank", [(None, "karate.h5", 0), (2, "karate.p2.h5", 1)])
def test_ctrl_c_keeps_the_best_model_so_far(run, folder, tmp_path, ranks, graph, rank):
    command = ("train", graph, "--strategy", "p2p", "--epochs", 40, "--out", tmp_path / "run")
    done = run(f"{rank}:SIGINT:12", "hpgcn.training.trainer.evaluate", *command, ranks=ranks)
    assert done.returncode == 130, done.stderr
    (line,) = lines(done)
    epochs = len(losses(tmp_path / "run"))
    best = store.read_model(tmp_path / "run" / "model.h5")[1]["epoch"]
    again = resume_command(folder / graph, tmp_path / "run", ranks or 1)
    assert line == (f"hpgcn: interrupted after epoch {epochs}, with a checkpoint; model.h5 "
                    f"has the weights of epoch {best}; continue with `{again}`")
    assert not (tmp_path / "run" / "summary.json").exists()
    assert "--resume continues it" in refused(73, *command)
    started = ("--ranks", ranks or 1)
    succeed(*command, "--resume", *started)
    succeed(*command[:-1], tmp_path / "whole", *started)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.mark.long
@pytest.mark.parametrize("started, graph, name", [
    (None, "karate.h5", "SIGTERM"), (None, "karate.h5", "SIGUSR2"), (None, "karate.h5", "SIGXCPU"),
    (("--ranks", 2), "karate.p2.h5", "SIGTERM"), (2, "karate.p2.h5", "SIGTERM")])
def test_a_signal_ends_a_run_after_a_checkpoint(run, folder, tmp_path, started, graph, name):
    ranks, local = (None, started or ()) if started != 2 else (2, ())
    command = ("train", graph, "--strategy", "p2p", "--epochs", 40, "--out", tmp_path / "run")
    point = "hpgcn.training.trainer.evaluate"
    done = run(f"{(ranks or 1) - 1}:{name}:12", point, *command, *local, ranks=ranks)
    assert done.returncode == 75, done.stderr
    (line,) = lines(done)
    epochs = len(losses(tmp_path / "run"))
    again = resume_command(folder / graph, tmp_path / "run", 2 if started else 1, bool(local))
    assert line == (f"hpgcn: stopped by {name} after epoch {epochs}, with a checkpoint; continue "
                    f"with `{again}`")
    # the same command goes on; also on ranks of one process
    local = ("--ranks", 2) if started else ()
    succeed(*command, "--resume", *local)
    succeed(*command[:-1], tmp_path / "whole", *local)
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


@pytest.mark.long
def test_sigterm_at_the_launcher(here, karate, tmp_path):
    command = ("train", karate / "karate.p2.h5", "--epochs", 10**7, "--out")
    for times, code in ((1, 75), (2, 143)):
        hang = {"HPGCN_FAULT": "hang:0:3:loss"} if times == 2 else {}
        process = here.start(*command, tmp_path / str(times), **hang)
        resuming.wait_for(tmp_path / str(times), 2, process)
        for _ in range(times):
            process.send_signal(signal.SIGTERM)
            time.sleep(2 * signals.REPEATED)
        _, err = process.communicate(timeout=100)
        if here.is_openmpi:  # it kills the ranks soon after
            assert process.returncode and none_left(str(tmp_path))
            return
        assert process.returncode == code, err
        assert ("stopped by SIGTERM after epoch" in err) == (times == 1)
        assert none_left(str(tmp_path))


@pytest.mark.long
def test_ctrl_c_at_the_launcher(here, karate, tmp_path):
    process = here.start("train", karate / "karate.p2.h5", "--epochs", 10**7, "--out",
                         tmp_path / "run")
    resuming.wait_for(tmp_path / "run", 8, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    if here.is_openmpi:  # it passes SIGTERM on, as docs/how-to/clusters.md says
        assert process.returncode and none_left(str(tmp_path))
        return
    assert process.returncode == 130, err
    assert "hpgcn: interrupted after epoch" in err
    assert (tmp_path / "run" / "model.h5").exists()


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("number, name", [
    (signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGUSR2, "SIGUSR2"),
    (signal.SIGXCPU, "SIGXCPU")])
def test_a_second_signal_ends_a_run_at_once(folder, tmp_path, ranks, number, name):
    terminal, theirs = os.openpty()
    nowhere = "9:none:1", "hpgcn.training.trainer.warm_up"
    child = subprocess.Popen(
        [sys.executable, SIGNALLED, *nowhere, "train", "karate.h5", "--out", tmp_path / "run",
         "--ranks", str(ranks), "--strategy", "1d"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs,
        env={**clean_environment(), "HPGCN_FAULT": "hang:0:3:loss"})
    os.close(theirs)
    try:
        resuming.wait_for(tmp_path / "run", 2, child)
        said = b""
        child.send_signal(number)
        while f"a second {name} ends it at once".encode() not in said:
            said += os.read(terminal, 1000)
        time.sleep(2 * signals.REPEATED)
        child.send_signal(number)
        assert child.wait(60) == 128 + number
        assert b"Traceback" not in said + os.read(terminal, 1000)
    finally:
        child.kill()
        child.wait()
        os.close(terminal)


def test_a_signal_is_noted_once_and_the_handlers_are_put_back():
    before = {number: signal.getsignal(number) for number in signals.ENDING}
    limit = resource.getrlimit(resource.RLIMIT_CPU)
    with signals.record_signals(*signals.STOPPING), signals.record_signals(signal.SIGINT):
        assert signals.pending_signal() == 0
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signals.pending_signal() == signal.SIGUSR1
        resource.setrlimit(resource.RLIMIT_CPU, (10**6, limit[1]))
        for number in (signal.SIGTERM, signal.SIGXCPU):
            os.kill(os.getpid(), number)
            assert signals.pending_signal() == max(number, signal.SIGTERM)
        # the system sends no more of them
        assert resource.getrlimit(resource.RLIMIT_CPU) == (limit[1], limit[1])
        time.sleep(2 * signals.REPEATED)
        with pytest.raises(SystemExit) as ended:
            os.kill(os.getpid(), signal.SIGXCPU)
        assert ended.value.code == 128 + signal.SIGXCPU
        signals._state["ended"] = None  # as if that was another process
        if before[signal.SIGINT] is signal.default_int_handler:
            os.kill(os.getpid(), signal.SIGINT)
            assert signals.pending_signal() == signals.INTERRUPTED
            time.sleep(2 * signals.REPEATED)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    assert signals.pending_signal() == 0
    with pytest.raises(SystemExit) as ended, signals.ending():
        os.kill(os.getpid(), signal.SIGTERM)
    assert ended.value.code == 143
    assert {number: signal.getsignal(number) for number in signals.ENDING} == before

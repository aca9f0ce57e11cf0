"""Runs that are killed, get signals or fill the disk can resume from a checkpoint."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import clean_environment, hpgcn, refused, succeed
from graphs import make, with_links
from jobs import processes
from resuming import lines, steps

from hpgcn import store
from hpgcn.runtime.faults import PHASES

# kills of one run of three ranks; scripts/soak.sh sets more
KILLS = int(os.environ.get("HPGCN_KILLS", "4"))
SHARE = 30  # epochs that a run may do before it is killed, if the one that kills comes late
EPOCHS = 2 * SHARE * KILLS  # not all done when the last attempt to kill has been made
COMMIT = [phase.partition(".")[2] for phase in PHASES if phase.startswith("checkpoint.")]
GENERATE = "generate", "sbm", "--scale", 8, "--features", 12, "--classes", 4
# One process that imports everything and loads the kernels of a run, then a child for each run.
# The process has one thread, which a fork needs.
CHILDREN = """
import json, os, sys
import hpgcn, hpgcn.training.trainer, h5py
runs = json.load(sys.stdin)
hpgcn.train(hpgcn.load("g.h5"), hpgcn.Config(epochs=1))
for out, fault, settings in runs:
    child = os.fork()
    if not child:
        os.environ["HPGCN_FAULT"] = fault
        graph = hpgcn.load("g.h5")
        if settings:
            hpgcn.train(graph, hpgcn.Config(**settings, out=out))
        else:
            hpgcn.train(graph, resume=out)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the graphs g.h5 and links.h5, and partitions into three, *.p3.h5."""
    folder = tmp_path_factory.mktemp("crash")
    succeed(*GENERATE, "g.h5", cwd=folder)
    store.write_graph(folder / "links.h5", with_links(make(n=300)))
    for name in ("g.h5", "links.h5"):
        succeed("partition", name, "-k", 3, "--method", "random", cwd=folder)
    return folder


@pytest.fixture(autouse=True)
def working_folder(folder, monkeypatch):
    """Make `folder` the working folder of every test."""
    monkeypatch.chdir(folder)


def children(runs):
    """Run hpgcn.train in one child process after another; return their exit codes."""
    threads = dict.fromkeys(("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run([sys.executable, "-c", CHILDREN], input=json.dumps(runs), timeout=300,
                          check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env={**clean_environment(), **threads})
    return [int(line) for line in done.stdout.split()]


def outcome(out):
    """Return weights, losses and summary of a finished run, without times."""
    weights, attributes = store.read_model(out / "model.h5")
    summary = json.loads((out / "summary.json").read_text())
    losses = [line["loss"] for line in lines(out)]
    return ({name: array.tobytes() for name, array in weights.items()}, attributes["epoch"], losses,
            [summary[name] for name in ("epochs", "final_loss", "best_epoch", "test_acc")])


@pytest.mark.long
def test_killed_at_every_step_of_a_commit(folder):
    settings = {"epochs": 10, "checkpoint_every": 3}
    runs = [("whole", "", settings),
            *((phase, f"kill:0:9:checkpoint.{phase}", settings) for phase in COMMIT)]
    assert children(runs) == [0] + [-signal.SIGKILL] * len(COMMIT)
    newest = {}
    for phase in COMMIT:
        left = [name for name in steps(folder / phase) if name.startswith("step-")]
        newest[phase] = left[-1]
        for name in left:  # every file under its final name is complete
            assert (folder / phase / "checkpoints" / name / "manifest.json").exists()
            store.read_state(folder / phase / "checkpoints" / name / "state.h5")
    new = {"renamed", "prune", "end"}
    assert newest == {phase: "step-00000009" if phase in new else "step-00000006"
                      for phase in COMMIT}
    assert children([(phase, "", {}) for phase in COMMIT]) == [0] * len(COMMIT)
    for phase in COMMIT:
        assert outcome(folder / phase) == outcome(folder / "whole"), phase
        assert steps(folder / phase) == ["step-00000009", "step-00000010"], phase


class Run:
    """A background process `mpiexec -n 3 hpgcn train --resume`."""

    def __init__(self, here, out, *flags, graph="g.p3.h5", **environment):
        self.metrics = Path(out, "metrics.jsonl")
        self.process = here.start("train", graph, "--out", out, "--resume", *flags, ranks=3,
                                  **environment)

    def epochs(self):
        return self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0

    def wait_for(self, more):
        """Wait until this run has completed `more` epochs since its start."""
        deadline, before, first = time.monotonic() + 60, None, self.epochs()
        while self.process.poll() is None and time.monotonic() < deadline:
            now = self.epochs()
            if now < first or before is None:  # cut back to the checkpoint, or not yet
                before = first = now
            if now >= before + more:
                return
            time.sleep(0.002)

    def ranks(self):
        """Return the process ids of the ranks: all Python processes that descend from mpiexec."""
        def below(pid):
            while pid > 1 and pid != self.process.pid:
                pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            return pid == self.process.pid

        pids = []
        for pid in processes(sys.executable):
            with contextlib.suppress(OSError):  # the process has ended
                pids += [pid] if pid != self.process.pid and below(pid) else []
        return sorted(pids)

    def end(self):
        """Wait at most five minutes for the end; return exit code and standard error."""
        text = self.process.communicate(timeout=300)[1]
        return self.process.returncode, text


@pytest.fixture(scope="module")
def whole(folder):
    """Return the results of an uninterrupted run of three ranks in this process."""
    succeed("train", "g.p3.h5", "--epochs", EPOCHS, "--checkpoint-every", 2, "--out", "whole3",
            "--ranks", 3, cwd=folder)
    return outcome(folder / "whole3")


@pytest.mark.release
def test_killed_at_random_moments_again_and_again(here, folder, whole):
    kill_again_and_again(here, "killed")
    assert outcome(folder / "killed") == whole


@pytest.mark.release
def test_a_run_on_links_killed_at_random_moments(here, folder):
    flags = ("--task", "links", "--output-width", 6, "--decoder", "hadamard:2", "--negatives",
             "uniform:2", "--strict-negatives")
    kill_again_and_again(here, "killed links", *flags, graph="links.p3.h5")
    succeed("train", "links.p3.h5", *flags, "--epochs", EPOCHS, "--checkpoint-every", 2, "--out",
            "whole links", "--ranks", 3)
    assert outcome(folder / "killed links") == outcome(folder / "whole links")


def kill_again_and_again(here, out, *flags, **options):
    """Stop a run by KILLS kills at random moments; resume it each time, at last to its end."""
    rng = np.random.default_rng(int(os.environ.get("HPGCN_SEED", "0")))
    killed = done = 0
    for _ in range(2 * KILLS):
        if killed == KILLS:
            break
        run = Run(here, out, *flags, "--epochs", done + SHARE, "--checkpoint-every", 2, **options)
        more, moment, rank = int(rng.integers(0, 10)), float(rng.random()), int(rng.integers(0, 3))
        run.wait_for(more)
        # in an epoch or a commit, or while the run starts
        time.sleep(moment * (0.05 if more else 2))
        ranks = run.ranks()
        if ranks and run.process.poll() is None:
            os.kill(ranks[rank % len(ranks)], signal.SIGKILL)
        code, text = run.end()
        killed += code != 0
        done = run.epochs()
        assert "Traceback" not in text, text
    code, text = Run(here, out, *flags, "--epochs", EPOCHS, "--checkpoint-every", 2,
                     **options).end()
    assert code == 0, text
    assert killed == KILLS


@pytest.mark.release
def test_signals_and_a_full_disk_in_turn(here, folder, whole):
    """A run stopped by signals and by a full disk ends as usual.

    It is resumed each time, and equals an uninterrupted one.
    """
    flags = ("--epochs", EPOCHS, "--checkpoint-every", 1000)
    run = Run(here, "turns", *flags)
    run.wait_for(3)
    run.process.send_signal(signal.SIGUSR1)
    code, text = run.end()
    assert code == 75, text
    assert f"`mpiexec -n 3 hpgcn train {folder}/g.p3.h5 --out turns --resume`" in text
    assert "Traceback" not in text
    (first,) = steps(folder / "turns")
    epoch = int(first.removeprefix("step-"))
    assert run.epochs() == epoch

    due = 2 * (epoch // 2 + 1)
    code, text = Run(here, "turns", *flags[:2], "--checkpoint-every", 2,
                     HPGCN_FAULT=f"full:0:{due}:checkpoint.write").end()
    assert code == 74, text
    assert "No space left on device" in text
    assert steps(folder / "turns") == [first]

    run = Run(here, "turns", *flags)
    run.wait_for(2)
    run.process.send_signal(signal.SIGTERM)
    code, text = run.end()
    assert code == 75, text
    second = f"step-{run.epochs():08d}"
    assert steps(folder / "turns") == [first, second]

    run = Run(here, "turns", *flags)
    run.wait_for(2)
    os.kill(run.ranks()[-1], signal.SIGUSR1)
    code, text = run.end()
    assert code == 75, text
    assert steps(folder / "turns") == [second, f"step-{run.epochs():08d}"]
    shutil.copytree(folder / "turns", folder / "one rank")

    code, text = Run(here, "turns", *flags).end()
    assert code == 0, text
    assert "rounding" not in text
    assert outcome(folder / "turns") == whole

    done = hpgcn("train", "g.h5", "--out", "one rank", "--resume")
    assert done.returncode == 0, done.stderr
    assert "with another number of ranks" in done.stderr
    one_rank = outcome(folder / "one rank")
    for name, array in one_rank[0].items():
        np.testing.assert_allclose(np.frombuffer(array, np.float32),
                                   np.frombuffer(whole[0][name], np.float32), rtol=0, atol=1e-4)


@pytest.mark.long
def test_the_command_line_refuses_other_settings():
    succeed("train", "g.p3.h5", "--epochs", 2, "--checkpoint-every", 1, "--out", "finished",
            "--ranks", 3)
    given = ("train", "g.p3.h5", "--out", "finished", "--resume")
    said = refused(78, *given, "--ranks", 3, "--lr", 0.5)
    assert "lr is 0.5, but the run was started with 0.01" in said
    assert "--resume needs --out RUN" in refused(2, "train", "g.p3.h5", "--resume")
    # a process of its own says on standard error what others log
    assert "nothing to do" in refused(0, *given, "--ranks", 3, timeout=120)

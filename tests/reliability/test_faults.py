"""Faults injected into running jobs end all ranks in time, with an exit code and a reason."""
import shutil
import subprocess

import pytest
from checkout import ROOT
from commands import clean_environment, without_notice
from in_process import refused
from jobs import none_left, processes
from resuming import lines as metrics
from resuming import wait_for

from hpgcn.errors import UsageError
from hpgcn.runtime import faults

SIGSEGV = (11, 139)  # exit codes by MPICH's mpiexec and by Open MPI's


def settings(tmp_path, epochs=4, timeout=2):
    """Return training options with an output folder of this test.

    Its processes are found by this folder.
    """
    return ("--strategy", "p2p", "--epochs", epochs, "--comm-timeout", timeout, "--out",
            tmp_path / "run")


def lines(err):
    """Return the lines of standard error that hpgcn wrote, except "ended by SIGTERM"."""
    return [line for line in without_notice(err).splitlines()
            if line.startswith("hpgcn: ") and line != "hpgcn: ended by SIGTERM"]


def test_a_rank_that_raises_ends_all(launcher, karate, tmp_path):
    code, err = launcher.run("train", karate / "karate.p2.h5", *settings(tmp_path, timeout=60),
                             HPGCN_FAULT="raise:1:3:backward")
    assert code == 70, err
    assert "rank 1 of 2 failed:" in err
    assert "RuntimeError: a fault on purpose" in err
    assert "Traceback" in err
    assert len(metrics(tmp_path / "run")) == 2
    assert none_left(str(tmp_path))


@pytest.mark.parametrize("fault, codes, said", [
    ("raise:3:2:backward", (70,), "RuntimeError: a fault on purpose (raise:3:2:backward) "
     "(on rank 3 of 4)"),
    pytest.param("kill:3:2:forward", (9, 137), "", marks=pytest.mark.long),
    pytest.param("hang:1:2:forward", (75,), "process 1 waited 2 s for other processes: rank 2 "
                 "waits for ", marks=pytest.mark.long)], ids=range(3))
def test_local_ranks_of_two_processes(here, karate, tmp_path, fault, codes, said):
    """Two ranks of each process end with one of them, and one line says why."""
    code, err = here.run("train", karate / "karate.h5", *settings(tmp_path), "--strategy", "1d",
                         "--ranks", 2, HPGCN_FAULT=fault)
    assert code in codes, err
    if said:
        line, = lines(err)
        assert line.startswith(f"hpgcn: {said}")
    assert none_left(str(tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("copies, code", [(None, 0), ("1", 78)])
def test_ranks_in_user_namespaces_of_their_own(here, karate, tmp_path, copies, code):
    """MPI cannot copy memory between them, as between containers that it starts."""
    apart = ["unshare", "--user", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("no user namespaces here")
    if here.is_openmpi:
        pytest.skip("Open MPI finds out on its own")
    command = here.command("train", karate / "karate.p2.h5", *settings(tmp_path, timeout=60))
    environment = {"MPIR_CVAR_CH4_CMA_ENABLE": copies} if copies else {}
    done = subprocess.run([*command[:3], *apart, *command[3:]], text=True, check=False, timeout=100,
                          capture_output=True, env={**clean_environment(), **here.environment,
                                                    **environment})
    assert done.returncode == code, done.stderr
    if code:
        assert "set MPIR_CVAR_CH4_CMA_ENABLE=0 for all ranks" in done.stderr
    else:
        assert "UCX" not in done.stderr


@pytest.mark.long
def test_a_segmentation_fault_leaves_a_stack(launcher, karate, tmp_path):
    code, err = launcher.run("train", karate / "karate.p2.h5", *settings(tmp_path, timeout=60),
                             HPGCN_FAULT="segv:1:2:forward")
    assert code in SIGSEGV, err
    assert "Fatal Python error: Segmentation fault" in err
    assert 'trainer.py", line' in err
    assert none_left(str(tmp_path))


@pytest.mark.long
def test_a_rank_that_never_comes_is_named(launcher, karate, tmp_path):
    code, err = launcher.run("train", karate / "karate.p3.h5", *settings(tmp_path), ranks=3,
                             HPGCN_FAULT="hang:1:2:forward")
    assert code == 75, err
    said = "waited 2 s for rank(s) 1 in layer 0 forward; no word from rank(s) 1"
    assert any(f"hpgcn: rank {rank} {said}" in lines(err) for rank in (0, 2)), err
    assert none_left(str(tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("fault, where", [
    ("hang:0:2:update", "an allreduce of weights"),
    ("hang:1:0:setup", "a reduction of scalars (rank(s) 0, 1)"),
    ("hang:1:0:end", "a barrier (rank(s) 0, 1)")])
def test_no_wait_is_without_a_deadline(here, karate, tmp_path, fault, where):
    code, err = here.run("train", karate / "karate.p2.h5", *settings(tmp_path), HPGCN_FAULT=fault)
    late, waiting = int(fault.split(":")[1]), 1 - int(fault.split(":")[1])
    assert code == 75, err
    line, = lines(err)
    assert line.startswith(f"hpgcn: rank {waiting} waited 2 s for ")
    assert where in line
    assert line.endswith(f"no word from rank(s) {late}")
    assert none_left(str(tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("hung", [False, True])
def test_no_rank_outlives_its_launcher(launcher, karate, tmp_path, hung):
    forever = settings(tmp_path, epochs=10_000_000, timeout=600)
    process = launcher.start("train", karate / "karate.p2.h5", *forever,
                             HPGCN_FAULT="hang:1:9:loss" if hung else "")
    wait_for(tmp_path / "run", 8, process)
    assert len(processes(str(tmp_path))) >= 3
    process.kill()
    assert none_left(str(tmp_path))


@pytest.mark.long
def test_nan_stops_all_ranks_in_the_same_epoch(here, karate, tmp_path):
    code, err = here.run("train", karate / "karate.p2.h5", *settings(tmp_path),
                         HPGCN_FAULT="nan:1:2:loss")
    assert code == 76, err
    line, = lines(err)
    assert line.startswith("hpgcn: epoch 2: the training loss is nan; layer 1 forward has")
    assert [line["epoch"] for line in metrics(tmp_path / "run")] == [1]


@pytest.mark.long
def test_ranks_started_with_different_settings(launcher, karate, tmp_path):
    same = "train", karate / "karate.p2.h5", *settings(tmp_path)
    code, err = launcher.run(same, (*same, "--seed", 3))
    said = "rank 1 was started with another command line than rank 0: seed is 3, not 0"
    assert (code, lines(err)) == (78, [f"hpgcn: {said}"]), err
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_what_one_rank_finds_before_it_meets_the_others(launcher, karate, tmp_path):
    same = "train", karate / "karate.p2.h5", *settings(tmp_path)
    for ranks, said in (
            ((same, (*same, "--hidden", 0)), "--hidden 0: expected 1 to 16777216 (on rank 1 of 2)"),
            (((*same, "--xyzzy"), same),
             "--xyzzy: unknown; see `hpgcn train --help` (on rank 0 of 2)")):
        code, err = launcher.run(*ranks)
        assert (code, lines(err)) == (2, [f"hpgcn: {said}"]), err


@pytest.mark.parametrize("words, variables", [
    ("srun", {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3"}),
    ("Flux", {"FLUX_JOB_SIZE": "4", "FLUX_TASK_RANK": "0"})])
def test_tasks_that_mpi_does_not_connect(karate, tmp_path, monkeypatch, words, variables):
    pytest.importorskip("mpi4py")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    refused(78, f"{words} started 4 tasks, but MPI has one rank", "train", karate / "karate.h5",
            *settings(tmp_path))


def test_a_fault_that_makes_no_sense_is_refused(karate, tmp_path, fault):
    fault("bang:1:2:loss")
    refused(2, "^hpgcn: HPGCN_FAULT=bang:1:2:loss: expected kind:rank:epoch:phase", "train",
            karate / "karate.h5", *settings(tmp_path))


@pytest.mark.parametrize("text", ["", "kill", "kill:0:1", "kill:0:1:loss:2", "kill:-1:1:loss",
                                  "kill:0:x:loss", "kill:0:1:lunch", "nan:0:1:update"])
def test_words_that_name_no_fault(text):
    with pytest.raises(UsageError, match="HPGCN_FAULT="):
        faults.parse(text)


def test_a_fault_happens_once_where_it_was_asked_for(monkeypatch):
    faults.STATE.set(faults.State())
    monkeypatch.setenv(faults.VARIABLE, "nan:1:2:loss")
    for rank, epoch, phase in ((0, 2, "loss"), (1, 1, "loss"), (1, 2, "backward")):
        faults.begin(rank, epoch)
        assert not faults.point(phase)
    with faults.ignored():
        faults.begin(1, 2)
        assert not faults.point("loss")
    faults.begin(1, 2)
    assert faults.point("loss")
    assert not faults.point("loss")


def test_points_are_where_faults_can_be_asked_for():
    """Every phase in `faults.PHASES` has a call of `faults.point` in the package."""
    files = (ROOT / "hpgcn").rglob("*.py")
    sources = "".join(path.read_text() for path in files)
    missing = [phase for phase in faults.PHASES if f'faults.point("{phase}")' not in sources
               and f'observe("{phase}"' not in sources]
    assert [phase for phase in missing if not phase.startswith("checkpoint.")] == []

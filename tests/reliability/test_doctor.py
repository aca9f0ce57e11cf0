"""`hpgcn doctor` prints a line for each component that is missing, crashes or hangs."""
import json
import os
import sys

import pytest
from commands import hpgcn, refused

from hpgcn import doctor
from hpgcn.doctor import probes
from hpgcn.runtime.advice import install_command

NAMES = ["hpgcn", "python", "libraries", "hdf5", "mpi", "mpiexec", "gpu", "cores", "memory",
         "mtkahypar", "metis", "kahypar", "folder", "scratch", "training", "2 ranks"]
PAIR = {"size": 2, "losses": [0.7, 0.6], "pieces": [0.7, 0.6], "limit": 1 << 30, "piece": 64,
        "vector_bytes": 32}
ALONE = {**PAIR, "size": 1}


@pytest.mark.long
def test_this_machine_is_fit(tmp_path, here):
    done = hpgcn("doctor", "--json", cwd=tmp_path, **here.environment)
    checks = json.loads(done.stdout)
    assert [check["name"] for check in checks] == [*NAMES, "long messages"]
    assert [check for check in checks if check["status"] == "fail"] == []
    assert done.returncode == 0
    text = {check["name"]: check["text"] for check in checks}
    assert str(tmp_path) in text["folder"]
    assert "HDF5 " in text["hdf5"]
    assert "thread level" in text["mpi"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_what_is_missing_or_crashes_is_a_line(tmp_path):
    """A missing MPI library and partitioners that crash have a line each.

    Other lines do not change.
    """
    for name, code in (("mpi4py", "raise ImportError('cannot load MPI library')"),
                       ("kahypar", "import os\nos.abort()"),
                       ("pymetis", "import os\nprint('noise')\nos._exit(3)"),
                       ("mtkahypar", "print('noise')\nraise RuntimeError('built elsewhere')")):
        (tmp_path / f"{name}.py").write_text(code)
    done = hpgcn("doctor", PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    told = {line[6:20].strip(): (line[:4].strip(), line[22:]) for line in done.stdout.splitlines()}
    assert list(told) == NAMES
    assert told["mpi"] == ("warn", f"cannot load MPI library: {install_command('mpi,mpich')}")
    assert told["2 ranks"][0] == "warn"
    assert told["kahypar"] == ("fail", "ended with code -6")
    assert told["metis"] == ("fail", "ended with code 3: noise")
    assert told["mtkahypar"] == ("fail", "RuntimeError: built elsewhere")
    assert told["training"][0] == "ok"
    assert done.returncode == 70
    assert done.stderr == ""


@pytest.mark.parametrize("name, words", [
    ("libraries", "numba "), ("hdf5", "HDF5 "), ("gpu", ""), ("files", "fsync and rename work")])
def test_a_probe_says_what_is_there(tmp_path, name, words):
    status, text = probes.PROBES[name](*[str(tmp_path)] * (name == "files"))
    assert status == "ok" or name == "gpu"
    assert words in text and not os.listdir(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_a_warning(tmp_path, monkeypatch):
    def fail(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(probes.os, "fsync", fail)
    status, text = probes.files(str(tmp_path))
    assert status == "warn" and text.endswith("cannot be written to: No space left on device")


def test_a_part_that_hangs_is_given_up():
    program = "import time; print('a', flush=True); time.sleep(60)"
    code, out, err = doctor.ask([sys.executable, "-c", program], 1)
    assert (code, out, err) == (None, "a\n", "")
    status, text = doctor.no_answer(code, err, 1)
    assert status == "slow"
    assert text.startswith("no answer within 1 s: the machine is busy")
    said = "/nowhere/mpiexec: No such file or directory"
    assert doctor.ask(["/nowhere/mpiexec"], 1) == (1, "", said)


@pytest.mark.parametrize("alone, pair, expected", [
    (ALONE, PAIR, ["ok", "ok", "ok"]),
    (ALONE, {**PAIR, "losses": [0.7, 0.6000001]}, ["ok", "fail", "fail"]),
    (ALONE, {**PAIR, "pieces": [0.7, 0.6000000001]}, ["ok", "ok", "fail"]),
    (ALONE, {**PAIR, "size": 1}, ["ok", "fail"]),
    (ALONE, ("slow", "no answer within 120 s"), ["ok", "slow"]),
    (("slow", "no answer within 120 s"), PAIR, ["slow"]), (ALONE, None, ["ok", "warn"]),
    (("fail", "ended with code 70: hpgcn: no"), PAIR, ["fail"])])
def test_self_tests_are_judged(alone, pair, expected):
    assert [check.status for check in doctor.judge(alone, pair)] == expected


def test_a_busy_machine_is_slow_and_no_failure(monkeypatch):
    monkeypatch.setattr(doctor, "PROBE_SECONDS", 0.01)
    monkeypatch.setattr(doctor, "SELFTEST_SECONDS", 0.01)
    checks = {check.name: check for check in doctor.examine()}
    asked = ("libraries", "hdf5", "mpi", "gpu", "mtkahypar", "metis", "kahypar", "folder",
             "scratch", "training")
    assert {checks[name].status for name in asked} == {"slow"}
    assert checks["training"].text.startswith("no answer within 0.01 s: the machine is busy (load ")
    assert not [check for check in checks.values() if check.status == "fail"]


@pytest.mark.parametrize("domains, status", [([], "ok"), ([{0, 1}], "ok"),
                                             ([{0, 1}, {2, 3}], "warn")])
def test_a_rank_that_would_span_numa_domains(monkeypatch, domains, status):
    monkeypatch.setattr(doctor, "memory_domains", lambda: domains)
    finding = doctor.cores()
    assert finding.status == status
    assert ("2 NUMA domains of 2, 2 cores" in finding.text) == (status == "warn")


def test_jobs_and_the_folder_of_kernels_are_checked():
    assert "--jobs -1: expected at least 1" in refused(2, "doctor", "--compile", "--jobs", "-1")
    assert "HPGCN_KERNELS=/proc/none: " in refused(74, "doctor", "--compile",
                                                   HPGCN_KERNELS="/proc/none")


def test_the_kernels_of_all_users_are_counted(tmp_path, monkeypatch):
    monkeypatch.delenv("HPGCN_KERNELS", raising=False)
    assert doctor.shared_kernels() == []
    monkeypatch.setenv("HPGCN_KERNELS", str(tmp_path))
    finding, = doctor.shared_kernels()
    assert finding.status == "warn" and "0 compiled kernels; `hpgcn doctor --c" in finding.text
    folder = tmp_path / "hpgcn/numba/spmm-0"
    folder.mkdir(parents=True)
    (folder / "multiply.nbc").touch()
    assert doctor.shared_kernels()[0] == ("kernels", "ok",
                                          f"HPGCN_KERNELS={tmp_path}: 1 compiled kernels")

"""Ranks, threads and memory, from environment variables of launchers and from MPI."""
import os
import subprocess
import sys
import warnings

import pytest
from commands import clean_environment, refused, run, succeed

from hpgcn.comm import as_comm
from hpgcn.runtime import launcher, machine
from hpgcn.runtime.core_shares import domain_of, share_of

VARIABLES = {name for each in launcher.LAUNCHERS.values()
             for names in (*each[:4], each.local_rank, *each.needs) for name in names}
VARIABLES |= {"PMIX_NAMESPACE", launcher.NODE, launcher.VARIABLE, launcher.PTY}


@pytest.fixture
def bare(monkeypatch):
    """Set up an environment without a launcher, with 12 cores and 1000 bytes of free memory."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "usable_cores", lambda: 12)
    monkeypatch.setattr(machine, "available_memory", lambda: 1000)
    for name in ("ranks", "cores"):
        monkeypatch.setattr(launcher._Node, name, None)
    return monkeypatch


def slurm(tasks, rank, **others):
    return {"SLURM_STEP_NUM_TASKS": str(tasks), "SLURM_PROCID": str(rank),
            **{f"SLURM_{name}": value for name, value in others.items()}}


def processes(folder, *chain):
    """Write a /proc with this process and its ancestors: (user namespace, environment) of each."""
    for number, (namespace, environment) in enumerate(chain):
        process = folder / ("self" if number == 0 else str(number))
        (process / "ns").mkdir(parents=True)
        (process / "stat").write_text(f"{number or 99} (a) b) S {number + 1} 0")
        (process / "environ").write_bytes(environment)
        (process / "ns" / "user").hardlink_to(namespace)


@pytest.mark.parametrize("chain, ids, apart", [
    ("own rank, own launcher", "0 0 4294967295", False),
    ("own rank, own rank, own launcher", "0 0 4294967295", False),
    ("own rank, other launcher", "0 1000 1", True),
    ("own rank, own rank, other rank, other launcher", "0 1000 1", True),
    ("own rank, own launcher, other shell", "0 1000 1", False),  # all ranks are in the container
    ("own rank, own rank", "0 1000 1", True), ("own rank, own rank", "0 0 4294967295", False)])
def test_user_namespaces_of_ranks(tmp_path, chain, ids, apart):
    for name in ("own", "other"):
        (tmp_path / name).write_text("")
    environment = {"rank": b"A=1\0PMI_RANK=0\0", "launcher": b"A=PMI_RANK\0", "shell": b""}
    processes(tmp_path, *((tmp_path / namespace, environment[kind])
                          for namespace, kind in map(str.split, chain.split(", "))))
    (tmp_path / "self" / "uid_map").write_text(f"   {ids}\n".replace(" ", "  "))
    assert launcher._is_apart(tmp_path) == apart


NO_FARM = (None, 0, 12, 800)
CASES = [  # farm, rank, threads, memory
    ({}, NO_FARM),
    ({"PMI_RANK": "2", "MPI_LOCALNRANKS": "4"}, (("mpiexec", 4), 2, 3, 200)),
    ({"PMI_RANK": "0", "PMI_SIZE": "1", "MPI_LOCALNRANKS": "1"}, NO_FARM),
    ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "8"},
     (("Open MPI's launcher", 8), 5, 6, 400)),
    (slurm(8, 7, NTASKS_PER_NODE="4(x2)"), (("srun", 8), 7, 3, 200)),
    (slurm(8, 7, STEP_TASKS_PER_NODE="8"), (("srun", 8), 7, 1, 100)),
    (slurm(8, 7, STEP_TASKS_PER_NODE="4(x2)", NTASKS_PER_NODE="1"), (("srun", 8), 7, 3, 200)),
    (slurm(10, 9, STEP_TASKS_PER_NODE="4(x2),2", NODEID="2"), (("srun", 10), 9, 6, 400)),
    (slurm(10, 5, STEP_TASKS_PER_NODE="4(x2),2", NODEID="1"), (("srun", 10), 5, 3, 200)),
    (slurm(10, 5, STEP_TASKS_PER_NODE="2,4(x2)"), (("srun", 10), 5, 3, 200)),
    (slurm(10, 5, STEP_TASKS_PER_NODE="2,4(x2)", NODEID="7"), (("srun", 10), 5, 3, 200)),
    (slurm(4, 1, TASKS_PER_NODE="2(x2)"), (("srun", 4), 1, 6, 400)),
    (slurm(4, 1, STEP_TASKS_PER_NODE="nonsense"), (("srun", 4), 1, 12, 800)),
    # a step of one task in an allocation for many; a batch script
    (slurm(1, 0, NTASKS_PER_NODE="8", TASKS_PER_NODE="8"), NO_FARM),
    ({"SLURM_NTASKS_PER_NODE": "4", "SLURM_PROCID": "0"}, NO_FARM),
    # daemons of mpiexec are a step of srun
    ({**slurm(2, 1, STEP_TASKS_PER_NODE="1(x2)"), "PMI_SIZE": "8", "PMI_RANK": "5",
      "MPI_LOCALNRANKS": "4"}, (("mpiexec", 8), 5, 3, 200)),
    ({"PMI_RANK": "0", "MPI_LOCALNRANKS": "40"}, (("mpiexec", 40), 0, 1, 20)),
    ({"FLUX_JOB_SIZE": "8", "FLUX_TASK_RANK": "3", "FLUX_JOB_NNODES": "2", "PMI_RANK": "3",
      "PMI_SIZE": "8"}, (("Flux", 8), 3, 3, 200)),
    ({"FLUX_JOB_SIZE": "1", "FLUX_TASK_RANK": "0"}, NO_FARM),
    ({"PALS_RANKID": "6", "PALS_LOCAL_SIZE": "4"}, (("PALS", 7), 6, 3, 200)),
    ({"PALS_RANKID": "0", "PALS_LOCAL_SIZE": "4"}, (("PALS", 4), 0, 3, 200)),
    ({"PALS_RANKID": "0", "PALS_NRANKS": "2"}, (("PALS", 2), 0, 12, 800)),
    ({"PALS_RANKID": "0", "PALS_NRANKS": "1"}, NO_FARM),
    ({"PALS_RANKID": "0", "PALS_LOCAL_SIZE": "1"}, (("PALS", None), 0, 12, 800)),
    ({"JSM_NAMESPACE_SIZE": "4", "JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_LOCAL_SIZE": "2"},
     (("jsrun", 4), 1, 6, 400)),
    ({"PMIX_RANK": "0", "PMIX_NAMESPACE": "prterun-1"}, (("PMIx", None), 0, 12, 800)),
    ({"PMIX_RANK": "3", "PMIX_NAMESPACE": "p", "PMIX_LOCAL_SIZE": "2"}, (("PMIx", 4), 3, 6, 400)),
    ({"PMIX_RANK": "0", "PMIX_NAMESPACE": "p", "OMPI_COMM_WORLD_SIZE": "1"}, NO_FARM),
    ({"WORLD_SIZE": "4", "RANK": "1", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"},
     (("torchrun", 4), 1, 3, 200)),
    ({"WORLD_SIZE": "4", "RANK": "1", "MASTER_ADDR": "here"}, (("torchrun", 4), 1, 12, 800)),
    ({"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}, NO_FARM),
    ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}, NO_FARM),  # another tool's
    ({"WORLD_SIZE": "4", "RANK": "3"}, NO_FARM),
]


@pytest.mark.parametrize("environment, expected", CASES)
def test_shares(bare, environment, expected):
    for name, value in environment.items():
        bare.setenv(name, value)
    said = (launcher.farm(), launcher.launched_rank(), machine.default_threads(),
            machine.memory_budget())
    assert said == expected
    known_to_mpi = any(name.startswith(("PMI", "OMPI")) for name in environment)
    assert launcher.launched() == (expected[0] is not None or known_to_mpi)
    assert launcher.without_launcher(os.environ).keys().isdisjoint(environment)

    bare.setenv(launcher.VARIABLE, "1")  # on its own; the node is shared as before
    assert (launcher.launched(), launcher.launched_rank()) == (False, 0)
    assert (machine.default_threads(), machine.memory_budget()) == expected[2:]
    rank = expected[1]
    assert launcher.task_suffix() == (f"-task{rank}" if expected[0] else "")


LOCAL_RANKS = [
    ({}, None),
    ({"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, 1),
    ({"MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_LOCAL_RANK": "3"}, 3),
    ({"PMI_SIZE": "8", "MPI_LOCALRANKID": "2", **slurm(2, 1, LOCALID="0")}, 2),
    ({"PMI_SIZE": "8", **slurm(8, 7, LOCALID="3")}, 3),
    ({"PALS_RANKID": "6", "PALS_LOCAL_RANKID": "2"}, 2),
    ({"FLUX_JOB_SIZE": "8", "FLUX_TASK_RANK": "5", "FLUX_TASK_LOCAL_ID": "1"}, 1),
    ({"JSM_NAMESPACE_SIZE": "8", "JSM_NAMESPACE_LOCAL_RANK": "1"}, 1),
    ({"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}, 1),
    ({"LOCAL_RANK": "1"}, None),
    ({"PMI_SIZE": "8", "PMI_RANK": "5"}, None)]


@pytest.mark.parametrize("environment, expected", LOCAL_RANKS)
def test_the_number_on_the_node(bare, environment, expected):
    for name, value in environment.items():
        bare.setenv(name, value)
    assert launcher.launched_local_rank() == expected


def test_the_count_of_mpi_is_the_truth(bare):
    bare.setenv("PMI_RANK", "1")
    bare.setenv("MPI_LOCALNRANKS", "4")
    cores = set(range(12))
    launcher.set_ranks_on_node(2 * [cores], 1, all_ranks=False)  # half of the ranks train together
    assert (machine.default_threads(), machine.memory_budget()) == (3, 200)
    launcher.set_ranks_on_node(6 * [cores], 1, all_ranks=True)
    assert (machine.default_threads(), machine.memory_budget()) == (2, 133)
    bare.setattr(machine, "cpu_quota", lambda: 6.0)
    assert machine.default_threads() == 1


def test_ranks_that_a_launcher_has_bound_use_all_their_cores(bare):
    cores = [{0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}, {8}]
    launcher.set_ranks_on_node(cores, 0, all_ranks=True)
    assert machine.default_threads() == 4
    assert [share_of(cores, rank) for rank in range(4)] == [4, 2, 2, 1]
    assert share_of(16 * [{0, 1}], 3) == 1


def test_ranks_stay_in_memory_domains(bare):
    cores, domains = set(range(8)), [{0, 1, 2, 3}, {4, 5, 6, 7}]
    assert [domain_of(4 * [cores], rank, domains) for rank in range(4)] == [
        domains[0], domains[0], domains[1], domains[1]]
    bound = [{0}, {5}]
    for kept in (domain_of([cores], 0, domains), domain_of(3 * [cores], 2, domains),
                 domain_of(bound, 1, domains), domain_of(2 * [cores], 1, domains[:1]),
                 domain_of([], 0, domains)):
        assert kept is None

    chosen = []
    bare.setattr(machine, "memory_domains", lambda: domains)
    bare.setattr(os, "sched_setaffinity", lambda process, cores: chosen.append(cores))
    machine.stay_in_domain()  # one process without MPI
    launcher.set_ranks_on_node(2 * [cores], 1, all_ranks=True)
    machine.stay_in_domain()
    assert chosen == [domains[1]]


FARMS = [
    ("srun started 4 tasks", slurm(4, 1)),
    ("Open MPI's launcher started 2 tasks",
     {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}),
    ("Flux started 3 tasks", {"FLUX_JOB_SIZE": "3", "FLUX_TASK_RANK": "2"}),
    ("torchrun started 2 tasks", {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}),
    ("PMIx started this process in a job of unknown size",
     {"PMIX_RANK": "0", "PMIX_NAMESPACE": "prun-1"})]


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    from hpgcn.datasets import convert

    path = tmp_path_factory.mktemp("graph") / "karate.h5"
    convert.convert("karate", path)
    return path


@pytest.mark.parametrize("words, variables", FARMS)
def test_every_rank_that_mpi_does_not_connect_is_refused_in_words(bare, graph, tmp_path, words,
                                                                 variables):
    MPI = pytest.importorskip("mpi4py.MPI")
    if MPI.COMM_WORLD.Get_size() > 1:
        pytest.skip("MPI connects these ranks")
    for name, value in variables.items():
        bare.setenv(name, value)
    out = tmp_path / "run"
    train = ("train", graph, "--epochs", 1, "--out", out, "-q")
    for command in (train, ("predict", out), ("bench", "machine")):
        line = refused(78, *command)
        assert f"hpgcn: {words}, but MPI has one rank" in line and "--alone" in line
        assert not out.exists()
    if words.startswith("srun"):
        bare.setenv(launcher.PTY, "40001")
        assert "4 tasks, one of which is this interactive shell: add --alone" in refused(78, *train)


def test_a_rank_that_cannot_start_mpi_is_refused_in_words(bare, graph, tmp_path):
    bare.setitem(sys.modules, "mpi4py.MPI", None)
    for name, value in slurm(4, 3).items():
        bare.setenv(name, value)
    line = refused(69, "train", graph, "--out", tmp_path / "run")
    assert "hpgcn: srun started 4 tasks; to work together (--alone: each on its own) needs " \
        "mpi4py (extra mpi,mpich): pip install" in line


def test_each_works_alone_where_that_is_meant(bare, graph, tmp_path):
    bare.setattr(machine, "available_memory", lambda: 1 << 30)
    for name, value in slurm(4, 3).items():
        bare.setenv(name, value)
    words = ("train", graph, "--epochs", 1, "--alone", "--threads", 1)
    assert "run-karate-task3-1/summary.json" in succeed(*words, cwd=tmp_path)
    again = run(*words, "--out", "run-karate-task3-1", cwd=tmp_path)
    assert (again.returncode, "run directory exists" in again.stderr) == (73, True)
    assert "wrote" in succeed("predict", "run-karate-task3-1", "--alone", cwd=tmp_path)


def test_python_warns_where_each_process_works_alone(bare):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_comm(None)
    bare.setenv("FLUX_JOB_SIZE", "8")
    with pytest.warns(UserWarning, match="Flux started 8 tasks, but this process runs on its "
                                         "own: pass comm=MPI.COMM_WORLD"):
        as_comm(None)
    bare.setenv(launcher.VARIABLE, "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_comm(None)


MPI_ENDS = """
import sys
import mpi4py
mpi4py.rc.initialize = "not initialized" not in sys.argv
from mpi4py import MPI
import hpgcn
from hpgcn.comm import abort_on_exception, as_comm, world
comm = MPI.COMM_WORLD
if "finalized" in sys.argv:
    abort_on_exception()
    MPI.Finalize()
elif "freed" in sys.argv:
    comm = comm.Dup()
    comm.Free()
for call in (lambda: as_comm(comm), world)[:1 if "freed" in sys.argv else 2]:
    try:
        call()
    except hpgcn.HpgcnError as error:
        print(error)
raise ValueError("the last line")
"""


@pytest.mark.parametrize("state, lines", [("not initialized", 2), ("finalized", 2), ("freed", 1)])
def test_an_mpi_that_does_not_run_is_refused(state, lines):
    """MPI itself would end the interpreter."""
    pytest.importorskip("mpi4py", reason="needs pip install '.[mpi,mpich]'")
    done = subprocess.run([sys.executable, "-c", MPI_ENDS, state], text=True, check=False,
                          timeout=60, capture_output=True, env=clean_environment())
    assert done.stdout.count(state) == lines, done.stderr
    assert done.stderr.splitlines()[-1] == "ValueError: the last line"


def test_threads_are_numbas_and_blas_has_one(monkeypatch):
    monkeypatch.setattr(os, "environ", {"OMP_WAIT_POLICY": "active"})
    machine.limit_threads(5)
    assert os.environ == {
        "NUMBA_NUM_THREADS": "5", "OMP_NUM_THREADS": "5", "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "active", "OPENBLAS_THREAD_TIMEOUT": "4"}

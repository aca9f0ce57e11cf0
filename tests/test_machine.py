"""Threads and memory of a rank, by what launchers leave in the environment."""
import os

import pytest

from hpgcn.runtime import machine


@pytest.fixture
def bare(monkeypatch):
    """No launcher; 12 cores; 1000 bytes free."""
    slurm = "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"
    for name in (*machine.RANK_VARIABLES, *machine.LOCAL_SIZES, *slurm):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    monkeypatch.setattr(machine, "available_memory", lambda: 1000)
    return monkeypatch


CASES = [
    ({}, (False, 0, 12, 800)),
    ({"PMI_RANK": "2", "MPI_LOCALNRANKS": "4"}, (True, 2, 3, 200)),
    ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, (True, 5, 6, 400)),
    ({"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "7", "SLURM_NTASKS_PER_NODE": "4(x2)"},
     (True, 7, 3, 200)),
    # a batch script, not a step of tasks
    ({"SLURM_NTASKS_PER_NODE": "4", "SLURM_PROCID": "0"}, (False, 0, 12, 800)),
    ({"PMI_RANK": "0", "MPI_LOCALNRANKS": "40"}, (True, 0, 1, 20)),
]


@pytest.mark.parametrize("environment, expected", CASES)
def test_shares(bare, environment, expected):
    for name, value in environment.items():
        bare.setenv(name, value)
    assert (machine.launched(), machine.launched_rank(), machine.default_threads(),
            machine.memory_budget()) == expected


def test_available_memory_is_real():
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 1 << 20 < machine.available_memory() <= physical


def test_threads_are_numbas_and_blas_has_one(monkeypatch):
    monkeypatch.setattr(os, "environ", {"OMP_WAIT_POLICY": "active"})
    machine.limit_threads(5)
    assert os.environ == {
        "NUMBA_NUM_THREADS": "5", "OMP_NUM_THREADS": "5", "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "active", "OPENBLAS_THREAD_TIMEOUT": "4"}

"""Scripts that convert, partition and train under mpiexec, with a fake mpiexec and a real one."""
import subprocess

import pytest
from checkout import ROOT
from commands import MPIEXEC, PLACES, clean_environment

import hpgcn

SCRIPTS = ROOT / "scripts"
MPICH, OPEN_MPI = "HYDRA build details", "mpirun (Open MPI) 5.0.6"


def start(script, *words, **variables):
    environment = clean_environment() | {"PATH": PLACES, **variables}
    return subprocess.run(["bash", SCRIPTS / script, *map(str, words)], env=environment,
                          capture_output=True, text=True, timeout=120, check=False)


def started(tmp_path, version, *words, **variables):
    """Run mpi/train.sh with a fake mpiexec; return the arguments that it got."""
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" || echo "$@"\n')
    mpiexec.chmod(0o755)
    done = start("mpi/train.sh", *words, MPIEXEC=str(mpiexec), **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("version, hosts, ranks, binding, threads", [
    (MPICH, "", 4, "-bind-to core:4", 4), (OPEN_MPI, "", 4, "--map-by slot:PE=4 --bind-to core", 4),
    (MPICH, "hostfile.mpich", 8, "-bind-to core:4", 4),
    (MPICH, "hostfile.mpich", 2, "-bind-to core:8", 8),  # both ranks on the first node
    (MPICH, "hostfile.mpich", 16, "-bind-to core:2", 2),  # more than slots: 8 a node
    (OPEN_MPI, "hostfile.openmpi", 8, "--map-by slot:PE=4 --bind-to core", 4),
    (MPICH, "", 17, "-bind-to none", 1),
    (OPEN_MPI, "", 17, "--map-by :OVERSUBSCRIBE --bind-to none", 1)])
def test_each_rank_gets_its_cores(tmp_path, version, hosts, ranks, binding, threads):
    """mpi/train.sh binds each rank to its share of 16 cores, with and without a hostfile."""
    path = hosts and str(SCRIPTS / "mpi" / hosts)
    flag = f"{'-f' if version == MPICH else '--hostfile'} {path} " if hosts else ""
    words = started(tmp_path, version, "g.h5", ranks, "--hidden", 8, CORES="16", HOSTFILE=path)
    assert words == f"{flag}{binding} -n {ranks} hpgcn train g.h5 --threads {threads} --hidden 8"


def test_binding_may_be_left_out(tmp_path):
    words = started(tmp_path, MPICH, "g.h5", 2, CORES="4", BIND="none")
    assert words == "-bind-to none -n 2 hpgcn train g.h5 --threads 2"


@pytest.mark.parametrize("script, words", [
    ("mpi/train.sh", ["g.h5"]), ("mpi/train.sh", ["g.h5", "two"]), ("mpi/train.sh", ["g.h5", "0"]),
    ("convert.sh", ["digits", "g.h5"]), ("convert.sh", ["digits", "g.h5", "-4"])])
def test_usage(script, words):
    done = start(script, *words)
    assert done.returncode == 2 and done.stderr.startswith(f"usage: scripts/{script} ")


@pytest.mark.long
def test_a_raw_graph_is_converted_partitioned_and_trained_on_two_ranks(tmp_path, forked):
    if MPIEXEC is None:
        pytest.skip("no mpiexec: pip install '.[mpi,mpich]'")
    edges = tmp_path / "ring.txt"
    edges.write_text("".join(f"{i} {(i + 1) % 40}\n" for i in range(40)))
    done = start("convert.sh", edges, tmp_path / "g.h5", 2, "--features", "random:4",
                 "--labels", "random:3", "--split", "all", METHOD="block",
                 HPGCN=f"{forked}/hpgcn")
    assert done.returncode == 0, done.stderr
    with hpgcn.load(tmp_path / "g.p2.h5") as parts:
        assert parts.offsets.size == 3

    done = start("mpi/train.sh", tmp_path / "g.p2.h5", 2, "--epochs", 2, "--out", tmp_path / "run",
                 MPIR_CVAR_ENABLE_HEAVY_YIELD="1", HPGCN=f"{forked}/hpgcn")
    assert done.returncode == 0, done.stderr
    assert "ranks x threads      2 x " in done.stdout
    assert (tmp_path / "run" / "summary.json").exists()

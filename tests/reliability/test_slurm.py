"""The Slurm script, run with fake Slurm commands, requeues a job only if the run was stopped."""
import os
import subprocess

import pytest
from checkout import ROOT

SCRIPT = ROOT / "scripts" / "slurm" / "train.sbatch"


@pytest.mark.parametrize("code, restarts, ended, requeued", [
    (0, 0, False, False), (75, 0, False, True), (75, 50, False, False), (78, 0, False, False),
    (138, 0, False, True), (75, 0, True, False)])
def test_requeue(tmp_path, code, restarts, ended, requeued):
    """A job is queued again after a checkpoint, unless Slurm ends the whole job by SIGTERM."""
    srun = "kill -TERM $PPID\n" * ended + f"exit {code}"
    for name, text in {"hpgcn": "", "srun": srun, "scontrol": ""}.items():
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@" >> log\n{text}\n')
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(["bash", SCRIPT, "g.h5", "--hidden", "8"], timeout=30, check=False, env={
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SLURM_NTASKS": "8",
        "SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": str(restarts)})
    assert done.returncode == code
    partition, train, *rest = (tmp_path / "log").read_text().splitlines()
    assert partition == "hpgcn partition g.h5 -k 8 -o g.p8.h5"
    assert train.endswith("hpgcn train g.p8.h5 --threads 2 --out run-17 --resume "
                          "--checkpoint-every 100 --hidden 8")
    assert rest == ["scontrol requeue 17"] * requeued

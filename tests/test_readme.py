"""Every command of the README, word for word, in a fresh clone outside of the tree: what a newcomer types works."""
import gzip
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import clean_environment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FENCED = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PYTHON = FENCED.findall(README)
COMMANDS = re.findall(r"(?:^    .*\n)+", FENCED.sub("", README), re.MULTILINE)
NO_INDEX = re.compile(r"No matching distribution|Could not find a version|connection|No module named (ensurepip|venv)")
STAND_INS = {"module": 'echo "$@" >&2'}  # commands of a cluster
GPU = "--device cuda", "--update-on cuda"  # 69 where there is none


def block(words):
    """Return the block of commands that holds some words."""
    found, = (text for text in COMMANDS if words in text)
    return found


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of what git tracks, or would, without anything built; and the environment of somebody who works in it."""
    folder = tmp_path_factory.mktemp("newcomer") / "hpgcn"
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True,
                            check=False)
    if listed.returncode:  # no checkout: what an sdist holds
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".venv*", "build", "*.egg-info", "__pycache__"))
    for name in filter(None, listed.stdout.decode().split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    (folder.parent / "bin").mkdir()
    for name, script in STAND_INS.items():
        path = folder.parent / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def run(clone):
    """A function that runs a line of bash in a folder, and returns the finished process."""
    environment = {key: value for key, value in clean_environment().items()
                   if key not in ("VIRTUAL_ENV", "PYTHONPATH") and not key.startswith("PYTEST_")}
    environment |= {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "PYTHON": getattr(sys, "_base_executable", sys.executable),
                    "PATH": f"{clone / '.venv' / 'bin'}:{clone.parent / 'bin'}:{os.environ['PATH']}"}

    def run(line, cwd=clone, **more):
        return subprocess.run(["bash", "-c", line], cwd=cwd, env=environment | more, capture_output=True, text=True,
                              timeout=1800, check=False)

    run.environment = environment
    return run


@pytest.fixture(scope="module")
def installed(clone, run):
    """The clone after the first of the two commands, which makes its environment."""
    done = run("scripts/demo.sh")
    if done.returncode and NO_INDEX.search(done.stderr):
        pytest.skip(f"no package index: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def collected(installed, run):
    """The second command, which brings what tests need; here it only collects them: this test is one of them."""
    return run("scripts/test.sh", PYTEST_ADDOPTS="--collect-only")


@pytest.fixture(scope="module")
def work(clone, run, collected):
    """A folder with what the README's commands read."""
    done = run(block("pip install '.[mpi").strip())
    assert done.returncode == 0, done.stderr
    folder = clone.parent / "work"
    folder.mkdir()
    rng = np.random.default_rng(0)
    n, classes = 600, 8
    labels = rng.integers(0, classes, n)
    edges = rng.integers(0, n, (4000, 2))
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1)  # no vertex is left out
    with gzip.open(folder / "edges.txt.gz", "wt") as file:
        file.writelines(f"{u} {v}\n" for u, v in [*ring, *edges])
    np.save(folder / "X.npy", rng.standard_normal((n, 64)).astype(np.float32))
    np.save(folder / "y.npy", labels)
    return folder


def test_the_two_commands(installed, collected):
    assert [line.strip().split()[0] for line in block("scripts/demo.sh").splitlines()] \
        == ["scripts/demo.sh", "scripts/test.sh"]
    assert "test accuracy" in installed.stdout
    assert collected.returncode == 0, collected.stdout[-2000:] + collected.stderr
    assert "all tests passed" in collected.stdout


def test_your_own_graph_then_python(work, run):
    lines = [*block("hpgcn convert edges.txt.gz").splitlines(), "hpgcn partition graph.h5 -k 4",
             *block("--device cuda").splitlines()]
    for line in lines:
        done = run(line, work)
        allowed = (0, 69) if any(words in line for words in GPU) else (0,)
        assert done.returncode in allowed, line + done.stderr
        assert "Traceback" not in done.stderr
    assert (work / "run.html").stat().st_size > 10_000

    given = ("import numpy as np, scipy.sparse as sp\n"
             "X, y = np.load('X.npy'), np.load('y.npy')\n"
             "A = sp.random_array((600, 600), density=0.02, rng=np.random.default_rng(0))\n"
             "train, val, test = np.arange(300), np.arange(300, 450), np.arange(450, 600)\n")
    for number, text in enumerate(PYTHON):
        shutil.rmtree(work / "run", ignore_errors=True)
        (work / f"script{number}.py").write_text(given + text)
        done = run(f"mpiexec -n 4 python script{number}.py", work)
        assert done.returncode == 0, text + done.stderr


def test_a_run_that_is_stopped_and_goes_on(work, run):
    start, stop = (line.strip() for line in block("kill -USR1").splitlines())
    shutil.rmtree(work / "run", ignore_errors=True)
    run("hpgcn partition graph.h5 -k 8 --overwrite", work)
    with subprocess.Popen(["bash"], cwd=work, env=run.environment, stdin=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as shell:
        shell.stdin.write(start + "\n")
        shell.stdin.flush()
        metrics = work / "run" / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size) and shell.poll() is None:
            time.sleep(0.05)
        shell.stdin.write(f"{stop}\nwait $!\nexit $?\n")
        shell.stdin.close()
        assert shell.wait() == 75
    done = run(start.removesuffix("&"), work)
    assert done.returncode == 0, done.stderr


def test_clusters(work, run, clone):
    for line in block("module load").splitlines():
        done = run(line, clone)
        assert done.returncode == 0, line + done.stderr
    for line in block("--bind-to numa").splitlines():
        done = run(line, work)
        assert done.returncode == 0, line + done.stderr


def test_no_block_is_left_out():
    words = ("scripts/demo.sh", "pip install '.[mpi", "hpgcn convert edges.txt.gz", "--device cuda", "kill -USR1",
             "module load", "--bind-to numa")
    assert sorted(map(block, words)) == sorted(COMMANDS)

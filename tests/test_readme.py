"""Every command of the README, word for word, in a fresh clone: what a newcomer types works."""
import gzip
import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import clean_environment
from test_packaging import NOT_TRACKED, ROOT

README = (ROOT / "README.md").read_text()
FENCED = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCRIPTS = FENCED.findall(README)
COMMANDS = re.findall(r"(?:^    .*\n)+", FENCED.sub("", README), re.MULTILINE)
NO_INDEX = re.compile(r"No matching distribution|Could not find a version|connection|"
                      r"No module named (ensurepip|venv)")
NEEDS_GPU = "--device cuda", "--update-on cuda"


def block(words):
    """Return the lines of the block of commands that holds some words."""
    text, = (text for text in COMMANDS if words in text)
    return [line.strip() for line in text.splitlines()]


def test_no_block_is_left_out():
    words = ("scripts/demo.sh", "pip install '.[mpi", "hpgcn convert edges.txt.gz",
             "--device cuda", "kill -USR1", "module load", "--bind-to numa")
    assert len(COMMANDS) == len(words) and all(map(block, words))


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A copy of what git tracks, or would; nothing is built. Beside it a cluster's `module`."""
    folder = tmp_path_factory.mktemp("newcomer") / "hpgcn"
    shutil.copytree(ROOT, folder, ignore=NOT_TRACKED)
    module = folder.parent / "bin" / "module"
    module.parent.mkdir()
    module.write_text('#!/bin/sh\necho "$@" >&2\n')
    module.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def environment(clone):
    kept = {key: value for key, value in clean_environment().items()
            if key not in ("VIRTUAL_ENV", "PYTHONPATH")
            and not key.startswith(("PYTEST_", "COVERAGE_"))}
    return kept | {
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "PYTHON": getattr(sys, "_base_executable", sys.executable),
        "PATH": f"{clone / '.venv' / 'bin'}:{clone.parent / 'bin'}:{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def run(clone, environment):
    def run(line, cwd=clone, allowed=(0,), **variables):
        done = subprocess.run(["bash", "-c", line], cwd=cwd, env=environment | variables,
                              capture_output=True, text=True, timeout=1800, check=False)
        assert done.returncode in allowed, f"{line}\n{done.stdout[-2000:]}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def tried(run):
    """What the first commands print: of the tests, of which this is one, they print the names."""
    demo, *tests = block("scripts/demo.sh")
    try:
        outputs = [run(demo)]
    except AssertionError as error:
        if not NO_INDEX.search(str(error)):
            raise
        pytest.skip(f"no package index: {error}")
    return outputs + [run(line, PYTEST_ADDOPTS="--collect-only") for line in tests]


@pytest.fixture(scope="module")
def work(clone, run, tried):
    run("\n".join(block("pip install '.[mpi")))
    folder = clone.parent / "work"
    folder.mkdir()

    rng = np.random.default_rng(0)
    n = 600
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1)  # no vertex is left out
    edges = rng.integers(0, n, (4000, 2))
    with gzip.open(folder / "edges.txt.gz", "wt") as file:
        file.writelines(f"{u} {v}\n" for u, v in [*ring, *edges])
    np.save(folder / "X.npy", rng.standard_normal((n, 64)).astype(np.float32))
    np.save(folder / "y.npy", rng.integers(0, 8, n))
    return folder


@pytest.mark.long
def test_the_first_commands(tried):
    demo, *tests = tried
    assert "test accuracy" in demo
    assert all("all tests passed" in output for output in tests)


@pytest.mark.long
def test_your_own_graph_then_python(work, run):
    lines = [*block("hpgcn convert edges.txt.gz"), "hpgcn partition graph.h5 -k 4",
             *block("--device cuda")]
    for line in lines:
        needs_gpu = any(words in line for words in NEEDS_GPU)
        run(line, work, allowed=(0, 69) if needs_gpu else (0,))
    assert (work / "run.html").stat().st_size > 10_000

    given = ("import numpy as np, scipy.sparse as sp\n"
             "X, y = np.load('X.npy'), np.load('y.npy')\n"
             "A = sp.random_array((600, 600), density=0.02, rng=np.random.default_rng(0))\n"
             "train, val, test = np.split(np.arange(600), [300, 450])\n")
    of_pyg = ("import torch, torch_geometric as pyg\n"
              "pairs = torch.randint(600, (2, 3000))\n"
              "data = pyg.data.Data(x=torch.randn(600, 64), edge_index=pairs,\n"
              "                     y=torch.arange(600) % 8)\n"
              "data.train_mask = torch.arange(600) < 300\n"
              "data.val_mask = ~data.train_mask\n"
              "model = pyg.nn.GraphSAGE(64, 16, 2, 8)\n")
    for number, text in enumerate(SCRIPTS):
        shutil.rmtree(work / "run", ignore_errors=True)
        with_pyg = "data.adj_t" in text
        (work / f"script{number}.py").write_text((of_pyg if with_pyg else given) + text)
        run(f"mpiexec -n {1 if with_pyg else 4} python script{number}.py", work)


@pytest.mark.long
def test_a_run_that_is_stopped_and_goes_on(work, run, environment):
    start, stop = block("kill -USR1")
    shutil.rmtree(work / "run", ignore_errors=True)
    run("hpgcn partition graph.h5 -k 8 --overwrite", work)

    with subprocess.Popen(["bash"], cwd=work, env=environment, stdin=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as shell:
        shell.stdin.write(start + "\n")
        shell.stdin.flush()
        metrics = work / "run" / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size) and shell.poll() is None:
            time.sleep(0.05)
        shell.stdin.write(f"{stop}\nwait $!\nexit $?\n")
        shell.stdin.close()
        assert shell.wait() == 75
    run(start.removesuffix("&"), work)


@pytest.mark.long
def test_clusters(work, run, clone):
    for words, folder in (("module load", clone), ("--bind-to numa", work)):
        for line in block(words):
            run(line, folder)

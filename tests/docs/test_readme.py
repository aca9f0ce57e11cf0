"""Every command of the README works in a fresh clone.

Commands that set up or install run word for word, and so does the demo. Those of MPI
that are a process for each rank run on 2 ranks. Others are given to `hpgcn` in this
process, ranks included, and training ends after a few epochs. The demo has installed
hpgcn, so that its second installation is left to --product.
"""
import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from checkout import NOT_TRACKED, ROOT, SETUP
from commands import clean_environment, succeed
from commands import run as in_process
from graphs import make
from lent_packages import lend

import hpgcn

README = (ROOT / "README.md").read_text()
FENCED = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FIRST, OF_PYG = FENCED.findall(README)  # OF_PYG is run by test_coming_from.py
CLUSTERS = (ROOT / "docs" / "how-to" / "clusters.md").read_text()
NO_INDEX = re.compile(r"No matching distribution|Could not find a version|connection|"
                      r"No module named (ensurepip|venv)")
NEEDS_GPU = "--device cuda", "--update-on cuda"
FEW = "--epochs 3"
# collect a part of the tests and run none
COLLECTED = "--collect-only --ignore-glob=*/test_[!c]*.py"


def blocks(page):
    """Return the indented blocks of a page as texts."""
    return re.findall(r"(?:^    .*\n)+", FENCED.sub("", page), re.MULTILINE)


def block(words, page=README):
    """Return the lines of the block of commands that contains `words`."""
    text, = (text for text in blocks(page) if words in text)
    return [line.strip() for line in text.splitlines()]


def bare(line):
    """Remove the comment of a command, and add a small number of epochs if it trains."""
    command = line.partition("  #")[0].partition(" # ")[0].rstrip()
    few = "hpgcn train" in command and "--epochs" not in command
    return f"{command} {FEW}" if few else command


def on_two(line):
    """Replace the ranks and parts of an MPI command by two: each rank is a process of seconds."""
    return re.sub(r"-n \d+", "-n 2", re.sub(r"\.p\d+\.h5", ".p2.h5", line))


def call(line, cwd):
    """Run an hpgcn command in this process, on local ranks if it starts with `mpiexec -n`."""
    words = shlex.split(bare(line))
    ranks = []
    if words[0] == "mpiexec":
        ranks = ["--ranks", words[2]]
        words = words[3:]
    needs_gpu = any(each in line for each in NEEDS_GPU)
    done = in_process(*words[1:], *ranks, cwd=cwd)
    assert words[0] == "hpgcn"
    assert done.returncode in ((0, 69) if needs_gpu else (0,)), f"{line}\n{done.stderr}"


def test_no_block_is_left_out():
    words = ("scripts/demo.sh", "pip install '.[mpi", "hpgcn convert edges.txt.gz",
             "--goal cheapest", "--dry-run    # what", "kill -USR1", "--device cuda")
    assert len(blocks(README)) == len(words) and all(map(block, words))
    assert len(blocks(CLUSTERS)) == 2


def test_the_readme_fits_a_screen():
    lines = README.splitlines()
    assert len(lines) <= 150 and max(map(len, lines)) <= 110


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """Copy the source tree as a fresh clone.

    A fake `module` command of a cluster lies beside it.
    """
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
        "PIP_NO_COMPILE": "0",  # no bytecode of what is never imported; pip takes 0 for a yes
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
def compiled():
    """Compile kernels before MPI ranks run, whose waits would include the compilation."""
    for ranks, c, settings in ((4, 10, {"hidden": 32}), (2, 8, {})):
        result = hpgcn.train(make(n=200, f=64, c=c), hpgcn.Config(epochs=1, **settings),
                             ranks=ranks)
        assert hpgcn.predict(make(n=200, f=64, c=c), result, ranks=ranks)


@pytest.fixture(scope="module")
def lent(request, clone, run):
    """Make the clone's environment with links to the packages that the demo installs, and pip."""
    if request.config.option.product:
        return
    run("$PYTHON -m venv --without-pip .venv")
    script = (clone / "scripts" / "demo.sh").read_text()
    extras, = re.findall(r"^setup (\S+)$", script, re.MULTILINE)
    lists = [SETUP["options"]["install_requires"],
             *(SETUP["options.extras_require"][extra] for extra in extras.split(","))]
    lend(clone / ".venv", ["pip", *"".join(lists).split()])


@pytest.fixture(scope="module")
def tried(run, compiled, lent):
    """Run the README's demo, which sets up the clone; return its output."""
    try:
        return run(block("scripts/demo.sh")[0])
    except AssertionError as error:
        if not NO_INDEX.search(str(error)):
            raise
        pytest.skip(f"no package index: {error}")


@pytest.fixture(scope="module")
def work(request, clone, run, tried):
    install, doctor = block("pip install '.[mpi")
    if request.config.option.product:  # test_packaging.py and test_doctor.py cover these
        run(install)
        run(doctor)
    folder = clone.parent / "work"
    folder.mkdir()

    rng = np.random.default_rng(0)
    n = 300
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1)  # no vertex is left out
    edges = rng.integers(0, n, (2000, 2))
    with gzip.open(folder / "edges.txt.gz", "wt") as file:
        file.writelines(f"{u} {v}\n" for u, v in [*ring, *edges])
    np.save(folder / "X.npy", rng.standard_normal((n, 64)).astype(np.float32))
    np.save(folder / "y.npy", rng.integers(0, 8, n))
    for line in (block("hpgcn convert edges.txt.gz")[0], "hpgcn partition graph.h5 -k 2",
                 block("--goal cheapest")[1]):
        call(line, folder)
    return folder


@pytest.mark.long
def test_the_demo(tried):
    shown, = re.findall(r"^```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    for line in shown.splitlines():
        assert line[:20] in tried, line  # seconds differ between runs


@pytest.mark.release
def test_the_tests(tried, run):
    """The README's commands that run the tests succeed in the clone; each installs its packages."""
    for line in block("scripts/demo.sh")[1:]:
        assert "all tests passed" in run(line, PYTEST_ADDOPTS=COLLECTED)


@pytest.mark.long
def test_your_own_graph_then_several_ranks(work):
    plan, _, costs = block("--goal cheapest")
    for line in [*block("hpgcn convert edges.txt.gz")[1:], plan, costs,
                 *block("--dry-run    # what"), *block("--device cuda")]:
        call(line, work)
    assert (work / "run.html").stat().st_size > 10_000


def test_the_first_lines_of_python(capsys):
    A, X, y, masks = make(n=60).to_scipy()
    names = {"A": A, "X": X, "y": y} | masks
    exec(FIRST.replace("hidden=16", "hidden=16, epochs=3"), names)
    assert names["labels"].shape == (60,) and capsys.readouterr().out


@pytest.mark.long
def test_a_run_that_is_stopped_and_goes_on(work, run, environment):
    start, stop = map(on_two, block("kill -USR1"))

    with subprocess.Popen(["bash"], cwd=work, env=environment, stdin=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as shell:
        shell.stdin.write(start + "\n")
        shell.stdin.flush()
        metrics = work / "long" / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size) and shell.poll() is None:
            time.sleep(0.05)
        shell.stdin.write(f"{stop}\nwait $!\nexit $?\n")
        shell.stdin.close()
        assert shell.wait() == 75
    before = metrics.read_text()
    epochs = len(before.splitlines()) + 1
    words = shlex.split(start.removesuffix("&"))[4:]
    succeed(*words, "--ranks", 2, "--epochs", epochs, cwd=work)
    after = metrics.read_text()
    assert after.startswith(before) and len(after.splitlines()) == epochs


@pytest.mark.long
def test_ranks_bound_to_cores(work, run):
    for line in block("--bind-to numa", CLUSTERS):
        run(on_two(bare(line)), work)


@pytest.mark.release
def test_an_installation_on_a_cluster(tried, run):
    for line in block("module load", CLUSTERS):
        run(line)

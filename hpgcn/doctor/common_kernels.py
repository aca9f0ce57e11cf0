"""Compile the kernels of common commands ahead: `hpgcn doctor --compile`.

The commands run on a small graph, one process each, and their kernels go to the cache. A site
makes them once for all users, in the folder that HPGCN_KERNELS names. Files of several CPU
models lie side by side.
"""
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np

from hpgcn.config import Config
from hpgcn.errors import InternalError, MissingError, StorageError, UsageError
from hpgcn.kernels import ahead
from hpgcn.kernels.host import jit
from hpgcn.kernels.host.cgroups import usable_cores
from hpgcn.kernels.host.user_cache import INSIDE, SHARED, compiled_kernels, make_writable
from hpgcn.model.registry import MODELS
from hpgcn.partition import METHODS
from hpgcn.runtime.machine import child_environment
from hpgcn.runtime.progress_bar import bar
from hpgcn.sampling import SAMPLERS, smallest
from hpgcn.strategies import STRATEGIES

log = logging.getLogger("hpgcn")
N, EDGES, FEATURES = 300, 1500, 16
TABLE = ["--labels", "random:4", "--split", "random:60/20/20"]
# commands in their order, which make the files of the others
FIRST = [
    ["convert", "edges.csv", "dense.h5", "--features", f"random:{FEATURES}", "--edge-features",
     "kind", *TABLE],
    ["convert", "edges.csv", "sparse.h5", "--features", "features.mtx", *TABLE],
    ["convert", "edges.csv", "links.h5", "--features", f"random:{FEATURES}", "--links", "80/10/10",
     "--symmetrize"],
    ["train", "dense.h5", "--ranks", "2"],
]
RANKS = "8"  # grids of two and three axes have no side of 1


def commands():
    """Return the commands that are common, lists of words without `hpgcn`."""
    models = [["--model", model, *(["--aggregator", aggregator] if aggregator else [])]
              for model, _, aggregator in (name.partition("-") for name in MODELS)]
    found = [["train", "dense.h5", *words, "--ranks", ranks] for words in models for ranks in "12"]
    fields = Config.__dataclass_fields__
    choices = [(name, choice) for name in ("norm", "activation", "jump", "optimizer")
               for choice in fields[name].metadata["choices"][1:]]
    settings = [*choices, ("dtype", "float64"), ("dtype", "bf16"), ("threads", "2"),
                *(("batch", smallest(f"{name}:{kind.example}")) for name, kind in SAMPLERS.items()
                  if not kind.samples_links)]
    found += [["train", "dense.h5", "--output-layer", f"--{name}", value, "--ranks", ranks]
              for (name, value), ranks in product(settings, "12")]
    found += [["train", "sparse.h5", "--ranks", ranks] for ranks in "12"]
    found += [["train", "links.h5", "--task", "links", "--ranks", ranks, *words] for ranks in "12"
              for words in ([], ["--embedding", "16"], ["--batch", "links:64"])]
    found += [["train", "dense.h5", "--strategy", name, "--ranks", RANKS] for name in STRATEGIES]
    found += [["partition", "dense.h5", "-k", "4", "--method", name] for name in METHODS]
    return [*found, ["plan", "dense.h5"], ["generate", "rmat", "--scale", "9"]]


def compile_common(jobs):
    """Compile the kernels of common commands; return whether all of them ended well.

    `jobs` is the number of processes at a time, 0 for one a core. A line of the log says what
    was compiled, and each command that failed. Raise a StorageError if nothing can be stored.
    """
    if jobs < 0:
        raise UsageError(f"--jobs {jobs}: expected at least 1")
    root = jit.cache_root()
    shared = os.environ.pop(SHARED, "")  # children write there, and read nowhere else
    if shared:
        os.environ["NUMBA_CACHE_DIR"] = os.path.abspath(shared)
        root = Path(os.path.abspath(shared), INSIDE)
        try:
            make_writable(root)
        except OSError as error:
            raise StorageError(f"{SHARED}={shared}: {error.strerror}") from error
    os.environ.update(NUMBA_NUM_THREADS="2", HPGCN_COMPILE_WORKERS="0")
    begin, before = time.monotonic(), len(compiled_kernels(root))

    with tempfile.TemporaryDirectory() as folder:
        write_graph(Path(folder))
        for words in FIRST:
            if failure := run(folder, words):
                raise InternalError(failure)
        failures = []
        cases = [*ahead.cases(), *((run, (folder, words)) for words in commands())]
        context = multiprocessing.get_context("spawn")  # no process may inherit compiled kernels
        with context.Pool(jobs or usable_cores()) as pool, \
                bar(total=len(cases), desc=f"compiling kernels into {root}", unit="case") as shown:
            for each in pool.imap_unordered(_call, cases):
                failures += [each] if each else []
                shown.update()

    files = compiled_kernels(root)
    if shared:
        share(Path(shared), files)
    for line in sorted(set(failures)):
        log.warning(line)
    log.info("%d kernels compiled in %.0f s, %d in %s", len(files) - before,
             time.monotonic() - begin, len(files), root)
    return not any(line.startswith("failed") for line in failures)


def write_graph(folder):
    """Write the files of a graph that convert reads."""
    draws = np.random.default_rng(0)
    ends = {(u, v) for u, v in np.sort(draws.integers(0, N, (EDGES, 2)), axis=1).tolist() if u < v}
    lines = [f"{u},{v},{u % 3 / 2}" for u, v in sorted(ends)]
    (folder / "edges.csv").write_text("\n".join(["source,target,kind", *lines, ""]))
    cells = [f"{i} {draws.integers(1, FEATURES + 1)} 1" for i in range(1, N + 1)]
    head = ["%%MatrixMarket matrix coordinate real general", f"{N} {FEATURES} {N}"]
    (folder / "features.mtx").write_text("\n".join([*head, *cells, ""]))


def run(folder, words):
    """Run a command on the graph; return a line if it fails, and None otherwise."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        own = {"train": ["--epochs", "2", "--out", f"{out}/run"],
               "partition": ["-o", f"{out}/p.h5"], "generate": [f"{out}/g.h5"]}
        words = [*words, *own.get(words[0], [])]
        done = subprocess.run([sys.executable, "-P", "-m", "hpgcn", *words], cwd=folder, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              env=child_environment())
    if not done.returncode:
        return None
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("hpgcn: ")
    kind = "left out" if done.returncode == MissingError.code else "failed"
    return f"{kind}: hpgcn {' '.join(words)}: {reason}"


def share(root, files):
    """Let all users read the files, and the folders from `root` down to them."""
    for path in files:
        path.chmod(0o644)
    for path in [root, *(each for each in root.rglob("*") if each.is_dir())]:
        path.chmod(0o755)


def _call(case):
    function, arguments = case
    return function(*arguments)

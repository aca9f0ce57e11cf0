"""Whether what hpgcn rests on is there and works: `hpgcn doctor`.

Whatever may crash, hang or be missing is asked in a process of its own (hpgcn.doctor.probes, hpgcn.doctor.selftest),
under a deadline; nothing else is imported here than the standard library.
"""
from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from hpgcn import __version__, machine

PROBE_SECONDS, SELFTEST_SECONDS, ENDING_SECONDS = 30, 120, 5
EXTRAS = {"mpi": "mpi,mpich", "mtkahypar": "partition", "metis": "partition", "kahypar": "kahypar"}
GIB = 1 << 30
_children = set()


class Finding(NamedTuple):
    """One line of the table.

    Status is "ok", "warn" (works, but something is missing), "slow" (no answer in time: a busy machine is no failure,
    and from here it cannot be told from one that hangs) or "fail".
    """

    name: str
    status: str
    text: str


def examine():
    """Look at everything.

    Returns
    -------
    list of Finding
    """
    launcher = find_launcher()
    probes = ("libraries", "hdf5", "mpi", "gpu", *(name for name in EXTRAS if name != "mpi"), "folder", "scratch")
    arguments = {"folder": ["files", os.getcwd()], "scratch": ["files", ""]}
    with asking(ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0))))) as pool:
        alone = pool.submit(selftest, [])
        pair = pool.submit(selftest, [launcher, "-n", "2"]) if launcher else None
        answers = {name: pool.submit(probe, name, arguments.get(name, [name])) for name in probes}
        found = [Finding("hpgcn", "ok", f"{__version__}, {Path(__file__).parents[1]}"), python(),
                 answers.pop("libraries").result(), answers.pop("hdf5").result(), mpi := answers.pop("mpi").result(),
                 told_launcher(launcher), answers.pop("gpu").result(), cores(), memory(),
                 *(answer.result() for answer in answers.values())]
        paired = pair and (mpi.status == "slow" or mpi.text.startswith("mpi4py "))
        return found + judge(alone.result(), pair.result() if paired else None)


@contextmanager
def asking(pool):
    """Within, processes are asked from the threads of a pool; whatever ends the block ends them, too."""
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        while _children:
            end(_children.pop())
        raise
    finally:
        pool.shutdown()


def table(found):
    """For people."""
    return "\n".join(f"{each.status:<4}  {each.name:<14}  {each.text}" for each in found)


def probe(name, arguments):
    """Ask hpgcn.doctor.probes; a Finding."""
    code, out, err = ask([sys.executable, "-P", "-m", "hpgcn.doctor.probes", *arguments], PROBE_SECONDS)
    try:
        status, text = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return Finding(name, *ended(code, err, PROBE_SECONDS))
    if status == "missing":
        needed = f": pip install 'hpgcn[{EXTRAS[name]}]'" if name in EXTRAS else ""
        return Finding(name, "warn" if needed or name == "gpu" else "fail", f"{text}{needed}")
    return Finding(name, status, text)


def selftest(launcher):
    """Run hpgcn.doctor.selftest; what it found, a dict, or what went wrong: a status and words."""
    code, out, err = ask([*launcher, sys.executable, "-P", "-m", "hpgcn.doctor.selftest"], SELFTEST_SECONDS)
    try:
        return json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return ended(code, err, SELFTEST_SECONDS)


def judge(alone, pair):
    """Findings of the self tests on one rank and on two; `pair` is None without a launcher or MPI."""
    if isinstance(alone, tuple):
        return [Finding("training", *alone)]
    found = [Finding("training", "ok", f"kernels for {8 * alone['vector_bytes']}-bit vectors, Numba's threads: "
                                       f"{alone['threading_layer']}")]
    if pair is None:
        return [*found, Finding("2 ranks", "warn", "not tried: no mpiexec, or no MPI")]
    if isinstance(pair, tuple):
        return [*found, Finding("2 ranks", *pair)]
    if pair["size"] != 2:
        return [*found, Finding("2 ranks", "fail", "mpiexec -n 2 started two jobs of one rank: it belongs to another "
                                                   "MPI than mpi4py")]
    equal = max(abs(a / b - 1) for a, b in zip(alone["losses"], pair["losses"])) < 1e-9
    texts = ("same losses as on one rank", f"losses {pair['losses']}, but on one rank {alone['losses']}")
    found += [Finding("2 ranks", *(("ok", texts[0]) if equal else ("fail", texts[1])))]
    equal = pair["losses"] == pair["pieces"]
    texts = (f"travel in pieces of {pair['limit'] / GIB:g} GiB; in pieces of {pair['piece']} bytes: the same bits",
             f"in pieces of {pair['piece']} bytes the losses are {pair['pieces']}, not {pair['losses']}")
    return [*found, Finding("long messages", *(("ok", texts[0]) if equal else ("fail", texts[1])))]


def find_launcher():
    """Path of mpiexec: beside this Python, else on the PATH; None if there is none."""
    return shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def told_launcher(launcher):
    """Which mpiexec is meant, and whether the shell would find another."""
    if launcher is None:
        return Finding("mpiexec", "warn", "not found: one rank only, unless the site has a launcher of its own (srun)")
    first = shutil.which("mpiexec")
    if first and os.path.realpath(first) != os.path.realpath(launcher):
        return Finding("mpiexec", "warn", f"{launcher}, but the PATH finds {first} first")
    return Finding("mpiexec", "ok", launcher if first else f"{launcher} (not on the PATH)")


def python():
    """Version and system."""
    status = "ok" if sys.version_info >= (3, 11) else "fail"
    return Finding("python", status, f"{platform.python_version()}, {platform.system()} {platform.machine()}, "
                                     f"{sys.executable}")


def cores():
    """Cores that this process may use, and what the container leaves of them."""
    allowed, total, quota = len(os.sched_getaffinity(0)), os.cpu_count() or 1, machine.cpu_quota()
    text = f"{allowed} of {total} usable; P ranks on this node take max(1, {allowed} / P) threads each"
    if quota is not None and quota < allowed:
        return Finding("cores", "warn", f"{text}; the container gives only {quota:g}: use --threads")
    return Finding("cores", "ok", text)


def memory():
    """What can still be given."""
    free = machine.available_memory()
    return Finding("memory", "ok" if free > GIB else "warn", f"{free / GIB:.1f} GiB available")


def version(name):
    """Of an installed package, or "none"."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def ask(command, seconds):
    """Run a process under a deadline; (code, standard output, standard error), code None if it did not end."""
    environment = {**machine.child_environment(), "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
                   "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, errors="replace", env=environment, start_new_session=True)
    except OSError as error:
        return 1, "", f"{command[0]}: {error.strerror}"
    _children.add(child)
    try:
        out, err = child.communicate(timeout=seconds)
        return child.returncode, out, err
    except subprocess.TimeoutExpired:
        end(child)
    finally:
        _children.discard(child)
    try:
        return None, *child.communicate(timeout=ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        return None, "", ""


def end(child):
    """End a process and those that it started: in order, then by force."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(ENDING_SECONDS)


def ended(code, err, seconds):
    """How a process ended that gave no answer: a status, and words."""
    if code is None:
        return "slow", (f"no answer within {seconds} s: the machine is busy (load {os.getloadavg()[0]:.0f} on "
                        f"{os.cpu_count()} cores), or it hangs; look again when less else runs")
    lines = [line.strip() for line in err.splitlines() if any(map(str.isalpha, line))]
    last = -1 if "Traceback" in err else 0
    told = next((line for line in lines if line.startswith("hpgcn: ")), lines[last] if lines else "")
    how = f"ended with code {code}"
    return "fail", f"{how}: {told[:200]}" if told else how

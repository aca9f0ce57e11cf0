"""Check the software that hpgcn needs: `hpgcn doctor`.

Probes that may crash, hang or lack a library run in a process of their own, under a
deadline (hpgcn.doctor.probes, hpgcn.doctor.selftest). Only the standard library is
imported here.
"""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from hpgcn import __version__
from hpgcn.kernels.host.cgroups import cpu_quota, memory_domains, usable_cores
from hpgcn.kernels.host.pools import start_pool
from hpgcn.kernels.host.user_cache import INSIDE, SHARED, compiled_kernels
from hpgcn.runtime import launcher as launching
from hpgcn.runtime import machine, text_table
from hpgcn.runtime.advice import install_command

PROBE_SECONDS = 30
SELFTEST_SECONDS = 120
ENDING_SECONDS = 5
EXTRAS = {"mpi": "mpi,mpich", "mtkahypar": "partition", "metis": "partition", "kahypar": "kahypar"}
ENVIRONMENT = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
               "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
GIB = 1 << 30
_children = set()


class Finding(NamedTuple):
    """One line in the table of `hpgcn doctor`."""

    name: str
    # "slow": no answer in time; no failure, since one that hangs looks like a busy
    # machine
    status: str  # "ok", "warn" (works, but something is missing), "slow" or "fail"
    text: str


def examine():
    launcher = find_launcher()
    arguments = {"libraries": ["libraries"], "hdf5": ["hdf5"], "mpi": ["mpi"], "gpu": ["gpu"],
                 "mtkahypar": ["mtkahypar"], "metis": ["metis"], "kahypar": ["kahypar"],
                 "folder": ["files", os.getcwd()], "scratch": ["files", ""]}

    # training runs while the probes do
    with asking(start_pool(max(2, usable_cores()))[0]) as pool:
        train = partial(pool.submit, answer, SELFTEST_SECONDS, "selftest")
        alone = train()
        pair = train(launcher=[launcher, "-n", "2"]) if launcher else None
        futures = {name: pool.submit(probe, name, words) for name, words in arguments.items()}

        # report in a fixed order
        findings = [Finding("hpgcn", "ok", f"{__version__}, {Path(__file__).parents[1]}"), python()]
        for name, future in futures.items():
            findings.append(future.result())
            if name == "mpi":
                has_mpi = findings[-1].status == "slow" or findings[-1].text.startswith("mpi4py ")
                findings.append(describe_launcher(launcher))
            elif name == "gpu":
                findings += [cores(), memory(), *shared_kernels()]

        return findings + judge(alone.result(), pair.result() if pair and has_mpi else None,
                                launching.copies_refused())


@contextmanager
def asking(pool):
    """Context manager for a pool whose threads run processes.

    An exception in the block ends these processes.
    """
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        while _children:
            end(_children.pop())
        raise
    finally:
        pool.shutdown()


def table(findings):
    rows = [(finding.status, finding.name, finding.text) for finding in findings]
    return text_table.table(rows, left=range(3), widths=(4, 14))


def probe(name, arguments):
    status, text = answer(PROBE_SECONDS, "probes", *arguments)
    if status != "missing":
        return Finding(name, status, text)
    if name in EXTRAS:
        text += f": {install_command(EXTRAS[name])}"
    return Finding(name, "warn" if name in EXTRAS or name == "gpu" else "fail", text)


def answer(seconds, module, *arguments, launcher=()):
    """Run a module of hpgcn.doctor.

    Return the JSON that it prints, or a status and a text if it prints none.
    """
    command = [*launcher, sys.executable, "-P", "-m", f"hpgcn.doctor.{module}", *arguments]
    code, out, err = ask(command, seconds)
    try:
        return json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        return no_answer(code, err, seconds)


def judge(alone, pair, refused=""):
    """Return the Findings on the self tests of one rank and of two ranks.

    `pair` is None without mpiexec or MPI. `refused` is the result of `copies_refused`.
    """
    # one rank
    if isinstance(alone, tuple):
        return [Finding("training", *alone)]
    text = f"kernels for {8 * alone['vector_bytes']}-bit vectors"
    findings = [Finding("training", "ok", text)]

    # two ranks: no answer, or other losses
    if pair is None:
        pair = ("warn", "not tried: no mpiexec, or no MPI")
    elif isinstance(pair, dict) and pair["size"] != 2:
        pair = ("fail", "mpiexec -n 2 started two jobs of one rank: it belongs to a different MPI "
                        "library than mpi4py")
    if isinstance(pair, tuple):
        return [*findings, Finding("2 ranks", *pair)]
    status, text = "ok", "same losses as on one rank; messages of 1 MiB arrive"
    if refused:
        text += f", without copies between processes ({refused})"
    if max(abs(a / b - 1) for a, b in zip(alone["losses"], pair["losses"])) >= 1e-9:
        status, text = "fail", f"losses {pair['losses']}, but on one rank {alone['losses']}"
    findings.append(Finding("2 ranks", status, text))

    # messages cut into pieces
    pieces = f"in pieces of {pair['piece']} bytes"
    status, text = "ok", f"sent in pieces of {pair['limit'] / GIB:g} GiB; {pieces}: the same bits"
    if pair["losses"] != pair["pieces"]:
        status, text = "fail", f"{pieces} the losses are {pair['pieces']}, not {pair['losses']}"
    return [*findings, Finding("long messages", status, text)]


def find_launcher():
    """Find mpiexec beside this Python, else on the PATH. Return None if it is missing."""
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    return shutil.which("mpiexec", path=os.pathsep.join(folders))


def describe_launcher(launcher):
    """Return a Finding on the mpiexec in use.

    If the shell would find another mpiexec, the text names that one too.
    """
    if launcher is None:
        return Finding("mpiexec", "warn", "not found: only one rank, unless this cluster has its "
                                          "own launcher (srun)")
    first = shutil.which("mpiexec")
    if first and os.path.realpath(first) != os.path.realpath(launcher):
        return Finding("mpiexec", "warn", f"{launcher}, but {first} is first on the PATH")
    return Finding("mpiexec", "ok", launcher if first else f"{launcher} (not on the PATH)")


def python():
    status = "ok" if sys.version_info >= (3, 11) else "fail"
    words = (platform.python_version(), f"{platform.system()} {platform.machine()}", sys.executable)
    return Finding("python", status, ", ".join(words))


def shared_kernels():
    """Return a Finding on the kernels of all users in a list, which is empty without them."""
    folder = os.environ.get(SHARED)
    if not folder:
        return []
    count = len(compiled_kernels(Path(folder, INSIDE)))
    text = f"{SHARED}={folder}: {count} compiled kernels"
    return [Finding("kernels", "ok", text) if count else
            Finding("kernels", "warn", f"{text}; `hpgcn doctor --compile` makes them")]


def cores():
    """Return a Finding on cores and the CPU time limit of control groups."""
    allowed = usable_cores()
    text = (f"{allowed} of {os.cpu_count() or 1} usable; P ranks on this node use max(1, {allowed} "
            "/ P) threads each")
    quota = cpu_quota()
    if quota is not None and quota < len(os.sched_getaffinity(0)):
        text += f"; control groups limit this process to the time of {quota:g}"
    domains = memory_domains()
    if len(domains) < 2:
        return Finding("cores", "ok", text)
    sizes = ", ".join(str(len(each)) for each in domains)
    return Finding("cores", "warn", (
        f"{text}; {len(domains)} NUMA domains of {sizes} cores: one rank would span them, and read "
        f"memory of another domain; start {len(domains)} ranks or a multiple, which stay in their "
        "domains"))


def memory():
    free = machine.available_memory()
    return Finding("memory", "ok" if free > GIB else "warn", f"{free / GIB:.1f} GiB available")


def version(name):
    """Return the version of an installed package, or "none"."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def ask(command, seconds):
    """Run a process.

    Return its exit code (None after a timeout), standard output and standard error.
    """
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", env={**machine.child_environment(), **ENVIRONMENT},
            start_new_session=True)
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

    # the process was ended: use the output so far
    try:
        return None, *child.communicate(timeout=ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        return None, "", ""


def end(child):
    """End a process and its children: first with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(ENDING_SECONDS)


def no_answer(code, err, seconds):
    """Return status and text for a process without a result.

    The process ended, or its time was over.
    """
    if code is None:
        return "slow", (f"no answer within {seconds} s: the machine is busy (load "
                        f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores), or it hangs; try "
                        "again when the machine is less busy")
    lines = [line.strip() for line in err.splitlines() if any(map(str.isalpha, line))]
    ours = [line for line in lines if line.startswith("hpgcn: ")]
    if ours:
        lines = ours
    elif "Traceback" in err:
        lines.reverse()
    reason = f": {lines[0][:200]}" if lines else ""
    return "fail", f"ended with code {code}{reason}"

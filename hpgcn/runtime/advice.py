"""Commands that messages recommend to a user."""

import os
import re
import shlex
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

DRIVER = "/proc/driver/nvidia"  # exists where a GPU can be used
CPU_TORCH = "https://download.pytorch.org/whl/cpu"


def install_command(extras: str) -> str:
    """Return the pip command that installs the packages of some extras, such as "mpi,mpich".

    It names the packages themselves. Without metadata of an installed hpgcn it names
    the extras, which pip reads in the source folder. Without a GPU it names the index of
    PyTorch for CPUs, because PyTorch from PyPI brings gigabytes of libraries for GPUs.
    """
    try:
        listed = requires("hpgcn") or []
    except PackageNotFoundError:
        listed = []
    packages = []
    for requirement in listed:
        package, _, marker = requirement.partition(";")
        extra = re.search(r"""extra == ["']([^"']+)["']""", marker)
        if extra and extra[1] in extras.split(","):
            packages.append(shlex.quote(package.strip()))
    of_cpus = any(each.strip("'").startswith("torch") for each in packages)
    if of_cpus and not os.path.exists(DRIVER):
        packages.append(f"--extra-index-url {CPU_TORCH}")
    return " ".join(["pip install", *(packages or [f"'.[{extras}]'"])])


def resume_command(graph: Path | str, out: Path | str, ranks: int | str,
                   processes: int | None = None) -> str:
    """Return the command line that resumes a run.

    It has no launcher if `ranks` is "unknown". `processes` is the number of processes that
    the ranks are divided among, by default one for each.
    """
    graph, out = (shlex.quote(os.fspath(path)) for path in (graph or "GRAPH", out))
    command = f"hpgcn train {graph} --out {out} --resume"
    if ranks in (1, "unknown"):
        return command
    processes = processes or int(ranks)
    local = int(ranks) // processes
    launcher = f"mpiexec -n {processes} " * (processes > 1)
    return f"{launcher}{command}" + f" --ranks {local}" * (local > 1)

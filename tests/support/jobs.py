"""Start jobs under mpiexec, kill them, and look for their processes."""
import contextlib
import os
import subprocess
import time
from pathlib import Path

from checkout import ROOT
from commands import clean_environment

OPENMPI = Path(os.environ.get("HPGCN_OPENMPI_VENV", ROOT / ".venv-openmpi"))


class Launcher:
    """An mpiexec and its Python; `run` waits for a job's end, `start` does not."""

    def __init__(self, folder):
        self.folder, self.started = folder, []
        self.is_openmpi = (folder / "prterun").exists()
        self.environment = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
                            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
        if os.geteuid() == 0:
            root = "OMPI_ALLOW_RUN_AS_ROOT"
            self.environment |= {root: "1", f"{root}_CONFIRM": "1"}

    def command(self, *args, ranks=2):
        """Return the command that starts hpgcn on ranks.

        They are equal, or there is one for each tuple in `args`.
        """
        program = [str(self.folder / "python"), "-m", "hpgcn"]
        parts = [(1, part) for part in args] if isinstance(args[0], tuple) else [(ranks, args)]
        words = [str(self.folder / "mpiexec")]
        for count, part in parts:
            words += ["-n", str(count), *program, *map(str, part), ":"]
        return words[:-1]

    def start(self, *args, ranks=2, **environment):
        variables = {**clean_environment(), **self.environment, **environment}
        process = subprocess.Popen(self.command(*args, ranks=ranks), text=True, env=variables,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started.append(process)
        return process

    def run(self, *args, ranks=2, **environment):
        """Run hpgcn on `ranks` ranks; return (exit code, standard error)."""
        process = self.start(*args, ranks=ranks, **environment)
        _, err = process.communicate(timeout=100)
        return process.returncode, err


@contextlib.contextmanager
def launching(folder):
    found = Launcher(folder)
    yield found
    for process in found.started:
        process.kill()
        process.communicate()


def processes(word):
    """Return the ids of living processes whose command line contains `word`."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def none_left(word, seconds=30):
    """Return whether all processes with `word` in their command line end within `seconds`."""
    end = time.monotonic() + seconds
    while processes(word):
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True

"""Run of a command as a whole process, with its seconds, CPU seconds and peak memory.

The system counts the memory of a process's parent for it until another program begins in it. So
this file is a program of its own, which is small: it starts the command and prints the numbers.
"""

import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of a unit of ru_maxrss


class Cost(NamedTuple):
    """The cost of a process and of those that it waited for.

    `peak_bytes` is that of the largest process.
    """

    seconds: float
    cpu_s: float
    peak_bytes: int


def measured(command, environment=None):
    """Run `command`, a list of words; return its Cost and the text that it printed.

    Raise RuntimeError with the end of its output if it fails.
    """
    process = subprocess.run([sys.executable, "-S", __file__, *map(str, command)],
                             stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                             env=environment)
    if process.returncode:
        text = (process.stdout + process.stderr).strip()
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {process.returncode}: "
                           f"{text[-500:]}")
    numbers = process.stderr.splitlines()[-1]
    return Cost(**json.loads(numbers)), process.stdout


def main(command):
    """Run a command, print its Cost as the last line of stderr, and return its exit code."""
    begin = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - begin
    numbers = Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * UNIT)
    print(json.dumps(numbers._asdict()), file=sys.stderr)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

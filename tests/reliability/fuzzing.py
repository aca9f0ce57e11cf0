"""Run fuzz_worker.py, and restart it after each case that ended its process."""
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

WORKER = Path(__file__).with_name("fuzz_worker.py")
SUPPORT = WORKER.parents[1] / "support"
MOST_FAILURES = 5  # failures of one call


def fuzz(kinds, seed, count, first=0):
    """Run cases first..first + count - 1 of each kind.

    Return (Counter of outcomes by kind, failures).

    A worker that failed adds nothing to the counters. Its failure has the case and the
    end of the output.
    """
    outcomes, failures = {kind: Counter() for kind in kinds}, []
    paths = str(SUPPORT), os.environ.get("PYTHONPATH")
    # address space is limited
    environment = {**os.environ, "MALLOC_ARENA_MAX": "2", "NUMBA_NUM_THREADS": "2",
                   "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    stop = first + count
    while first < stop and len(failures) < MOST_FAILURES:
        worker = subprocess.run(
            [sys.executable, WORKER, ",".join(kinds), str(seed), str(first), str(stop - first)],
            capture_output=True, text=True, errors="replace", env=environment, check=False)
        last = (worker.stdout.splitlines() or [""])[-1]
        if worker.returncode == 0:
            for kind, counts in json.loads(last).items():
                outcomes[kind].update(counts)
            break
        said = worker.stderr.strip()[-1500:]
        failures.append(f"{last or 'start'}: exit code {worker.returncode}: {said}")
        if not last:
            break
        first = int(last.split()[-1]) + 1
    return outcomes, failures

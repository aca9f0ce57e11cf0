"""Damaged inputs by the thousand: no crash, no hang, no wrong data; 1 if a case failed.

    .venv/bin/python scripts/soak_fuzz.py [--count 2000] [--seed 0] [--only stored,texts,loose]

It prints a table. `--count` files of each group: stored (HDF5), texts (edge lists, matrices and
archives, plain and gzip: compared with slow readers), loose (inputs without checksums: refused in
one line, or read). A failure names its case, to be run alone by
    .venv/bin/python tests/reliability/fuzz_worker.py KIND SEED NUMBER 1
"""
import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "reliability"))

from fuzz_files import LOOSE, STORED, TEXTS
from fuzzing import fuzz

GROUPS = {"stored": STORED, "texts": TEXTS, "loose": tuple(LOOSE)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000,
                        help="files of each group (default: 2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, separated by commas")
    args = parser.parse_args()
    failures = []
    for group in args.only.split(","):
        kinds, total = GROUPS[group], Counter()
        for kind in kinds:
            outcomes, failed = fuzz([kind], args.seed, -(-args.count // len(kinds)))
            total.update(outcomes[kind])
            failures += failed
            print(f"{group:<8} {kind:<22} {told(outcomes[kind])}", flush=True)
        print(f"{group:<8} {'all ' + str(total.total()):<22} {told(total)}", flush=True)
    for failure in failures:
        print(failure)
    print(f"{len(failures)} cases failed")
    return 1 if failures else 0


def told(outcomes):
    """Return a description of outcomes.

    The number of inputs that were read, and refused with each exit code.
    """
    return ", ".join(f"{'read' if key == 'read' else 'exit ' + key} {outcomes[key]}"
                     for key in sorted(outcomes))


if __name__ == "__main__":
    sys.exit(main())

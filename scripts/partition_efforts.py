"""Print the table of methods and efforts in docs/partitioning.md: rows sent, and seconds.

    python scripts/partition_efforts.py GRAPH.h5 ... -k 64,512 [--methods best,graph:kaminpar]

Seconds are those of the clock, then those of all processors.
"""
import argparse
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from hpgcn import store
from hpgcn.partition import make_partition
from hpgcn.partition.effort import EFFORTS
from hpgcn.partition.method_table import WITHOUT_EFFORT


def main(arguments=None):
    """Partition each graph by each method and effort; print a line of the table for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs", nargs="+", type=Path)
    parser.add_argument("-k", default="64", help="numbers of parts (default: 64)")
    parser.add_argument("--methods", default="best,cover,stream,block",
                        help="METHOD or METHOD:ENGINE, separated by commas")
    parser.add_argument("--efforts", default=",".join(EFFORTS))
    args = parser.parse_args(arguments)

    print("| graph, k | method | effort | rows | rows max | messages | imbalance | s | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in args.graphs:
        with store.load(path) as source:
            graph = source.read()
        for k in map(int, args.k.split(",")):
            for method in args.methods.split(","):
                efforts = ["default"] if method in WITHOUT_EFFORT else args.efforts.split(",")
                for effort in efforts:
                    cells = measured(graph, k, method, effort)
                    print(f"| {path.stem}, {k} | {cells} |", flush=True)


def measured(graph, k, method, effort):
    """Return the cells of a partition, once kernels are compiled; an engine may follow a
    method after a colon.
    """
    method, _, engine = method.partition(":")
    begun, used = time.perf_counter(), cpu_seconds()
    made = make_partition(graph, k, method=method, effort=effort, engine=engine or None,
                          rcm=False)
    seconds, cpu = time.perf_counter() - begun, cpu_seconds() - used
    counted = made.statistics
    title = f"{made.title}, {engine}" if engine else made.title
    cells = [title, made.effort or "-", f"{counted['volume']:,}", f"{counted['volume_max']:,}",
             f"{counted['messages']:,}", f"{counted['imbalance_nnz']:.1%}", f"{seconds:.1f}",
             f"{cpu:.1f}"]
    return " | ".join(cells)


def cpu_seconds():
    """Return the seconds that all processors spent on this process and its children."""
    return sum(use.ru_utime + use.ru_stime for use in map(getrusage, (RUSAGE_SELF,
                                                                      RUSAGE_CHILDREN)))


if __name__ == "__main__":
    main()

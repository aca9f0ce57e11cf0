"""Print the table of methods and efforts in docs/partitioning.md: rows sent, and seconds.

    python scripts/partition_efforts.py GRAPH.h5 ... -k 64,512 [--methods best,graph:kaminpar]

Seconds are those of the clock, then those of all processors. Each partition is made in
a process of its own. One that takes more of the processor than --limit is ended.
"""
import argparse
import contextlib
import multiprocessing
import resource
import signal
import time
from pathlib import Path

from hpgcn import store
from hpgcn.errors import InternalError
from hpgcn.partition import make_partition
from hpgcn.partition.effort import EFFORTS
from hpgcn.partition.method_table import METHODS


def main(arguments=None):
    """Partition each graph by each method and effort; print a line of the table for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graphs", nargs="+", type=Path)
    parser.add_argument("-k", default="64", help="numbers of parts (default: 64)")
    parser.add_argument("--methods", default="best,cover,stream,block",
                        help="METHOD or METHOD:ENGINE, separated by commas")
    parser.add_argument("--efforts", default=",".join(EFFORTS))
    parser.add_argument("--limit", type=int, default=300, metavar="SECONDS",
                        help="seconds of the processor of a partition (default: 300)")
    args = parser.parse_args(arguments)

    print("| graph, k | method | effort | rows | rows max | messages | imbalance | s | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in args.graphs:
        for k in map(int, args.k.split(",")):
            for method in args.methods.split(","):
                efforts = args.efforts.split(",") if METHODS[method].effort else ["default"]
                for effort in efforts:
                    cells = measure_within(args.limit, path, k, method, effort)
                    print(f"| {path.stem}, {k} | {cells} |", flush=True)


def measure_within(limit, path, k, method, effort):
    """Return the cells of a partition that another process makes.

    Its engine may follow the method after a colon. Both processes may take `limit`
    seconds of the processor each.
    """
    context = multiprocessing.get_context("spawn")  # a fork would share threads and their locks
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(target=measure, args=(sender, limit, path, k, method, effort))
    worker.start()
    sender.close()

    # the system ends a process that exceeds the limit
    cells = over_limit(limit, method, effort)
    with contextlib.suppress(EOFError):
        cells = receiver.recv()
    worker.join()
    if worker.exitcode not in (0, -signal.SIGXCPU):
        raise RuntimeError(f"{path}: {method}, {effort}: exit code {worker.exitcode}")
    return cells


def over_limit(limit, method, effort):
    """Return the cells of a partition that takes longer than the limit."""
    return " | ".join([method.replace(":", ", "), effort, *["-"] * 5, f"> {limit}"])


def measure(sender, limit, path, k, method, effort):
    """Send the cells of a partition."""
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    with store.load(path) as source:
        graph = source.read()
    name, _, engine = method.partition(":")
    begun, used = time.perf_counter(), cpu_seconds()
    try:
        made = make_partition(graph, k, method=name, effort=effort, engine=engine or None,
                              rcm=False)
    except InternalError as error:
        if signal.strsignal(signal.SIGXCPU) not in str(error):
            raise
        sender.send(over_limit(limit, method, effort))
        return
    seconds, cpu = time.perf_counter() - begun, cpu_seconds() - used

    counted = made.statistics
    title = f"{made.title}, {engine}" if engine else made.title
    cells = [title, made.effort or "-", f"{counted['volume']:,}", f"{counted['volume_max']:,}",
             f"{counted['messages']:,}", f"{counted['imbalance_nnz']:.1%}", f"{seconds:.1f}",
             f"{cpu:.1f}"]
    sender.send(" | ".join(cells))


def cpu_seconds():
    """Return the seconds that all processors spent on this process and its children."""
    uses = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


if __name__ == "__main__":
    main()

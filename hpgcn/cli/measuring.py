"""What `hpgcn bench` does: see `hpgcn.cli.commands`."""
import dataclasses
import json
import sys
from pathlib import Path

from hpgcn.cli import several
from hpgcn.cli.output import given, say, show, started
from hpgcn.config import Config
from hpgcn.errors import UsageError, printable
from hpgcn.runtime import machine


def bench(args):
    """Measure this machine, the kernels or a training epoch against its limits."""
    threads = Config(threads=args.threads).threads
    threads = threads or (1 if args.starved else machine.default_threads())
    machine.limit_threads(threads)
    from hpgcn import bench, comm

    ranks = comm.world() if args.what == "machine" else comm.SerialComm()
    if not args.threads and ranks.size > 1:
        threads = machine.default_threads()  # MPI knows the ranks of this node
    ranks.assert_same(started(args), "command line")
    report = bench.run(args.what, graphs=args.graphs, widths=args.widths, threads=threads,
                       scale_down=args.scale_down, repeats=args.repeats, seed=args.seed,
                       graph=args.graph, ranks=args.ranks, epochs=args.epochs,
                       starved=args.starved, reset=args.reset, comm=ranks)
    if ranks.rank == 0:
        show(json.dumps(report) if args.json else bench.table(report))


def accuracy(args):
    """Seconds and epochs until training by batches is as accurate as full batch; PyG beside."""
    config = Config(**given(args, [entry.name for entry in dataclasses.fields(Config)
                                   if entry.name in args and entry.name not in ("graph", "batch")]))
    threads = config.threads or machine.default_threads()
    machine.limit_threads(threads)
    from hpgcn.bench import accuracy as measured
    from hpgcn.bench import table
    from hpgcn.errors import require
    from hpgcn.runtime.atomic import atomic_write, refuse_existing, writing

    files = [Path(args.folder) / f"accuracy.{kind}" for kind in ("json", "png")] \
        if args.folder else []
    if files:
        require("matplotlib", "plot", "a picture")
        with writing(args.folder):
            files[0].parent.mkdir(parents=True, exist_ok=True)
        for file in files:
            refuse_existing(file, args.overwrite)
    if args.peer_python and not args.peers:
        raise UsageError("--peer-python: give --peers, too")
    report = measured.measure(
        args.graph, config.replace(threads=threads), args.batch or (), target=args.target,
        seeds=several.parse_numbers("--seeds", args.seeds), margin=args.margin,
        seconds=args.seconds, peer=args.peers and (args.peer_python or sys.executable))
    if files:
        from benchmarks.accuracy_plot import picture

        atomic_write(files[0], json.dumps(report), overwrite=args.overwrite)
        atomic_write(files[1], picture(report), overwrite=args.overwrite)
    show(json.dumps(report) if args.json else table(report))
    if not args.json:
        say(args, *(f"wrote {printable(file)}" for file in files))


def drift(args):
    """Losses and accuracy of training on rows of 16 bits, with those of float32 beside them."""
    config = Config(**given(args, [entry.name for entry in dataclasses.fields(Config)
                                   if entry.name in args and entry.name != "graph"]))
    threads = config.threads or machine.default_threads()
    machine.limit_threads(threads)
    from hpgcn.bench import drift as measured
    from hpgcn.bench import table

    report = measured.measure(args.graph, config.replace(threads=threads),
                              several.parse_numbers("--seeds", args.seeds))
    show(json.dumps(report) if args.json else table(report))

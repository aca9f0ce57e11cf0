"""The functions of the commands, called with parsed arguments.

The docstring of each function is its help text. Slow imports are delayed until a
command runs.
"""

import dataclasses
import functools
import json
import os
from pathlib import Path

from hpgcn.cli import planning, run_flags
from hpgcn.cli.data_arguments import parse_degrees, refuse_flags
from hpgcn.cli.local_ranks import ranks_for
from hpgcn.cli.output import given, launch_signature, print_text, print_unless_quiet
from hpgcn.config import PLAN_FIELDS, SETTINGS, Config, read_settings, settings_of_run
from hpgcn.errors import UsageError, printable
from hpgcn.runtime import files, launcher, machine
from hpgcn.runtime.text_table import label_list


def compiles(command):
    """Make a command log the compilation of kernels, because that delays its first run."""
    @functools.wraps(command)
    def run(args):
        from hpgcn.training.compile.warmup import compiling

        with compiling(not args.quiet):
            return command(args)
    return run


def writes(*outputs):
    """Make a command refuse to read a file that its output would replace.

    `outputs` are names of arguments, or functions of the arguments that return a path.
    """
    def decorate(command):
        @functools.wraps(command)
        def run(args):
            paths = [output(args) if callable(output) else getattr(args, output)
                     for output in outputs]
            with files.replaced(*paths):
                return command(args)
        return run
    return decorate


@writes("out")
@compiles
def convert(args):
    """Convert a graph from any known format to HDF5."""
    from hpgcn.datasets import convert
    from hpgcn.datasets.convert_options import ConvertOptions

    options = {entry.name: getattr(args, entry.name)
               for entry in dataclasses.fields(ConvertOptions)}
    notes = convert.convert(args.source, args.out, args.format, compress=args.compress,
                            overwrite=args.overwrite, order=args.order, memory=args.memory,
                            **options)
    print_unless_quiet(args, *notes, f"wrote {printable(args.out)}")


@writes("out")
@compiles
def generate(args):
    """Generate a graph with features and labels, or an edge list."""
    from hpgcn import store
    from hpgcn.datasets.generators import generate

    text = args.out.endswith(".txt")
    if not text:
        store.check_suffix(args.out, ".txt")
    store.refuse_existing(args.out, args.overwrite)
    options = {"classes": args.classes, "seed": args.seed, "memory": args.memory,
               "overwrite": args.overwrite, **given(args, ("scale", "edge_factor"))}
    if args.kind == generate.BTER:
        options["degrees"] = parse_degrees(args)
    else:
        refuse_flags(args)
    if text:
        generate.write_edge_list(args.kind, args.out, **options)
    else:
        notes = generate.write(args.kind, args.out, features=args.features, order=args.order,
                               separation=args.separation, **options)
        print_unless_quiet(args, *notes)
    print_unless_quiet(args, f"wrote {printable(args.out)}")


def _partition_path(args):
    return args.out or f"{Path(args.graph).with_suffix('')}.p{args.k}.h5"


@writes(_partition_path)
@compiles
def partition(args):
    """Assign the vertices to ranks and write the graph in that order."""
    from hpgcn import partition as parts
    from hpgcn import store

    # refuse an output that cannot be written before the work begins
    out = _partition_path(args)
    vectors = (".npy", ".txt", f".part.{args.k}")
    vector = out.endswith(vectors)
    if not vector:
        store.check_suffix(out, *vectors)
    if not args.compare:
        store.refuse_existing(out, args.overwrite)
    elif args.out or args.parts:
        raise UsageError("--compare writes no file: remove --out and --parts")

    # refuse arguments of other methods
    names = parts.METHODS if args.compare == "all" else (args.compare or args.method).split(",")
    sampled = {name: getattr(args, name) for name in ("batch", "theta", "delta")}
    parts.check_sampled(("given",) if args.parts else names, sampled)

    with store.load(args.graph, memory=args.memory) as source:
        from hpgcn.cli import partitioning

        partitioning.partition_file(args, source, out, vector, names, sampled)


@writes("plot")
@compiles
def plan(args):
    """Forecast messages, memory and seconds, without training."""
    print_text(planning.answer(args, given(args, PLAN_FIELDS)))


def inspect(args):
    """Describe a file, a run directory or a checkpoint."""
    from hpgcn.cli.inspect_paths import describe

    print_text(describe(args.file, verify=args.verify))


def train(args):
    """Train a model on one rank or on several."""
    # settings: those of the run that goes on, then the file, then flags
    settings = {**(read_settings(args.config) if args.config else {}),
                **given(args, SETTINGS),
                "graph": os.path.abspath(args.graph)}
    grid = run_flags.parse_runs(args)
    if args.resume:
        run = grid.first(settings.get("out") or "")
        settings = {**settings_of_run(run, settings), **settings}

    # libraries read the number of threads when they are imported
    config = Config(**settings)
    machine.limit_threads(config.threads or machine.default_threads())
    from hpgcn import comm, store
    from hpgcn.runtime import faults
    from hpgcn.training import run, sweep
    from hpgcn.training.files import run_directory

    # refuse unknown names before MPI starts
    grid.configs(config)
    world = comm.world(config.comm_timeout, device=config.updates_on)
    threads = config.threads or machine.default_threads()  # MPI counts the ranks on this node

    # validate on all ranks together
    world.assert_same(launch_signature(args, dataclasses.asdict(config)), "command line")
    with world.collective_errors():
        faults.requested_fault()  # refused now, if it makes no sense
        started = ranks_for(world, args, config)
        if args.resume and not config.out:
            raise UsageError("--resume needs --out RUN, the run directory to continue")
        source = store.load(args.graph, verify=not args.no_verify, cached=not config.memory)
    with source:
        with world.collective_errors():
            grid = grid.of(source.header)
            source.header.check_split(grid.last_split(config.split_index), source.path)
        if args.dry_run:  # it needs no features and no labels, and trains nothing
            text = planning.dry_run(args, source, config, started)
            if world.rank == 0:
                print_text(text)
            return

        # choose the run directories
        if not config.out:
            name = source.header.name + launcher.task_suffix()
            config = config.replace(out=world.bcast(run_directory.free_name(name)))
        configs = grid.configs(config.replace(threads=threads))
        with world.collective_errors():
            if world.rank == 0 and not args.resume:
                for each in configs:
                    if not grid:
                        run_directory.refuse_existing_run(each.out, args.overwrite)
                    run_directory.refuse_inputs(each.out, args.config, each.class_weight)

        # train, and print on rank 0
        options = {"progress": not args.quiet, "overwrite": args.overwrite}
        if grid:
            found = sweep.train_all(source, grid, configs, world, started, **options)
            text = json.dumps(found.to_json()) if args.json else run_flags.summary(
                found, args, world.size)
        else:
            found = run.train(source, configs[0], resume=config.out if args.resume else None,
                              **options, **started)
            text = json.dumps(found) if args.json else table(found, config.batch)
    if world.rank == 0:
        print_text(text)

    # end together
    faults.begin(world.rank, 0)
    faults.point("end")
    world.barrier()  # MPI_Finalize has no deadline


def table(summary, batch=Config.batch):
    from hpgcn.setting_words import TARGET_METRICS, score

    metric = summary.get("metric", "accuracy")
    values = {"metric": metric, **summary, "test": score(summary["test_acc"], metric),
            "validation": score(summary["best_val_acc"], metric),
            "out": printable(summary["out"]),
            "called": "predicted" if batch == Config.batch else "expected"}
    others = [name for name in TARGET_METRICS if f"test_{name}" in summary and name != metric]
    shown = ", ".join(f"{name} {score(summary[f'test_{name}'], name)}" for name in others)
    rows = [("test {metric}", "{test} at epoch {best_epoch} (validation {validation})"),
            *[("test, other metrics", shown)] * bool(others),
            ("ranks x threads", "{ranks} x {threads}, strategy {strategy}"),
            *((f"{what} per epoch", f"{{sent_{what}_per_epoch:,}} sent, "
               f"{{predicted_{what}_per_epoch:,}} {{called}}") for what in ("bytes", "messages")),
            ("seconds per epoch", "{epoch_s_median:.4g} (set-up {setup_s:.3g})"),
            ("results", "{out}/summary.json, metrics.jsonl, model.h5")]
    return label_list([[text.format(**values) for text in row] for row in rows], width=19)


def _predictions_path(args):
    run = Path(args.model)
    name = "scores.csv" if args.pairs or args.top else "predictions.h5"
    return args.out or str((run if os.path.isdir(run) else run.parent) / name)


@writes(_predictions_path)
def predict(args):
    """Predict labels, probabilities and embeddings of all vertices, or of some."""
    # libraries read the number of threads when they are imported
    config = Config(threads=args.threads, **given(args, ("memory", "scratch", "gpu_memory")))
    machine.limit_threads(config.threads or machine.default_threads())
    from hpgcn import comm, store
    from hpgcn.runtime.progress_log import progress_log
    from hpgcn.training import inference
    from hpgcn.training.compile.warmup import compiling, set_threads
    from hpgcn.training.files import run_directory

    # validate on all ranks together
    run = Path(args.model)
    follow = args.out is not None  # a link in the run directory is replaced, not written through
    out = _predictions_path(args)
    ranks = comm.world(device=args.device)
    if ranks.size > 1:
        set_threads(config.threads)  # MPI counts the ranks on this node
    ranks.assert_same(launch_signature(args), "command line")
    with ranks.collective_errors():
        write = store.prediction_writer(out)
        if args.top is not None and args.top < 1:
            raise UsageError(f"--top {args.top}: expected a number from 1")
        if args.library:
            from hpgcn.interop.torch import predict_pyg

            if args.pairs or args.top or args.top_targets:
                raise UsageError(f"--from {args.library}: has no decoder for --pairs or --top")
            apply = functools.partial(predict_pyg, comm=ranks, activation=args.activation)
            trained_on, why = "", ""
        else:
            if args.activation != "own":
                raise UsageError(f"--activation {args.activation}: only for a model of --from; a "
                                 "run has its own activation")
            started = ranks_for(ranks, args, config)
            apply = functools.partial(inference.predict, memory=config.memory,
                                      scratch=config.scratch, gpu_memory=config.gpu_memory,
                                      **started)
            trained_on = run_directory.read_run(run)[1]["graph"]
            why = "trained on a graph in memory; "
        store.refuse_existing(out, args.overwrite, follow)
        path = args.graph or trained_on
        if not path:
            raise UsageError(f"{run}: {why}name the graph to predict on")
        source = store.load(path)
        request = _read_request(args, source) if ranks.rank == 0 else None
    pairs, asked, targets = ranks.bcast(request)
    sources = asked if args.top else None
    if pairs or args.top or targets:
        apply = functools.partial(apply, pairs=pairs, top=args.top or 0, top_targets=targets,
                                  vertices=sources)

    # predict, then write on rank 0
    shown = not args.quiet
    with source, compiling(shown, ranks.rank), progress_log(shown and ranks.rank == 0):
        found = inference.choose_results(
            source, ranks, lambda: apply(source, run, device=args.device),
            vertices=None if args.top else asked,
            probabilities=args.probabilities)
    with ranks.collective_errors():
        if ranks.rank == 0:
            origin = {"graph": source.header.name, "model": str(run)}
            write(out, found, origin, overwrite=args.overwrite, follow=follow)
            print_unless_quiet(args, f"wrote {printable(out)}")


def _read_request(args, source):
    """Return the pairs, vertices and targets in files, None if not given; refuse unknown ids."""
    import numpy as np

    from hpgcn.datasets.tables.id_lists import read_list, read_pairs
    from hpgcn.graphs.named_vertices import find_vertices

    found = []
    for file, read in ((args.pairs, read_pairs), (args.vertices, read_list),
                       (args.top_targets, read_list)):
        ids, places = read(file, source.ids()) if file else (None, [])
        found.append(ids)
        if ids:
            width = np.size(ids) // len(ids)
            find_vertices(source, np.ravel(ids), [f"{file}: {place}" for place in places
                                                  for _ in range(width)].__getitem__)
    return found


@writes("out")
def export(args):
    """Write a trained model for PyG or as ONNX, or its learned rows with ids."""
    from hpgcn.runtime.atomic import refuse_existing
    from hpgcn.training.files import run_directory

    refuse_existing(args.out, args.overwrite)
    run_directory.check_files(args.model)  # --overwrite replaces none of them
    {"pyg": export_pyg, "onnx": export_onnx, "embedding": export_rows}[args.to](args)


def export_pyg(args):
    """Write the state_dict of a run, and print the code that loads it."""
    from hpgcn.interop import torch

    state, code = torch.export_pyg(Path(args.model), file=args.out)
    torch.save_state_dict(args.out, state, overwrite=args.overwrite)
    print_unless_quiet(args, code.rstrip())


def export_onnx(args):
    """Write the matrices of a run as ONNX, and print the work that remains."""
    from hpgcn.interop import onnx

    model, text = onnx.export_onnx(Path(args.model))
    onnx.save_onnx(args.out, model, overwrite=args.overwrite)
    print_unless_quiet(args, text.rstrip())


def export_rows(args):
    """Write the learned rows of a run with the ids of their vertices."""
    from hpgcn.store.learned_row_files import write_learned_rows, writer_of
    from hpgcn.training.saved.learned_rows import read_learned

    writer_of(args.out)
    ids, rows = read_learned(Path(args.model))
    write_learned_rows(args.out, ids, rows, overwrite=args.overwrite)
    print_unless_quiet(args, f"wrote {printable(args.out)}")


@writes("html", "breakdown")
def report(args):
    """Compare runs, or those of a sweep, in a table; with --html or --breakdown in pictures."""
    from hpgcn import report

    if args.html and args.breakdown and files.is_same(args.html, args.breakdown):
        raise UsageError(f"--html and --breakdown {args.html}: give two names")
    if args.html:
        report.check_output(args.html)
    if args.breakdown:
        report.check_breakdown(args.breakdown)
    paths, folders = report.expanded(args.runs)
    runs = report.read_runs(paths)
    found = report.sweep_of(runs) if folders else None
    reference = report.read_runs([args.speedup])[0] if args.speedup else None
    if found:
        print_text(found.text(), "")
    print_text(report.table(runs, reference))
    if args.breakdown:
        report.write_breakdown(runs, args.breakdown)
        print_unless_quiet(args, f"wrote {printable(args.breakdown)}")
    if args.html:
        report.write(runs, args.html, found)
        print_unless_quiet(args, f"wrote {printable(args.html)}")


def bench(args):
    """Measure the speed of this machine, or tune products for it."""
    threads = Config(threads=args.threads).threads or machine.default_threads()
    machine.limit_threads(threads)
    from hpgcn import bench, comm

    ranks = comm.world() if args.what == "machine" else comm.SerialComm()
    if not args.threads and ranks.size > 1:
        threads = machine.default_threads()  # MPI counts the ranks on this node
    ranks.assert_same(launch_signature(args), "command line")
    numbers = {name: getattr(args, name) for name in bench.Settings._fields if name in args}
    settings = bench.Settings(**{**numbers, "threads": threads})
    report = bench.run(args.what, settings, ranks)
    if ranks.rank == 0:
        print_text(json.dumps(report) if args.json else bench.format_report(report))


def doctor(args):
    """Check that MPI, HDF5, threads and GPUs work."""
    if launcher.launched_rank():
        return 0  # under a launcher only one process checks
    if args.compile:
        from hpgcn.doctor.common_kernels import compile_common

        return 0 if compile_common(args.jobs) else 70
    from hpgcn import doctor

    found = doctor.examine()
    print_text(json.dumps([each._asdict() for each in found]) if args.json else doctor.table(found))
    return 70 if any(each.status == "fail" for each in found) else 0

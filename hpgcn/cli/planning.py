"""Output of `hpgcn plan`: a comparison of cases, or of models with --sweep."""
import functools
import json

from hpgcn.config import Config
from hpgcn.errors import UsageError, agreed
from hpgcn.setting_words import OF_STRATEGY


def answer(args, settings):
    """Return the text of `hpgcn plan`; write its picture if requested.

    `settings` are the fields of hpgcn.Config that the command line sets.
    """
    from hpgcn.planning.answers import calibration, model_sweep, report
    from hpgcn.planning.answers.options import Options
    from hpgcn.report import comparison
    from hpgcn.report import sweep_plot as panels
    from hpgcn.report.recorded_runs import read_run

    # refuse a picture that cannot be drawn
    if args.plot:
        comparison.check_picture(args.plot)
        if args.batch not in (None, Config.batch):
            raise UsageError("--plot draws seconds, which are not forecast for --batch "
                             f"{args.batch}")

    # settings: those of a measured run, then flags
    graph, run = args.graph, None
    if args.from_run is not None:
        run = read_run(args.from_run)
        known = calibration.settings_of(run)
        graph = graph or known["graph"]
        settings = {**known, **settings}
    if not (args.scratch or args.gpu_memory):
        settings = {**settings, "strategy": _words(settings)}
    sizes = _sizes(args, graph, settings)
    if graph is None and sizes is None:
        raise UsageError("plan: give GRAPH.h5, --from RUN, or --vertices N --edges N")
    if args.gpus is not None and not args.gpu_memory:
        raise UsageError(f"--gpus {args.gpus}: needs --gpu-memory")
    if args.scratch or args.gpu_memory:
        return answer_turns(args, _config_of_turns(args, settings), args.ranks, args.widths,
                            args.machine, args.gpus)
    options = Options.parse(args.ranks, args.widths, args.method, args.machine, args.memory,
                            args.goal, args.ranks_per_node, sizes, **settings)

    # scale the rates of the machine to the measured run
    if run is not None:
        options = calibration.calibrate(run, options)

    # forecast one model, or several
    if args.sweep is None:
        forecast = report.forecast(graph, options, progress=not args.quiet)
        make_figure = comparison.forecast_figure
        table = functools.partial(report.table, every=args.all)
    else:
        models = model_sweep.ModelSweep.parse(args.sweep)
        forecast = model_sweep.forecast(graph, options, models, progress=not args.quiet)
        make_figure, table = panels.sweep_figure, model_sweep.table
    if args.plot:
        comparison.plot(forecast, args.plot, make_figure)
    return json.dumps(forecast) if args.json else table(forecast)


def _words(settings):
    """Return the setting `strategy` with the words of strategies only, since all are compared."""
    from hpgcn.strategies import AUTO, CHOOSING, read_options, strategy_by_name, strategy_setting

    named = {name: settings.pop(name) for name in ("strategy", *OF_STRATEGY) if name in settings}
    options = read_options(Config(**named))
    for name in options.strategy.split("+"):
        if name not in CHOOSING:
            strategy_by_name(name)
    return strategy_setting(AUTO, options)


def dry_run(args, source, config, started):
    """Return the text of `hpgcn train --dry-run` on an open graph.

    All ranks call this together. `started` are the arguments by which ranks start, as
    from `ranks_for`.
    """
    from hpgcn.comm import in_process
    from hpgcn.planning.answers import dry_run
    from hpgcn.training.setup.placement import check_local_ranks

    if config.scratch or config.gpu_memory:
        processes = started["comm"].size if "comm" in started else 1
        ranks = None if args.ranks == 1 else str(args.ranks * processes)
        return answer_turns(args, config, ranks, gpus=processes)
    if config.batch != Config.batch:
        raise agreed(UsageError("--dry-run without --scratch forecasts full batches only: `hpgcn "
                                f"plan --batch {config.batch}` forecasts mini-batches"))
    check_local_ranks(source, args.ranks, started.get("comm"))
    report = in_process(_forecast_ranks, source=source, config=config, **started)
    return json.dumps(report) if args.json else dry_run.table(report)


def _forecast_ranks(comm, source, config):
    from hpgcn.comm import as_comm
    from hpgcn.planning.answers import dry_run
    from hpgcn.training.setup.placement import assign_rows, same_everywhere

    ranks = as_comm(comm, config.comm_timeout)
    same_everywhere(source, config, ranks)
    with assign_rows(source, ranks, config, keep=False) as placed:
        return dry_run.forecast_process(placed, config, ranks)


def answer_turns(args, config, ranks=None, widths=None, machine=None, gpus=None):
    """Return the text of a plan of ranks that take turns, or its JSON object.

    They do so on GPUs with config.gpu_memory, or in memory with files in config.scratch.
    `ranks`, `widths` and `machine` are texts of the command line, as in Options.parse.
    """
    from hpgcn.planning.answers import gpu_plan, scratch_plan
    from hpgcn.planning.answers.options import Options

    options = Options.parse(ranks, widths, machine=machine)
    given = args.graph, config, options.ranks, options.widths, options.machine
    if config.gpu_memory:
        plan, table = gpu_plan.plan_gpu(*given, 1 if gpus is None else gpus), gpu_plan.table
    else:
        plan, table = scratch_plan.plan_scratch(*given), scratch_plan.table
    return json.dumps(plan.as_dict()) if args.json else table(plan)


def _sizes(args, graph, settings):
    """Return the Header of a graph that is not there, or None without --vertices and --edges.

    UsageError for sizes beside a graph, and for settings that need its entries.
    """
    from hpgcn.planning.counts.sized_input import parse_sizes

    flags = ("vertices", "edges", "features", "classes", "directed")
    given_flags = [f"--{name}" for name in flags if getattr(args, name) not in (None, False)]
    if not given_flags:
        return None
    if graph is not None:
        raise UsageError(f"{given_flags[0]}: only without a graph, whose sizes are in its file")
    refused = {"--scratch": args.scratch, "--gpu-memory": args.gpu_memory, "--method": args.method,
               "--batch": settings.get("batch", Config.batch) != Config.batch,
               "--delay": "delay" in settings, "--node-aware": "node_aware" in settings}
    for flag in (flag for flag, given in refused.items() if given):
        raise UsageError(f"{flag}: needs a graph; sizes alone do not say which entries it has")
    return parse_sizes(args.vertices, args.edges, args.features, args.classes,
                       directed=args.directed)


def _config_of_turns(args, settings):
    """Return the Config of `hpgcn plan` with --scratch or --gpu-memory."""
    memory = "" if args.memory is None else str(args.memory)
    settings = {**settings, **({"device": "cuda"} if args.gpu_memory else {})}
    return Config(**settings, graph=args.graph or "", memory=memory, scratch=args.scratch,
                  gpu_memory=args.gpu_memory)

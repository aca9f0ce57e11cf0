"""Call a command on the ranks of a launcher, or of this process: --ranks, --nodes and --scratch."""
from hpgcn.cli import planning
from hpgcn.cli.output import print_text
from hpgcn.errors import UsageError, agreed


def call(command, world, args, config, *arguments):
    """Call `command(comm, args, config, ...)`; `world` are the ranks of the launcher.

    With --scratch the number of ranks of this process is planned, unless --ranks gives
    it. With --dry-run only the plan is printed. UsageError on all ranks of a launcher.
    """
    nodes = getattr(args, "nodes", None)
    if nodes and (args.ranks == 1 or config.scratch):
        raise agreed(UsageError(f"--nodes {nodes}: needs --ranks, without --scratch; under a "
                                "launcher MPI finds the nodes"))
    if args.ranks == 1 and not config.scratch:
        command(world, args, config, *arguments)
        return
    _check_alone(args.ranks, config.scratch, world)
    if not config.scratch:
        from hpgcn.comm import run_on_ranks
        from hpgcn.comm.nodes import parsed
        from hpgcn.training.setup.placement import check_local_ranks

        nodes = parsed(nodes, "--nodes") if nodes else None
        check_local_ranks(args.graph, args.ranks)
        run_on_ranks(command, args.ranks, args, config, *arguments, nodes=nodes)
        return

    # arrays in files
    if getattr(args, "dry_run", False):
        ranks = None if args.ranks == 1 else str(args.ranks)
        print_text(planning.answer_scratch(args, config, ranks))
        return
    from hpgcn.training.setup.scratch_run import run_with_scratch

    run_with_scratch(lambda comm, path, planned: command(comm or world, args, planned, *arguments),
                     args.graph, config, args.ranks)


def predictor(world, *, ranks, memory, scratch):
    """Return `hpgcn.predict`, on ranks of this process if `hpgcn predict` has --ranks or
    --scratch. UsageError like `call`.
    """
    from hpgcn.training.runs.inference import predict

    if ranks == 1 and not scratch:
        return predict
    _check_alone(ranks, scratch, world)
    return lambda source, run, comm, device: predict(
        source, run, ranks=ranks, device=device, memory=memory, scratch=scratch)


def _check_alone(ranks, scratch, world):
    if world.size > 1:
        flag = "--scratch" if scratch else f"--ranks {ranks}"
        raise agreed(UsageError(f"{flag}: runs ranks in one process, but a launcher started "
                                f"{world.size} processes: use one of the two"))

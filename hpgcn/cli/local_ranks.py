"""Choose between the ranks of a launcher and ranks of this process."""
from hpgcn.errors import UsageError


def ranks_for(world, args, config):
    """Return the arguments of `hpgcn.train` by which a command starts its ranks.

    They are `comm`, `ranks` and `nodes`. `world` are the ranks of the launcher, `config` the
    settings of the run. Raise a UsageError if there are several, and the command line names
    a number too.
    """
    nodes = getattr(args, "nodes", None)
    chooses = "--scratch" * bool(config.scratch) or "--gpu-memory" * bool(config.gpu_memory)
    if nodes and (args.ranks == 1 or chooses):
        raise UsageError(f"--nodes {nodes}: needs --ranks, without {chooses or '--scratch'}; under "
                         "a launcher MPI finds the nodes")
    if args.ranks == 1 and not chooses:
        return {"comm": world}
    if world.size > 1:
        flag = chooses or f"--ranks {args.ranks}"
        raise UsageError(f"{flag}: runs ranks in one process, but a launcher started "
                         f"{world.size} processes: use one of the two")
    if not nodes:
        return {"ranks": args.ranks}

    from hpgcn.comm.nodes import parsed

    return {"ranks": args.ranks, "nodes": parsed(nodes, "--nodes")}

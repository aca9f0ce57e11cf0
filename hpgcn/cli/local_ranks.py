"""The ranks of a launcher, and those of each process."""
from hpgcn.errors import UsageError


def ranks_for(world, args, config):
    """Return the arguments of `hpgcn.train` by which a command starts its ranks.

    They are `comm`, `ranks` and `nodes`. `world` are the processes of the launcher, `config`
    the settings of the run. Raise a UsageError for flags that exclude each other.
    """
    nodes = getattr(args, "nodes", None)
    chooses = "--scratch" * bool(config.scratch) or "--gpu-memory" * bool(config.gpu_memory)
    if nodes and (args.ranks == 1 or chooses or world.size > 1):
        raise UsageError(f"--nodes {nodes}: needs --ranks, without {chooses or '--scratch'}; under "
                         "a launcher MPI finds the nodes")
    if world.size > 1 and config.scratch:
        raise UsageError("--scratch: runs ranks in one process, but a launcher started "
                         f"{world.size} processes: use one of the two")
    if world.size > 1 or (args.ranks == 1 and not chooses):
        return {"comm": world, "ranks": args.ranks}
    if not nodes:
        return {"ranks": args.ranks}

    from hpgcn.comm.nodes import parsed

    return {"ranks": args.ranks, "nodes": parsed(nodes, "--nodes")}

"""Flags of `hpgcn generate` for degrees, and those that no such graph has."""
from hpgcn.errors import UsageError, setting
from hpgcn.runtime import machine

OF_DEGREES = ("degrees", "like", "scale_vertices", "scale_edges")
OF_OTHERS = ("scale", "edge_factor")


def parse_degrees(args):
    """Return the Degrees that a graph is to be made of.

    UsageError: flags of other kinds, or not one of --degrees and --like; DataError: in
    the file.
    """
    from hpgcn import store
    from hpgcn.datasets.generators.degree_distribution import degrees_of, read_degrees

    refuse(args, OF_OTHERS)
    if (args.degrees is None) == (args.like is None):
        raise UsageError(f"generate {args.kind}: give either --degrees FILE or --like GRAPH.h5")
    memory = machine.memory_budget() if args.memory is None else args.memory
    if args.like is None:
        degrees = read_degrees(args.degrees, memory)
    else:
        degrees = degrees_of(store.load(args.like, memory=memory).read(), memory)
    factors = [1.0 if factor is None else factor
               for factor in (args.scale_vertices, args.scale_edges)]
    return degrees.scaled(*factors, memory)


def refuse(args, names=OF_DEGREES):
    """Refuse flags that this kind of generated graph has no use for."""
    for name in names:
        if getattr(args, name) is not None:
            raise UsageError(f"generate {args.kind}: takes no {setting(name)}")

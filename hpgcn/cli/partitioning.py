"""The work of `hpgcn partition` on an open graph file."""
import functools
import json
import logging

from hpgcn import partition as parts
from hpgcn import store
from hpgcn.cli.output import print_text, print_unless_quiet
from hpgcn.errors import UsageError, printable
from hpgcn.graphs.validation import layer_widths, numbers
from hpgcn.partition.partition_memory import check_memory, window_bytes

log = logging.getLogger("hpgcn")


def partition_file(args, source, out, vector, names, sampled):
    """Partition an open graph by each method in `names`.

    The parts, or a `vector` of part numbers, are written. `sampled` are the arguments
    of the method stochastic.
    """
    if source.offsets is not None and not (vector or args.compare):
        raise store.in_parts_already(source.where)

    # settings of the partition
    source.header.check_split(args.split_index, source.path)
    whole = (args.compare or args.parts or args.engine or args.nodes or args.ranks_per_node
             or args.balance_train or args.nested or args.pipeline_batches)
    stored = check_memory(source.header, args.k, ["block"] if args.parts else names, args.effort,
                          args.memory, refine=not args.no_refine, stored=not whole)
    w0 = parts.dense_weight(layer_widths(args.widths)) if args.widths else args.w0
    if args.w0:
        log.warning("--w0 %d: --widths N,N computes it from the widths of a model", args.w0)
    if stored:
        made = parts.partition_stored(source, args.k, method=args.method, epsilon=args.epsilon,
                                      w0=w0, seed=args.seed, memory=args.memory, baseline=True,
                                      refine=not args.no_refine, split=args.split_index)
        _write_partition(args, source, None, made, out, vector)
        return

    graph = source.structure()
    nodes = args.nodes
    if args.ranks_per_node is not None:
        nodes = numbers("--ranks-per-node", args.ranks_per_node, args.k)
    ordered = {"rcm": not args.no_rcm, "baseline": True, "nodes": nodes}
    chosen = graph.of_split(args.split_index)
    make = functools.partial(parts.make_partition, chosen, args.k, effort=args.effort,
                             epsilon=args.epsilon, seed=args.seed, w0=w0, refine=not args.no_refine,
                             balance_train=args.balance_train, nested=args.nested,
                             pipeline_batches=args.pipeline_batches, **ordered)

    # compare methods, or make one partition
    if args.compare:
        engines = _engines(names, args.engine)
        made = {name: make(method=name, engine=engines.get(name),
                           **(sampled if name == parts.STOCHASTIC else {}))
                for name in names}
        figures = {name: partition_as_json(each) for name, each in made.items()}
        print_text(json.dumps(figures) if args.json else parts.format_statistics(made))
        return
    if args.parts:
        if args.pipeline_batches:
            raise UsageError("--pipeline-batches: does not apply to --parts")
        owners = parts.read_parts(args.parts, graph.header.num_nodes, args.k)
        made = parts.given_partition(chosen, owners, args.k, **ordered)
    else:
        made = make(method=args.method, engine=args.engine, **sampled)

    _write_partition(args, source, graph, made, out, vector)


def _engines(names, engine):
    """Return the engine of each method that takes it, a dict.

    The dict is empty without an engine. Raise a UsageError if no method in `names`
    takes it.
    """
    if engine is None:
        return {}
    takers = [name for name in names
              if name in parts.METHODS and engine in parts.METHODS[name].engines]
    if not takers:
        raise UsageError(f"engine = {engine!r}: no method of --compare {','.join(names)} takes it")
    return dict.fromkeys(takers, engine)


def _write_partition(args, source, graph, made, out, vector):
    """Write a partition, or a `vector` of part numbers, and print its statistics.

    `graph` is the structure of the source, or None if it is not in memory.
    """
    source.refuse_replaced()
    if vector:
        parts.write_parts(out, made.part, overwrite=args.overwrite)
    else:
        window = window_bytes(source.header, args.memory, stored=graph is None)
        store.write_partitioned(out, graph, made, source=source, overwrite=args.overwrite,
                                window=window)
    if args.json:
        print_text(json.dumps({"out": out, **partition_as_json(made)}))
    else:
        merges = f"merges to {', '.join(map(str, made.merges))} parts"
        print_unless_quiet(args, parts.describe(made), *[merges] * made.nested,
                           parts.format_statistics({"this": made}, brief=not args.verbose),
                           f"wrote {printable(out)}")


def partition_as_json(made):
    names = ("k", "method", "winner", "effort", "engine", "engine_version", "divided", "start",
             "seconds", "seed", "epsilon", "batch")
    nodes = {"node_sizes": list(made.node_sizes)} if made.node_sizes else {}
    return {**{name: getattr(made, name) for name in names}, **nodes, **made.statistics,
            "relative": parts.relative(made.statistics)}

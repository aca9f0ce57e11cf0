"""The partitioners behind the methods: name, package and input of each.

An engine is a function (arrays, settings) -> (part, volume), which runs in a child
process. It returns (n,) integers and the connectivity-1 that it counts itself (None if
it minimises something else). `arrays` are those of `partition_model`: offsets, pins (or
adjacent), weights, and costs of nets if they are not 1. If parts are to be improved,
they are `start`, (n,). `settings` holds k, epsilon, seed, threads and whether to be quick.
"""
import tempfile
from collections import namedtuple
from importlib import import_module

import numpy as np

from hpgcn.partition.engines.quick_preset import quick_ini

KAHYPAR_DIRECT_MAX_K = 16  # beyond, direct k-way refinement takes far longer than bisection

# KaHyPar ships no configuration, and ends the process at an incomplete one
_COMMON = """
objective=km1 seed=-1 cmaxnet=1000 vcycles=0 p-use-sparsifier=false p-detect-communities=true
p-detect-communities-in-ip=true p-reuse-communities=false p-max-louvain-pass-iterations=100
p-min-eps-improvement=0.0001 p-louvain-edge-weight=hybrid i-algo=pool i-runs=20
i-bp-algorithm=worst_fit i-bp-heuristic-prepacking=false i-bp-early-restart=true
i-bp-late-restart=true i-r-type=twoway_fm i-r-runs=-1 i-r-fm-stop=simple i-r-fm-stop-i=50 r-runs=-1
r-fm-stop=adaptive_opt r-fm-stop-alpha=1 r-fm-stop-i=350 c-t=160"""
_COARSENING = """
c-type=ml_style c-s=1 c-rating-score=heavy_edge c-rating-use-communities=true
c-rating-heavy_node_penalty=no_penalty c-rating-acceptance-criterion=best_prefer_unmatched
c-fixed-vertex-acceptance-criterion=fixed_vertex_allowed"""
_DIRECT = "mode=direct r-type=kway_fm_km1 i-mode=recursive i-technique=multi i-c-t=150"
_RECURSIVE = "mode=recursive r-type=twoway_fm i-mode=direct i-technique=flat"


def mtkahypar(arrays, settings):
    """Run Mt-KaHyPar with its deterministic preset: the same parts at any number of threads.

    If it is to be quick, with less work (`quick_preset`), from `start` if that is given.
    """
    # the configuration
    library = import_module("mtkahypar")
    run = library.initialize(settings["threads"], False)
    library.set_seed(settings["seed"])
    start = arrays.get("start")
    if settings.get("quick"):
        with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
            file.write(quick_ini(start is not None))
            file.flush()
            context = run.context_from_file(file.name)
    else:
        context = run.context_from_preset(library.PresetType.DETERMINISTIC)
    objective = library.Objective.KM1
    context.set_partitioning_parameters(settings["k"], settings["epsilon"], objective)
    context.logging = False

    # the hypergraph, and its parts
    weights = arrays["weights"]
    nets = np.split(arrays["pins"], arrays["offsets"][1:-1])
    costs = net_costs(arrays)
    graph = run.create_hypergraph(context, weights.size, len(nets), nets, weights, costs)
    if start is None:
        cut = graph.partition(context)
    else:
        cut = graph.create_partitioned_hypergraph(context, settings["k"], start)
        cut.improve_partition(context, 1)
    return np.array(cut.get_partition()), cut.km1()


def kahypar(arrays, settings):
    """Run KaHyPar: direct k-way for few parts, recursive bisection for many."""
    library = import_module("kahypar")
    k = settings["k"]
    context = library.Context()
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
        file.write(kahypar_ini(k))
        file.flush()
        context.loadINIconfiguration(file.name)

    context.setK(k)
    context.setEpsilon(settings["epsilon"])
    context.setSeed(settings["seed"])
    context.suppressOutput(True)

    weights = arrays["weights"]
    offsets = arrays["offsets"]
    graph = library.Hypergraph(weights.size, offsets.size - 1, offsets, arrays["pins"], k,
                               net_costs(arrays), weights)

    library.partition(graph, context)
    part = np.fromiter(map(graph.blockID, range(weights.size)), np.int64, weights.size)
    return part, library.connectivityMinusOne(graph)


def net_costs(arrays):
    """Return the costs of the nets, (nets,) int32; 1 each if `arrays` has no costs."""
    return arrays.get("costs", np.ones(arrays["offsets"].size - 1)).astype(np.int32)


def kahypar_ini(k):
    """Write KaHyPar's configuration for k parts, one setting per line."""
    settings = [*_COMMON.split(), *_COARSENING.split()]
    if k <= KAHYPAR_DIRECT_MAX_K:
        settings += [*_DIRECT.split(), *(f"i-{setting}" for setting in _COARSENING.split())]
    else:
        settings += _RECURSIVE.split()
    return "\n".join(settings) + "\n"


def metis(arrays, settings):
    """Run METIS through pymetis: edge cut, recursive bisection up to 8 parts, k-way beyond."""
    library = import_module("pymetis")
    # METIS hands its seed to srand, for which 0 and 1 are the same
    options = library.Options(seed=settings["seed"] + 1,
                              ufactor=max(1, round(1000 * settings["epsilon"])))
    graph = library.CSRAdjacency(arrays["offsets"], arrays["adjacent"].astype(np.int64))
    cut = library.part_graph(settings["k"], graph, vweights=arrays["weights"].astype(np.int64),
                             options=options)
    return np.array(cut.vertex_part), None


# the function, what is imported, its package, and the extra that brings it
Engine = namedtuple("Engine", "run module package extra")
ENGINES = {
    "mtkahypar": Engine(mtkahypar, "mtkahypar", "mtkahypar", "partition"),
    "kahypar": Engine(kahypar, "kahypar", "kahypar", "kahypar"),
    "metis": Engine(metis, "pymetis", "pymetis", "partition"),
}

"""The partitioners behind the methods: name, package and input of each.

An engine is a function (arrays, settings) -> (part, volume), which runs in a child
process. It returns (n,) integers and the connectivity-1 that it counts itself, or None
if it minimizes something else. `arrays` are those of `partition_model`: offsets, pins
(or adjacent), weights, and costs of nets (or edges) if they are not 1. They include
`start`, (n,), if given parts are to be improved.

`settings` are k, epsilon, seed, threads, `quick` (less work), and `sparse` (nets are
small).
"""
import tempfile
from collections import namedtuple
from importlib import import_module

import numpy as np

KAHYPAR_DIRECT_MAX_K = 16  # for more parts, direct k-way refinement takes far longer than bisection

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

# a quick Mt-KaHyPar: names and values of Mt-KaHyPar's own deterministic_preset.ini
_PRESET = """
mode=direct preset-type=deterministic deterministic=true maxnet-removal-factor=0.01
smallest-maxnet-threshold=50000 maxnet-ignore=1000 num-vcycles=0
s-use-localized-random-shuffle=false s-static-balancing-work-packages=128
p-enable-community-detection=true p-louvain-edge-weight-function=hybrid
p-louvain-min-vertex-move-fraction=0.01
p-vertex-degree-sampling-threshold=200000 p-louvain-low-memory-contraction=true
p-num-sub-rounds=16 c-type=deterministic_multilevel_coarsener c-use-adaptive-edge-size=false
c-resolve-swaps=true c-min-shrink-factor=1.01 c-max-shrink-factor=2.5 c-s=1
c-vertex-degree-sampling-threshold=200000 c-num-sub-rounds=3 c-rating-score=heavy_edge
c-rating-heavy-node-penalty=no_penalty c-rating-acceptance-criterion=best_prefer_unmatched
i-mode=rb i-use-adaptive-ip-runs=false i-perform-refinement-on-best-partitions=false
i-fm-refinement-rounds=3 i-lp-maximum-iterations=20 i-lp-initial-block-size=5
i-r-refine-until-no-improvement=false i-r-rebalancer-type=deterministic i-r-lp-type=deterministic
i-r-lp-maximum-iterations=5 i-r-sync-lp-sub-rounds=1 i-r-lp-he-size-activation-threshold=100
i-r-sync-lp-active-nodeset=true i-r-fm-type=do_nothing i-population-size=64
r-refine-until-no-improvement=false r-rebalancer-type=deterministic r-max-det-rebalancing-rounds=0
r-det-rebalancing-deadzone=0.1 r-det-rebalancing-heavy-vertex-exclusion=1.5 r-lp-type=do_nothing
r-lp-maximum-iterations=5 r-sync-lp-sub-rounds=1 r-lp-he-size-activation-threshold=100
r-sync-lp-active-nodeset=true r-jet-type=deterministic r-jet-relative-improvement-threshold=0.001
r-jet-dynamic-rounds=3 r-jet-initial-negative-gain=0.75 r-jet-final-negative-gain=0.0
r-fm-type=do_nothing r-flow-algo=do_nothing"""
SMALLEST = 160  # vertices of a part in the smallest level, as in the preset
# If parts have fewer than LEVELS times SMALLEST vertices, a V-cycle has no other levels, and moves
# almost nothing. It then coarsens to one vertex for COARSENED vertices.
LEVELS, COARSENED = 2, 4
# The settings are: vertices of a part and tries of a first partition, iterations of Jet that gain
# little, and passes that find communities. The preset has 160, 20, 8 and 5.
_CYCLE = f"c-t={SMALLEST} i-runs=20 r-jet-num-iterations=2 p-max-louvain-pass-iterations=5"
_SCRATCH = "c-t=10 i-runs=3 r-jet-num-iterations=1 p-max-louvain-pass-iterations=5"
# a first partition of small nets
_SPARSE = "c-t=40 i-runs=10 r-jet-num-iterations=4 p-max-louvain-pass-iterations=1"


def mtkahypar(arrays, settings):
    """Run Mt-KaHyPar with its deterministic preset: the same parts for any number of threads.

    With `quick` it does less work (`quick_ini`), and begins with `start` if given.
    """
    # the configuration
    library = import_module("mtkahypar")
    run = library.initialize(settings["threads"], False)
    library.set_seed(settings["seed"])
    start = arrays.get("start")
    if settings.get("quick"):
        with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
            file.write(quick_ini(start is not None, settings.get("sparse", False),
                                 arrays["weights"].size / settings["k"]))
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


def quick_ini(started, sparse=False, part_size=np.inf):
    """Return a quick configuration of Mt-KaHyPar, one setting per line.

    The preset spends half of its time on a first partition, and most of the rest on
    rounds of Jet. This configuration makes a first partition from fewer vertices. With
    `started`, it refines given parts in one V-cycle. Its rounds end after fewer
    iterations that gain little. With `sparse`, nets are small and cost little, and get
    more work. If the mean part has few vertices (`part_size`), the V-cycle ends at
    fewer vertices, so that the graph is coarsened.
    """
    work = _CYCLE if started else _SPARSE if sparse else _SCRATCH
    if started and part_size < LEVELS * SMALLEST:
        work = work.replace(f"c-t={SMALLEST}", f"c-t={max(1, int(part_size / COARSENED))}")
    return "\n".join([*_PRESET.split(), *work.split()]) + "\n"


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
                             eweights=arrays.get("costs"), options=options)
    return np.array(cut.vertex_part), None


def kaminpar(arrays, settings):
    """Run KaMinPar's context "eco" on one thread: with more, equal calls differ."""
    library = import_module("kaminpar")
    with tempfile.NamedTemporaryFile() as file:
        write_parhip(file, arrays)
        graph = library.load_graph(file.name, library.GraphFileFormat.PARHIP)
    library.reseed(settings["seed"])
    partitioner = library.KaMinPar(1, library.eco_context())
    return np.array(partitioner.compute_partition(graph, settings["k"], settings["epsilon"])), None


def write_parhip(file, arrays):
    """Write a graph in ParHIP's binary format, the only one that KaMinPar reads fast.

    All numbers are uint64:

    - a version, whose bit 0 means that edges have no weights (costs);
    - the number of vertices, and of entries;
    - for each vertex the byte of the file where its neighbors begin, and the end;
    - the neighbors;
    - the weights of vertices, then those of edges, if any.
    """
    offsets, adjacent = arrays["offsets"], arrays["adjacent"]
    begin = 8 * (3 + offsets.size)
    costs = arrays.get("costs", ())
    header = [int(len(costs) == 0), offsets.size - 1, adjacent.size]
    for numbers in (header, begin + 8 * offsets, adjacent, arrays["weights"], costs):
        file.write(np.asarray(numbers).astype(np.uint64).data)
    file.flush()


# the function, what is imported, its package, and the extra that brings it
Engine = namedtuple("Engine", "run module package extra")
ENGINES = {
    "mtkahypar": Engine(mtkahypar, "mtkahypar", "mtkahypar", "partition"),
    "kahypar": Engine(kahypar, "kahypar", "kahypar", "kahypar"),
    "metis": Engine(metis, "pymetis", "pymetis", "partition"),
    "kaminpar": Engine(kaminpar, "kaminpar", "kaminpar", "kaminpar"),
}

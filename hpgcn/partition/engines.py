"""The partitioners behind the methods: what each is called, needs and is told. Their code runs in a child process.

An engine is a function (arrays, settings) -> (part, volume): (n,) integers, and the connectivity-1 that it counts
itself (None for what minimises something else). `arrays` holds what `hpgcn.partition.model` makes: offsets, pins (or
adjacent), weights, and costs of nets where they are not 1; `settings` holds k, epsilon, seed and threads.
"""
from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import numpy as np

KAHYPAR_DIRECT_MAX_K = 16  # beyond, direct k-way refinement takes many times longer than recursive bisection

_COARSENING = {
    "c-type": "ml_style", "c-s": 1, "c-t": 160, "c-rating-score": "heavy_edge", "c-rating-use-communities": "true",
    "c-rating-heavy_node_penalty": "no_penalty", "c-rating-acceptance-criterion": "best_prefer_unmatched",
    "c-fixed-vertex-acceptance-criterion": "fixed_vertex_allowed",
}
_KAHYPAR = {
    "objective": "km1", "seed": -1, "cmaxnet": 1000, "vcycles": 0,
    "p-use-sparsifier": "false", "p-detect-communities": "true", "p-detect-communities-in-ip": "true",
    "p-reuse-communities": "false", "p-max-louvain-pass-iterations": 100, "p-min-eps-improvement": 0.0001,
    "p-louvain-edge-weight": "hybrid",
    **_COARSENING,
    "i-algo": "pool", "i-runs": 20, "i-bp-algorithm": "worst_fit", "i-bp-heuristic-prepacking": "false",
    "i-bp-early-restart": "true", "i-bp-late-restart": "true", "i-r-type": "twoway_fm", "i-r-runs": -1,
    "i-r-fm-stop": "simple", "i-r-fm-stop-i": 50,
    "r-runs": -1, "r-fm-stop": "adaptive_opt", "r-fm-stop-alpha": 1, "r-fm-stop-i": 350,
}
_KAHYPAR_DIRECT = {
    "mode": "direct", "r-type": "kway_fm_km1", "i-mode": "recursive", "i-technique": "multi",
    **{f"i-{key}": value for key, value in _COARSENING.items()}, "i-c-t": 150,
}
_KAHYPAR_RECURSIVE = {"mode": "recursive", "r-type": "twoway_fm", "i-mode": "direct", "i-technique": "flat"}


def mtkahypar(arrays, settings):
    """Mt-KaHyPar with its deterministic preset: the same parts at any number of threads."""
    library = import_module("mtkahypar")
    run = library.initialize(settings["threads"], False)
    library.set_seed(settings["seed"])
    context = run.context_from_preset(library.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(settings["k"], settings["epsilon"], library.Objective.KM1)
    context.logging = False
    offsets, weights = arrays["offsets"], arrays["weights"]
    nets = np.split(arrays["pins"], offsets[1:-1])
    graph = run.create_hypergraph(context, weights.size, len(nets), nets, weights, net_costs(arrays))
    cut = graph.partition(context)
    return np.array(cut.get_partition()), cut.km1()


def kahypar(arrays, settings):
    """KaHyPar: direct k-way for few parts, recursive bisection for many."""
    library = import_module("kahypar")
    context = library.Context()
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
        file.write(kahypar_ini(settings["k"]))
        file.flush()
        context.loadINIconfiguration(file.name)
    context.setK(settings["k"])
    context.setEpsilon(settings["epsilon"])
    context.setSeed(settings["seed"])
    context.suppressOutput(True)
    offsets, weights = arrays["offsets"], arrays["weights"]
    graph = library.Hypergraph(weights.size, offsets.size - 1, offsets, arrays["pins"], settings["k"],
                               net_costs(arrays), weights)
    library.partition(graph, context)
    part = np.fromiter(map(graph.blockID, range(weights.size)), np.int64, weights.size)
    return part, library.connectivityMinusOne(graph)


def net_costs(arrays):
    """Costs of the nets, (nets,) int32; 1 each if there are none in `arrays`."""
    nets = arrays["offsets"].size - 1
    return arrays["costs"].astype(np.int32) if "costs" in arrays else np.ones(nets, np.int32)


def kahypar_ini(k):
    """Text of KaHyPar's configuration file: the library ships none, and ends the process at an incomplete one."""
    mode = _KAHYPAR_DIRECT if k <= KAHYPAR_DIRECT_MAX_K else _KAHYPAR_RECURSIVE
    return "".join(f"{key}={value}\n" for key, value in {**_KAHYPAR, **mode}.items())


def metis(arrays, settings):
    """METIS through pymetis: edge cut, recursive bisection up to 8 parts, k-way beyond."""
    library = import_module("pymetis")
    # METIS hands its seed to srand, for which 0 and 1 are the same
    options = library.Options(seed=settings["seed"] + 1, ufactor=max(1, round(1000 * settings["epsilon"])))
    graph = library.CSRAdjacency(arrays["offsets"], arrays["adjacent"].astype(np.int64))
    cut = library.part_graph(settings["k"], graph, vweights=arrays["weights"].astype(np.int64), options=options)
    return np.array(cut.vertex_part), None


@dataclass(frozen=True)
class Engine:
    """A partitioner.

    Attributes
    ----------
    run : callable
        The function above.
    module, package, extra : str
        What is imported, the package index's name for it, and the extra of hpgcn that brings it.
    """

    run: Callable
    module: str
    package: str
    extra: str


ENGINES = {
    "mtkahypar": Engine(mtkahypar, "mtkahypar", "mtkahypar", "partition"),
    "kahypar": Engine(kahypar, "kahypar", "kahypar", "kahypar"),
    "metis": Engine(metis, "pymetis", "pymetis", "partition"),
}

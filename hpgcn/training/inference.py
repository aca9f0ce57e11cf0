"""Predict: apply a trained model to all vertices of a graph, on any number of ranks."""
from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.comm import as_comm, in_process
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError, assigned
from hpgcn.graphs.added_edges import adds_edges
from hpgcn.graphs.contents import match_names, title_targets
from hpgcn.graphs.named_vertices import find_vertices
from hpgcn.kernels.bits16 import numbers
from hpgcn.model import Model, Parameters, check_strategy
from hpgcn.model.embedding import NAME as EMBEDDING
from hpgcn.parallel.workspace import Workspace
from hpgcn.planning.answers.scratch_plan import takes
from hpgcn.runtime.device import choose
from hpgcn.runtime.disk import page_cache
from hpgcn.runtime.gpu_limits import translate_gpu_oom
from hpgcn.runtime.progress_log import set_activity
from hpgcn.store import SCALE
from hpgcn.strategies import find_strategy, read_options, without_grid
from hpgcn.training.files.run_directory import read_run
from hpgcn.training.gpu_run import in_turns, run_with_gpu_memory
from hpgcn.training.link_scores import LinkRequest
from hpgcn.training.saved.checkpoint_state import checksum
from hpgcn.training.saved.learned_rows import (
    check_ids,
    check_learned,
    rows_of_graph,
    scatter_rows,
)
from hpgcn.training.scratch_run import check_comm, run_with_scratch
from hpgcn.training.setup.placement import (
    assign_rows,
    check_local_ranks,
    opened,
    same_everywhere,
)
from hpgcn.training.setup.shard import GraphShard

log = logging.getLogger("hpgcn")

if TYPE_CHECKING:
    from mpi4py.MPI import Comm
    from numpy.typing import ArrayLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.model.spec import ModelSpec
    from hpgcn.training.files.result import Result
    from hpgcn.training.setup.placement import Placement


def predict(source: GraphSource | str | os.PathLike[str],
            run: Result | str | os.PathLike[str], comm: Comm | None = None, *,
            ranks: int = 1, device: str = "auto", memory: str = "", scratch: str = "",
            gpu_memory: str = "",
            vertices: ArrayLike | None = None, probabilities: bool = False,
            pairs: Sequence | None = None, top: int = 0,
            top_targets: ArrayLike | None = None) -> dict[str, np.ndarray] | None:
    """Apply a trained model to all vertices of a graph.

    All ranks of `comm` call this together.

    Parameters
    ----------
    source : hpgcn.Graph, hpgcn.store.StoredGraph, str or path-like
        The training graph, or another one with the same number of features; or its path.
        If features of both have names, the names must be equal, in any order.
    run : hpgcn.Result, Run, str or path
        Result of `hpgcn.train`, or another object with `weights` and `config`; or what
        `hpgcn.read_run` returned, or the path of a run directory or of its model.h5.
    comm : mpi4py communicator, optional
    ranks : int
        Number of ranks in this process, which take turns; see `hpgcn.run_on_ranks`.
    device : "auto", "cpu" or "cuda"
        Device to compute on; it may differ from that of training.
    memory, scratch : str
        Memory of the process, and the folder of arrays that do not fit it, as in
        hpgcn.Config. The number of ranks is then chosen if it is 1.
    gpu_memory : str
        Bytes of a GPU for all arrays, as in hpgcn.Config; likewise.
    vertices : (k,) array_like of int or str, optional
        Return only the rows of these vertices, in this order. They are named as the
        input calls them, as in `id`. All vertices are computed.
    probabilities : bool
        Return probabilities as well.
    pairs : k pairs of int or of str, optional
        Of a model of links, return the scores of these pairs [source, target] of ids.
    top : int
        Of a model of links, return this number of new targets with the highest scores for
        each vertex, or of `vertices`. Neither edges nor links of the graph are new.
    top_targets : (k,) array_like of int or str, optional
        Ids of the vertices that `top` chooses from, such as the products of a shop. By default
        all; a warning is logged if edges join two kinds of vertices.

    Returns
    -------
    dict or None
        On rank 0, rows in ORIGINAL order: logits (n, c); label (n,) int64, the class of
        the largest logit, or of a multi-label model (n, t) uint8, 1 where the logit is > 0
        (probability > 1/2); embedding (n, h) (the last layer's input; absent from models
        of one layer); id (n,), what the input calls each vertex; original_ids (n,) where the graph
        has them; class_names (c,) text where the model has them, or else the graph: then
        class_names[label] are the names of (n,) labels. A model of targets gives value (n, t)
        float64, in the units of the targets, and target_names (t,) text, in place of logits,
        label and class_names. A model of links gives id and embedding (n, d), the rows that its
        decoder reads; with `pairs` or `top` only source, target and score, (k,) each. A score is
        the logarithm of odds. None on the other ranks. With `probabilities` also
        probabilities (n, c) float64: softmax of the logits, or of a multi-label model the
        sigmoid of each.

    Raises
    ------
    DataError
        The graph does not suit the model, or has no vertex of that name. Other errors as
        `hpgcn.train`.

    Examples
    --------
    >>> A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))  # two triangles
    >>> y, masks = [0, 0, 0, 1, 1, 1], ([0, 3], [1, 4], [2, 5])
    >>> graph = hpgcn.Graph.from_scipy(A, np.eye(6), y, masks)
    >>> config = hpgcn.Config(hidden=4, dropout=0.0, epochs=20)
    >>> found = hpgcn.predict(graph, hpgcn.train(graph, config))
    >>> found["label"]
    array([0, 0, 0, 1, 1, 1])
    >>> found["logits"].shape
    (6, 2)
    >>> few = hpgcn.predict(graph, hpgcn.train(graph, config), vertices=[5, 0],
    ...                     probabilities=True)
    >>> few["id"], few["probabilities"].argmax(1)
    (array([5, 0]), array([1, 0]))
    """
    # a Config checks the name of the device
    config = Config(device=device, memory=memory, scratch=scratch, gpu_memory=gpu_memory)
    request = LinkRequest(pairs, top, vertices if top else None, top_targets)
    chosen = partial(choose_results, vertices=None if top else vertices,
                     probabilities=probabilities)
    turns = gpu_memory and not in_turns(comm)
    if not turns and (not scratch or comm is not None):
        check_comm(config, comm)
        check_local_ranks(source, ranks, comm)
        return in_process(_predict, comm, ranks, source, run, config, chosen, request)

    # the plan is that of a training with the settings of the run
    config = Config(**read_run(run)[1]).replace(
        out="", device=device, memory=memory, scratch=scratch, gpu_memory=gpu_memory,
        batch=Config.batch)
    if not takes(config):
        config = config.replace(strategy=Config.strategy, delay=Config.delay)

    def start(comm: Any, source: Any, config: Config) -> dict | None:
        return _predict(comm, source, run, config, chosen, request)

    if turns:
        return run_with_gpu_memory(start, source, config, comm, ranks)
    return run_with_scratch(start, source, config, ranks)


def choose_results(source: GraphSource, comm: SerialComm, predict: Callable[[], dict | None], *,
                   vertices: Any, probabilities: bool) -> dict | None:
    """Call `predict`, and return the rows of `vertices` of its result, with probabilities.

    All ranks of `comm` call this together. Unknown vertices are refused before the call.
    """
    rows = None
    with comm.collective_errors():
        if comm.rank == 0 and vertices is not None:
            rows = find_vertices(source, vertices)
    found = predict()
    with comm.collective_errors():
        if found and probabilities and "logits" not in found:
            raise UsageError(f"{assigned('probabilities', True)}: the model predicts "
                             f"{'targets' if 'value' in found else 'links'}, which have none")
        if found and rows is not None and "score" in found:
            raise UsageError(f"{assigned('vertices')}: excludes {assigned('pairs')}")
    if found is None:
        return None
    if rows is not None:
        found = {name: array if name.endswith("_names") else array[rows]
                 for name, array in found.items()}
    if probabilities:
        found["probabilities"] = shares(found["logits"], several=found["label"].ndim == 2)
    return found


def shares(logits: np.ndarray, *, several: bool) -> np.ndarray:
    """Return the softmax of logits, (n, c) float64; of `several` labels the sigmoid of each."""
    logits = logits.astype(np.float64)
    if several:
        return 1 / (1 + np.exp(-np.clip(logits, -700, 700)))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _predict(comm: Any, source: Graph | Path, run: Any, config: Config, chosen: Callable,
             request: LinkRequest) -> dict[str, np.ndarray] | None:
    """Predict like `predict`, on the device and within the memory of a Config."""
    comm = as_comm(comm)
    comm.use(choose(config.device, comm))
    with (page_cache.bypassed(config.memory),
          opened(source, comm, in_one_part=comm.size == 1) as graph):
        return chosen(graph, comm, partial(_predict_graph, comm, graph, run, config.device,
                                           request))


def _predict_graph(comm: SerialComm, source: GraphSource, run: Any, device: str,
                   request: LinkRequest) -> dict[str, np.ndarray] | None:
    """Predict like `predict`, for a graph that is already open."""
    with comm.collective_errors():
        weights, settings, attributes = read_run(run)

        # settings of the run, except those that depend on ranks and files
        replaced = {name: getattr(Config, name)
                    for name in ("aggregate_on", "update_on", "delay", "split_index")}
        named = isinstance(run, str | os.PathLike) and os.path.isdir(run)
        replaced["out"] = os.fspath(run) if named else ""
        config = Config(**{**settings, **replaced, "device": device, "prune": False})
        config = config.replace(strategy=without_grid(config))
        request.check(config.task)

        # check that the model suits the graph and the ranks
        strategy = find_strategy(read_options(config))
        name = getattr(run, "name", "the model") if hasattr(run, "weights") else run
        parameters, spec = Parameters.stored(weights, config, name)
        order, note = match_names(attributes.get("feature_names"), source.feature_names,
                                  source.where, name)
        if note and not comm.rank:
            log.warning(note)
        if source.header.num_features != spec.num_features:
            raise DataError(f"{source.header.name}: {source.header.num_features} features, "
                            f"but the model was trained on {spec.num_features}")
        learned = check_learned(weights, spec.embedding, name) if not comm.rank else None
        weights = {key: array for key, array in weights.items() if key != EMBEDDING}
        if spec.edge_width and source.header.num_edge_features != spec.edge_width:
            raise DataError(f"{source.header.name}: {source.header.num_edge_features} edge "
                            f"features, but the model was trained on {spec.edge_width}")
        class_names = (None if spec.decoder else
                       _class_names(attributes, source, spec.widths[-1], name))
        sparse = source.header.sparse_features and not spec.embedding
        spec = replace(spec, sparse_features=sparse)
        check_strategy(strategy, spec, comm.size)
        added = adds_edges(config, source)
        if added != (config.message_edges != Config.message_edges) and not comm.rank:
            log.warning("%s: no links of validation, so that messages pass along its edges only",
                        source.where)

    # all ranks must have the same graph, settings and weights
    same_everywhere(source, config, comm)
    checksums = {name: checksum(each) for name, each in weights.items()}
    comm.assert_same(checksums, "model")

    # compute; rank 0 gathers the result
    with translate_gpu_oom(comm, spec.dtype), assign_rows(source, comm, config) as placed:
        results = _infer(placed, comm, spec, parameters, order,
                         (learned, attributes, name), added_edges=added)
    if spec.decoder and not comm.rank:
        results.pop("embedding", None)  # the input of the last layer

    # put rows in ORIGINAL order, and name vertices and classes
    with comm.collective_errors():
        if comm.rank:
            return None
        vertex = results.pop("vertex")
        order = np.argsort(vertex)
        results = {name: comm.device.reordered(array, order) for name, array in results.items()}
        results["id"] = results.get("original_ids", vertex[order] + source.header.base)
        if spec.decoder:
            return request.results(source, results, spec, parameters)
    if SCALE[0] in attributes:
        return _values(results, attributes, name)
    if class_names:
        results["class_names"] = np.array(class_names)

    # take labels from the logits
    logits = results["logits"]
    if attributes.get("multilabel", source.header.multilabel) == 1:  # absent from older files
        return {**results, "label": (logits > 0).astype(np.uint8)}
    return {**results, "label": logits.argmax(1)}


def _values(results: dict[str, np.ndarray], attributes: dict[str, Any],
            where: Path | str) -> dict[str, np.ndarray]:
    """Return results with targets in the user's units in place of the logits."""
    outputs = results.pop("logits")
    mean, deviation = (attributes.get(name) for name in SCALE)
    if not np.shape(mean) == np.shape(deviation) == outputs.shape[1:]:
        raise DataError(f"{where}: attributes {' and '.join(SCALE)}: expected a number for each of "
                        f"{outputs.shape[1]} outputs")
    titles = title_targets(attributes.get("target_names"), outputs.shape[1])
    return {**results, "value": outputs * np.float64(deviation) + mean,
            "target_names": np.array(titles)}


def _class_names(attributes: dict[str, Any], source: GraphSource, width: int,
                 name: Path | str) -> tuple[str, ...] | None:
    """Return the class names of a model, or else those of the graph.

    Names of the graph are used if model and graph have the same number of classes.
    """
    own = attributes.get("class_names")
    if own and len(own) != width:
        raise DataError(f"{name}: {len(own)} class_names, but the model has {width} classes")
    names = own or source.class_names
    return names if names and len(names) == width else None


def _infer(placed: Placement, comm: SerialComm, spec: ModelSpec, parameters: Parameters,
           feature_order: np.ndarray | None, learned: tuple, *,
           added_edges: bool) -> dict[str, Any]:
    """Return the arrays of `predict`, in the order in which ranks own rows.

    `learned` are the learned rows of the run, its attributes, and its name. `added_edges` is
    that of GraphShard. "vertex" stands in
    place of "label". The arrays are on rank 0; on other ranks each of them is None.
    """
    device = comm.device
    with GraphShard(placed, spec, comm, feature_order=feature_order,
                    added_edges=added_edges) as shard:
        columns = shard.columns
        if spec.embedding:
            rows, attributes, name = learned
            with comm.collective_errors():
                if not comm.rank:
                    ids = check_ids(attributes, rows, name)
                    rows = rows_of_graph(rows, ids, shard, placed.source.where, name)
            parameters = parameters.with_rows(scatter_rows(shard, rows))
        model = Model(spec, parameters.on(device), shard.evaluated, columns,
                      Workspace(spec.row_dtype, device), shard.key)

        set_activity("computing the logits")
        logits, embedded = model.infer(shard.release_features()[1], embed=True)

        # gather rows from one rank of each row block
        arrays = {"vertex": shard.vertex}
        if embedded:
            width = spec.widths[-2]
            arrays["embedding"] = np.concatenate(
                [numbers(device.get(columns.gathered(each, width))).copy() for each in embedded],
                axis=1)
        arrays["logits"] = device.get(columns.gathered(logits, spec.widths[-1]))
        if shard.original_ids is not None:
            arrays["original_ids"] = shard.original_ids

        own = slice(None if columns.layout.column == 0 else 0)  # the others hold the same rows
        return {name: comm.gather_rows(array[own]) for name, array in arrays.items()}

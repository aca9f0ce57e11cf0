"""Prediction: a trained model applied to all vertices of a graph, on any number of ranks."""
from __future__ import annotations

import zlib

import numpy as np

from hpgcn import cost
from hpgcn.capacity import explained
from hpgcn.comm import as_comm
from hpgcn.config import Config
from hpgcn.device import choose
from hpgcn.errors import DataError
from hpgcn.model import Buffers, Model, Parameters
from hpgcn.place import as_source, same_everywhere
from hpgcn.result import Result
from hpgcn.rows import Rows
from hpgcn.rundir import read_run


def predict(source, run, comm=None, *, device="auto"):
    """Apply a trained model to all vertices of a graph; every rank of `comm` calls this together.

    Parameters
    ----------
    source : hpgcn.Graph, hpgcn.store.StoredGraph, str or path-like
        The graph trained on, or another with as many features; or its path.
    run : hpgcn.Result, str or path
        What `hpgcn.train` returned, a run directory, or its model.h5.
    comm : mpi4py communicator, optional
    device : "auto", "cpu" or "cuda"
        Where to compute, whatever the model was trained on.

    Returns
    -------
    dict or None
        On rank 0, rows in ORIGINAL order: logits (n, c); label (n,) int64, the class of the largest logit, or of a
        multi-label model (n, t) uint8, 1 where the logit is > 0 (probability > 1/2); embedding (n, h) (the last layer's
        input; absent from models of one layer); original_ids (n,) where the graph has them. None on the other ranks.
    """
    device = Config(device=device).device
    comm = as_comm(comm)
    comm.use(choose(device, comm))
    with comm.together():
        source = as_source(source)
        weights, settings, attributes = ((run.weights, vars(run.config), {}) if isinstance(run, Result)
                                         else read_run(run))
        everywhere = {"device": device, "aggregate_on": "device", "update_on": "device"}
        config = Config(**{**settings, **everywhere, "prune": False})
        parameters, widths = Parameters.stored(weights, config.dtype, config.layers, config.architecture,
                                               config.layer_norm, run)
        if source.header.num_features != widths[0]:
            raise DataError(f"{source.header.name}: {source.header.num_features} features, "
                            f"but the model was trained on {widths[0]}")
    same_everywhere(source, config, comm)
    comm.same({name: zlib.crc32(np.ascontiguousarray(array)) for name, array in weights.items()}, "model")
    step = cost.Step(widths, np.dtype(config.dtype).itemsize, source.header.sparse_features, model=config.architecture,
                     layer_norm=config.layer_norm)
    with explained(comm):
        found = _infer(source, config, comm, step, parameters)
    if comm.rank:
        return None
    order = np.argsort(found.pop("vertex"))
    found = {name: array[order] for name, array in found.items()}
    logits = found["logits"]
    if attributes.get("multilabel", source.header.multilabel) == 1:  # absent from older files
        return {**found, "label": (logits > 0).astype(np.uint8)}
    return {**found, "label": logits.argmax(1)}


def _infer(source, config, comm, step, parameters):
    """What `predict` returns, in the order of the rows that ranks own, on rank 0; None for each name elsewhere."""
    rows, widths = Rows(source, config, comm, step), step.widths
    with rows:
        found = {"vertex": rows.vertex}
        device = comm.device
        model = Model(step, parameters.on(device), rows.evaluated, rows.columns, Buffers(rows.dtype, device), rows.key)
        logits, last = model.infer(rows.features(rows.evaluated), embed=True)
        if config.layers > 1:
            found["embedding"] = device.get(rows.columns.gathered(last, widths[-2])).copy()
        found["logits"] = device.get(rows.columns.gathered(logits, widths[-1]))
        if rows.original_ids is not None:
            found["original_ids"] = rows.original_ids
        first = rows.columns.grid.column == 0  # the others hold the same rows
        return {name: comm.gather_rows(array[slice(None) if first else slice(0)]) for name, array in found.items()}

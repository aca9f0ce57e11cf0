"""Reader of a torch.save file of one PyTorch Geometric graph, or of a data set of one."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.edges.edge_arrays import read_edge_arrays, refuse_list_flags
from hpgcn.datasets.raw_graph import TARGET_FIRST
from hpgcn.datasets.readers.adjacency_matrix import from_matrix
from hpgcn.datasets.source import truncate
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.edge_weights import choose_array, join_names
from hpgcn.graphs.validation import SPLIT, check_edge_arrays, check_ids

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.source import Source


def read(source: Source, memory: int, options: ConvertOptions) -> Raw:
    """Read `edge_index` or `adj_t`, weights, `x`, `y`, masks, ids and class names.

    They are read as by `hpgcn.from_pyg`. The options may name the tensor of edge
    weights, or set all weights to 1. By default it is the tensor that is called a
    weight.
    """
    from hpgcn.interop import pt, pyg

    if source.packing:
        raise DataError(f"{source}: compressed, expected a plain .pt file: unpack it with "
                        f"{source.packing.command}")

    # read without executing the pickle
    data, links = pt.read_graph(source.path, memory, str(source))
    numbers = {key: value for key, value in data.items()
               if isinstance(value, (np.ndarray, sp.sparray, int))}
    targets = {key: numbers[key] for key in options.target_arrays
               if set(options.target_arrays) <= numbers.keys()}
    others = {key: value for key, value in numbers.items()
              if key not in pyg.READ and key not in targets and np.ndim(value)}

    # read edges, from a list or a sparse matrix
    if "edge_index" in numbers:
        raw = _edges(numbers, others, source, memory, options)
    elif sp.issparse(numbers.get("adj_t")):
        if options.asked_weights:
            raise UsageError(f"--weights {options.weights}: the values of adj_t in {source} are "
                             "the weights")
        refuse_list_flags(options, source)
        raw = from_matrix(numbers["adj_t"], memory, f"{source}: adj_t")
        raw.reads = TARGET_FIRST
    else:
        names = truncate(", ".join(data)) or "nothing"
        raise DataError(f"{source}: holds {names}, expected edge_index (2, e), or adj_t, a sparse "
                        "tensor")

    # read masks, and note what is not read
    masks = {key: numbers[f"{key}_mask"] for key in SPLIT if f"{key}_mask" in numbers}
    said = others if "edge_index" in numbers else ()
    if unread := [key for key in data if key not in (*pyg.READ, *targets, *said)]:
        raw.notes.append(f"not read: {join_names(unread)}")
    raw.links = links
    raw.features, raw.masks = numbers.get("x"), masks or None
    raw.set_targets(targets, source)
    if "y" in targets and len(targets) == 1:
        raw.target_names = data.get("target_names", raw.target_names)
    if "y" not in targets:
        raw.labels = numbers.get("y")
        raw.class_names = data.get("class_names") if "y" in numbers else None
    raw.feature_names = data.get("feature_names") if "x" in numbers else None
    raw.input_order = raw.original_ids is None
    if "original_ids" in data:
        raw.original_ids = check_ids(data["original_ids"], raw.num_nodes, str(source))
    return raw


def _edges(arrays: dict[str, Any], others: dict[str, Any], source: Source, memory: int,
           options: ConvertOptions) -> Raw:
    """Return the Raw of `edge_index`, with weights and notes on arrays that are not read."""
    # find the number of vertices
    n = arrays.get("num_nodes")
    if isinstance(n, np.ndarray):
        n = int(n.ravel()[0]) if n.size == 1 and n.dtype.kind in "iu" else -1
    for key in ("x", "y", *(f"{part}_mask" for part in SPLIT)):
        if n is None and np.shape(arrays.get(key)) and (key in "xy" or arrays[key].dtype == bool):
            n = arrays[key].shape[0]
    if n is not None and n < 0:
        raise DataError(f"{source}: num_nodes is {n}, expected an integer from 0")

    # choose weights, and note other arrays
    shapes = {key: tuple(value.shape) for key, value in others.items()}
    edges = arrays["edge_index"]
    name, left = choose_array(shapes, edges.shape[-1] if edges.ndim else 0, n,
                              options.asked_weights, str(source), "--weights {}".format)
    notes = list(left.values())
    if unread := [key for key in others if key != name and key not in left]:
        notes.append(f"not read: {join_names(unread)}")
    if name is not None:
        notes.append(f"weights read from {name} (--unweighted sets them to 1)")

    # read a list of edges
    ends, values = check_edge_arrays(edges, None if name is None else others[name], str(source))
    places = [f"edge_index row {end}" for end in range(2)]
    raw = read_edge_arrays(ends, None if name is None else values, n, options, memory,
                           [f"{source}:", *places])
    raw.notes = notes + raw.notes
    return raw

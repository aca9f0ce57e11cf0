"""Reader of a PyTorch Geometric graph in a file of torch.save: one Data, or a dataset
of one.
"""
import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.raw_graph import TARGET_FIRST, Raw
from hpgcn.datasets.source import need, truncate
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.edge_weights import choose_array, listed
from hpgcn.graphs.validation import SPLIT, check_edges, check_ids


def read(source, memory, weights=None):
    """Read `edge_index` or `adj_t`, weights, `x`, `y`, masks, ids and class names.

    They are read as by `hpgcn.from_pyg`. `weights` names the tensor of edge weights.
    None: the tensor that is called a weight; False: all weights are 1.
    """
    from hpgcn.interop import pt, pyg

    if source.packing:
        raise DataError(f"{source}: compressed, expected a plain .pt file: unpack it with "
                        f"{source.packing.command}")

    # read without executing the pickle
    data = pt.read_data(source.path, memory, str(source))
    numbers = {key: value for key, value in data.items()
               if isinstance(value, (np.ndarray, sp.sparray, int))}
    others = {key: value for key, value in numbers.items()
              if key not in pyg.READ and np.ndim(value)}

    # edges, as a list or as a sparse matrix
    notes = []
    if "edge_index" in numbers:
        rows, columns, values, n, notes = _edges(numbers, others, weights, source, memory)
    elif sp.issparse(numbers.get("adj_t")):
        if weights:
            raise UsageError(f"--weights {weights}: the values of adj_t in {source} are the "
                             "weights")
        matrix = numbers["adj_t"].tocoo()
        if matrix.shape[0] != matrix.shape[1]:
            raise DataError(f"{source}: adj_t has shape {matrix.shape}, expected a square matrix")
        n, (rows, columns), values = matrix.shape[0], matrix.coords, matrix.data
        need(64 * n, memory, f"{source}: {n} vertices")
    else:
        names = truncate(", ".join(data)) or "nothing"
        raise DataError(f"{source}: holds {names}, expected edge_index (2, e), or adj_t, a sparse "
                        "tensor")

    # masks, and what is left out
    masks = {key: numbers[f"{key}_mask"] for key in SPLIT if f"{key}_mask" in numbers}
    said = others if "edge_index" in numbers else ()
    if unread := [key for key in data if key not in pyg.READ and key not in said]:
        notes.append(f"not read: {listed(unread)}")
    ids = data.get("original_ids")
    return Raw(n, rows, columns, values, numbers.get("x"), numbers.get("y"), masks or None,
               original_ids=check_ids(ids, n, str(source)), input_order=True,
               reads=TARGET_FIRST, notes=notes,
               class_names=data.get("class_names") if "y" in numbers else None,
               feature_names=data.get("feature_names") if "x" in numbers else None)


def _edges(arrays, others, weights, source, memory):
    """Return the rows, the columns, the weights or None, the number of vertices, and
    notes.
    """
    # the number of vertices
    n = arrays.get("num_nodes")
    if isinstance(n, np.ndarray):
        n = int(n.ravel()[0]) if n.size == 1 and n.dtype.kind in "iu" else -1
    for key in ("x", "y"):
        if n is None and key in arrays and np.shape(arrays[key]):
            n = arrays[key].shape[0]

    # weights, and arrays that are not read
    shapes = {key: tuple(value.shape) for key, value in others.items()}
    edges = arrays["edge_index"]
    name, left = choose_array(shapes, edges.shape[-1] if edges.ndim else 0, n, weights, str(source),
                              "--weights {}".format)
    notes = list(left.values())
    if unread := [key for key in others if key != name and key not in left]:
        notes.append(f"not read: {listed(unread)}")
    if name is not None:
        notes.append(f"weights read from {name} (--unweighted sets them to 1)")

    values = None if name is None else others[name]
    columns, rows, values, n = check_edges(edges, values, n, str(source))
    need(64 * n, memory, f"{source}: {n} vertices")
    return rows, columns, None if name is None else values, n, notes

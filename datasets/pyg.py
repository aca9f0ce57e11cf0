"""A graph of PyTorch Geometric in a file of torch.save: `data.pt`, one Data or a dataset of one."""
import numpy as np
import scipy.sparse as sp

from hpgcn.datasets.raw import TARGET_FIRST, Raw
from hpgcn.datasets.source import need, shown
from hpgcn.errors import DataError
from hpgcn.graphs.validation import SPLIT, check_edges, check_ids

READ = ("edge_index", "adj_t", "edge_weight", "edge_attr", "x", "y", "num_nodes", "original_ids",
        "class_names", *(f"{key}_mask" for key in SPLIT))


def read(source, memory):
    """Read `edge_index` or `adj_t`, weights, `x`, `y`, masks, ids and names of classes.

    They are read as `hpgcn.Graph.from_pyg` reads them.
    """
    from hpgcn.interop import pt

    if source.is_gzip:
        raise DataError(f"{source}: compressed, expected a plain .pt file")
    found = pt.read_data(source.path, memory, str(source))
    numbers = {key: value for key, value in found.items()
               if isinstance(value, (np.ndarray, sp.sparray, int))}
    notes = []
    if "edge_index" in numbers:
        rows, columns, values, n, note = _edges(numbers, source, memory)
        notes += note
    elif sp.issparse(numbers.get("adj_t")):
        matrix = numbers["adj_t"].tocoo()
        if matrix.shape[0] != matrix.shape[1]:
            raise DataError(f"{source}: adj_t has shape {matrix.shape}, expected a square matrix")
        n, (rows, columns), values = matrix.shape[0], matrix.coords, matrix.data
        need(64 * n, memory, f"{source}: {n} vertices")
    else:
        names = shown(", ".join(found)) or "nothing"
        raise DataError(f"{source}: holds {names}, expected edge_index (2, e), or adj_t, a sparse "
                        "tensor")
    masks = {key: numbers[f"{key}_mask"] for key in SPLIT if f"{key}_mask" in numbers}
    unread = [key for key in found if key not in READ]
    if unread:
        notes.append(f"not read: {shown(', '.join(unread))}")
    ids = found.get("original_ids")
    return Raw(n, rows, columns, values, numbers.get("x"), numbers.get("y"), masks or None,
               original_ids=check_ids(ids, n, str(source)), reads=TARGET_FIRST, notes=notes,
               class_names=found.get("class_names") if "y" in numbers else None)


def _edges(arrays, source, memory):
    """Return rows, columns, weights or None, the number of vertices, and notes."""
    n = arrays.get("num_nodes")
    if isinstance(n, np.ndarray):
        n = int(n.ravel()[0]) if n.size == 1 and n.dtype.kind in "iu" else -1
    for key in ("x", "y"):
        if n is None and key in arrays and np.shape(arrays[key]):
            n = arrays[key].shape[0]
    notes = []
    weights = arrays.get("edge_weight")
    attributes = arrays.get("edge_attr")
    if weights is None and attributes is not None:
        if np.shape(attributes)[1:] in ((), (1,)):
            weights = attributes
        else:
            notes.append(f"edge_attr of shape {np.shape(attributes)} is not used: an edge has one "
                         "weight, edge_weight")
    if weights is not None:
        notes.append("weights read from the edges (--unweighted sets them to 1)")
    columns, rows, values, n = check_edges(arrays["edge_index"], weights, n, str(source))
    need(64 * n, memory, f"{source}: {n} vertices")
    return rows, columns, None if weights is None else values, n, notes

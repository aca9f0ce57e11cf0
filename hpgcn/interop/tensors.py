"""Convert tensors to arrays, and collect arrays from graphs of other libraries."""
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp

from hpgcn.errors import DataError, warn
from hpgcn.graphs.edge_weights import choose_array, join_names, plain
from hpgcn.graphs.validation import SPLIT


def to_array(value: Any) -> Any:
    """Convert a tensor to an ndarray or a scipy.sparse array; return other objects as is.

    The tensor may lie on a GPU or require a gradient. bfloat16, which NumPy lacks,
    becomes float32.
    """
    if hasattr(value, "sparse_sizes") and hasattr(value, "storage"):  # torch_sparse.SparseTensor
        row, col, data = map(to_array, value.coo())
        data = np.ones(row.size, np.float32) if data is None else data
        return _matrix(sp.coo_array, data, (row, col), tuple(value.sparse_sizes()))
    if not hasattr(value, "detach"):
        return value

    if getattr(value, "is_meta", False):
        raise DataError("a tensor on the device meta has no values; give one on the CPU or a GPU")

    # a dense tensor on the CPU, or the arrays of a sparse one
    value = value.detach().cpu()
    if hasattr(value, "as_tensor"):  # torch_geometric.EdgeIndex
        value = value.as_tensor()
    layout = str(value.layout).removeprefix("torch.")
    shape = tuple(value.shape)
    if layout == "sparse_coo":
        return _matrix(sp.coo_array, to_array(value._values()), tuple(to_array(value._indices())),
                       shape)
    if layout == "sparse_csr":
        return _matrix(sp.csr_array, to_array(value.values()), to_array(value.col_indices()),
                       to_array(value.crow_indices()), shape)
    if layout == "sparse_csc":
        return _matrix(sp.csc_array, to_array(value.values()), to_array(value.row_indices()),
                       to_array(value.ccol_indices()), shape)

    if layout != "strided":
        raise DataError(f"a tensor of layout {layout}: expected a dense one, or sparse COO, CSR "
                        "or CSC")
    if str(value.dtype) == "torch.bfloat16":
        value = value.float()
    return value.resolve_conj().resolve_neg().numpy()


def _matrix(kind: type, data: np.ndarray, *arrays: Any) -> sp.sparray:
    *places, shape = arrays
    if data.ndim == 2 and data.shape[1] == 1:
        data = data[:, 0]
    if data.ndim != 1 or len(shape) != 2:
        raise DataError(f"a sparse tensor of shape {shape} with values {data.shape}: expected a "
                        "matrix of numbers")
    places = places[0] if len(places) == 1 else tuple(places)
    return kind((data, *((places,) if kind is sp.coo_array else places)), shape=shape)


def csr_tensor(torch: ModuleType, X: sp.csr_array, values: Any) -> Any:
    """Return a sparse CSR tensor of `values`, (nnz,), with the pattern of the csr_array X."""
    indptr, indices = (torch.from_numpy(each.astype(np.int64)) for each in (X.indptr, X.indices))
    with warnings.catch_warnings(action="ignore"):  # PyTorch warns that the layout is in beta state
        return torch.sparse_csr_tensor(indptr, indices, values, size=X.shape,
                                       check_invariants=False)


def masks_of(get: Callable) -> dict[str, Any] | None:
    """Return the masks that `get` returns for train_mask, val_mask and test_mask, or None."""
    masks = {key: to_array(get(f"{key}_mask")) for key in SPLIT}
    return None if all(mask is None for mask in masks.values()) else masks


def first_of(get: Callable, names: Iterable[str]) -> Any:
    """Return the first array among `names` for which `get` has a value, or None."""
    return next((to_array(value) for name in names if (value := get(name)) is not None), None)


def _shape(array: Any) -> tuple[int, ...]:
    """Return the shape of an array or of nested lists; only a length if these are uneven."""
    try:
        return tuple(np.shape(array))
    except ValueError:
        return (len(array),)


def weights_of(arrays: dict[str, Any], options: dict[str, Any], num_edges: int,
               num_nodes: int | None) -> None:
    """Find the edge weights, store them in `options`, and warn of arrays that are not read.

    `arrays` are the arrays of vertices or edges, by name, that have no other use. The
    option `edge_weight` may be an array, the name of one of `arrays`, or None for
    weights of 1. The option `edge_features` may be an array or a name.
    """
    name = options["name"]

    # features of edges are read only where they are named
    features = options.get("edge_features")
    if isinstance(features, str):
        if features not in arrays:
            raise DataError(f"{name}: edge_features = {features!r}: there is no such tensor among "
                            f"{join_names(arrays) or 'none'}")
        arrays = dict(arrays)
        options["edge_features"] = to_array(arrays.pop(features))

    choice = options.get("edge_weight")
    is_array = "edge_weight" in options and not isinstance(choice, str)

    # choose by name and shape
    arrays = {key: to_array(value) for key, value in arrays.items()}
    shapes = {key: shape for key, array in arrays.items()
              if (shape := _shape(array)) or plain(key) in ("edgeweight", "weight")}
    chosen, left = choose_array(shapes, num_edges, num_nodes, False if is_array else choice, name,
                                'edge_weight="{}"'.format)

    if not is_array:
        options["edge_weight"] = None if chosen is None else arrays[chosen]

    # name the tensors that are not read
    for note in () if is_array else left.values():
        warn(f"{name}: {note}")
    if others := [key for key in shapes if key != chosen and key not in left]:
        warn(f"{name}: not used: {join_names(others)}")

"""Other libraries' kernels, where they are installed. None is a dependency: what cannot be imported is left out."""
from __future__ import annotations

import os
import warnings
from importlib import import_module

import numpy as np


def installed(makers):
    """Build what can be built.

    Parameters
    ----------
    makers : dict of str to callable
        Each imports its library late and returns a dict of name to function.

    Returns
    -------
    found : dict of str to function
    absent : dict of str to str
        Name to reason, one line.
    """
    found, absent = {}, {}
    for name, maker in makers.items():
        try:
            found |= maker()
        except (ImportError, OSError, AttributeError) as error:  # a library with half of its files raises any of these
            absent[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found, absent


def products(operator, threads):
    """Functions (x, out) of A-hat x: SciPy always; MKL, torch and DGL if installed. As `installed`."""
    return installed({
        "scipy": lambda: {"scipy": lambda x, out: operator.matrix @ x}, "mkl": lambda: _mkl(operator, threads),
        "torch": lambda: _torch(operator, threads), "dgl": lambda: _dgl(operator, threads)})


def copies(threads):
    """Functions (x, index, out): rows copied, and rows added, by NumPy and, if installed, torch.

    Returns
    -------
    gathers, scatters, absent
        `out` must have no row twice in index.
    """
    gathers = {"numpy": lambda x, index, out: np.take(x, index, axis=0, out=out, mode="clip")}
    scatters = {"numpy": _add_rows}

    def torch_copies():
        torch = _load_torch(threads)

        def gather(x, index, out):
            torch.index_select(torch.from_numpy(x), 0, torch.from_numpy(index), out=torch.from_numpy(out))
            return out

        def scatter_add(x, index, out):
            torch.from_numpy(out).index_add_(0, torch.from_numpy(index), torch.from_numpy(x))
            return out

        gathers["torch"], scatters["torch"] = gather, scatter_add
        return {}

    return gathers, scatters, installed({"torch": torch_copies})[1]


def _add_rows(x, index, out):
    out[index] += x
    return out


def _mkl(operator, threads):
    mkl = import_module("sparse_dot_mkl")
    mkl.mkl_set_num_threads(threads)
    return {"mkl": lambda x, out: mkl.dot_product_mkl(operator.matrix, x, out=out, out_scalar=0.0)}


def _load_torch(threads):
    torch = import_module("torch")
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch


def _torch(operator, threads):
    torch, A = _load_torch(threads), operator.matrix
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its CSR is in beta
        csr = torch.sparse_csr_tensor(*map(torch.from_numpy, (A.indptr, A.indices, A.data)), size=A.shape)
    return {"torch": lambda x, out: csr @ torch.from_numpy(x)}


def _dgl(operator, threads):
    """DGL with a weight for each edge, and as its GraphConv does it: rows scaled before and after a plain sum."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else it prints a notice and writes a file into the home
    torch = _load_torch(threads)
    dgl, A = import_module("dgl"), operator.matrix
    indptr, indices = (torch.from_numpy(array.astype(np.int64)) for array in (A.indptr, A.indices))
    graph = dgl.graph(("csc", (indptr, indices, torch.arange(A.nnz))), num_nodes=A.shape[0]).int()
    weight, scale = torch.from_numpy(A.data).reshape(-1, 1), torch.from_numpy(operator.scale).reshape(-1, 1)
    return {"dgl": lambda x, out: dgl.ops.u_mul_e_sum(graph, torch.from_numpy(x), weight),
            "dgl_scaled": lambda x, out: dgl.ops.copy_u_sum(graph, torch.from_numpy(x) * scale) * scale}

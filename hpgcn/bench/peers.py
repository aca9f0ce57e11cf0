"""Other libraries' kernels, where they are installed; what cannot be imported is left out.

A peer of a product A-hat x is a function of (x, out) that returns what is timed, a function without
arguments; conversions are made before. A peer that moves rows is a function of (x, index, out).
"""
from __future__ import annotations

import os
import warnings
from functools import partial
from importlib import import_module

import numpy as np

from hpgcn.bench.timing import tolerated


def installed(makers, absent):
    """Join the dicts of peers that makers return; note in `absent` which of them fail, and why."""
    peers = {}
    for name, maker in makers.items():
        with tolerated(name, absent):
            peers |= maker()
    return peers


def products_on_cpu(A, threads, absent):
    """Return SciPy, and if installed MKL, torch and DGL, for a matrix of hpgcn.bench.graphs."""
    return installed({
        "scipy": lambda: {"scipy": lambda x, out: lambda: A.matrix @ x},
        "mkl": lambda: _mkl(A.matrix, threads),
        "torch": lambda: _torch(load_torch(threads), *_csr(A.matrix), A.matrix.shape),
        "dgl": lambda: _dgl(A, load_torch(threads))}, absent)


def products_on_gpu(A, gpu, absent):
    """Return cuSPARSE by CuPy, and if installed torch, for a matrix of hpgcn.bench.graphs."""
    arrays = [gpu.put(array) for array in _csr(A.matrix)]

    def torch():
        module = import_module("torch")
        if not module.cuda.is_available():
            raise ImportError("torch finds no GPU")
        return _torch(module, *arrays, A.matrix.shape)

    cusparse = partial(_cusparse, gpu.xp, *arrays, A.matrix.shape)
    return installed({"cusparse": cusparse, "torch": torch}, absent)


def copies(threads, absent):
    """Return "gather" and "scatter_add" (no row twice) of NumPy and, if installed, torch."""
    def add_rows(x, index, out):
        out[index] += x
        return out

    def torch_copies():
        torch = load_torch(threads)
        view = torch.from_numpy
        return {"torch": {
            "gather": lambda x, index, out: torch.index_select(
                view(x), 0, view(index), out=view(out)),
            "scatter_add": lambda x, index, out: view(out).index_add_(0, view(index), view(x))}}

    take = partial(np.take, axis=0, mode="clip")
    numpy = {"gather": lambda x, index, out: take(x, index, out=out), "scatter_add": add_rows}
    return {"numpy": numpy, **installed({"torch": torch_copies}, absent)}


def load_torch(threads):
    """Import torch for inference on some threads."""
    torch = import_module("torch")
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    return torch


def _csr(matrix):
    return matrix.indptr, matrix.indices, matrix.data


def _mkl(matrix, threads):
    mkl = import_module("sparse_dot_mkl")
    mkl.mkl_set_num_threads(threads)
    return {"mkl": lambda x, out: partial(mkl.dot_product_mkl, matrix, x, out=out, out_scalar=0.0)}


def _torch(torch, indptr, indices, values, shape):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its CSR is in beta
        arrays = map(torch.from_dlpack, (indptr, indices, values))
        csr = torch.sparse_csr_tensor(*arrays, size=shape)
    return {"torch": lambda x, out: partial(torch.matmul, csr, torch.from_dlpack(x))}


def _dgl(A, torch):
    """DGL with a weight for each edge, and as its GraphConv does: rows scaled around a sum."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else it writes a file into the home
    dgl = import_module("dgl")
    indptr, indices, values = (torch.from_numpy(array) for array in _csr(A.matrix))
    edges = ("csc", (indptr.long(), indices.long(), torch.arange(A.matrix.nnz)))
    graph = dgl.graph(edges, num_nodes=A.scale.size).int()
    weight = values.reshape(-1, 1)
    scale = torch.from_numpy(A.scale).reshape(-1, 1)

    def weighted(x, out):
        return partial(dgl.ops.u_mul_e_sum, graph, torch.from_numpy(x), weight)

    def scaled(x, out):
        return lambda: dgl.ops.copy_u_sum(graph, torch.from_numpy(x) * scale) * scale
    return {"dgl": weighted, "dgl_scaled": scaled}


def _cusparse(xp, indptr, indices, values, shape):
    """CuPy's, whose dense matrices lie by columns, and with an x that lies by rows."""
    library = import_module("cupyx.cusparse")
    matrix = import_module("cupyx.scipy.sparse").csr_matrix((values, indices, indptr), shape=shape)
    matrix.sum_duplicates()

    def by_columns(x, out):
        return partial(library.spmm, matrix, xp.asfortranarray(x), c=xp.empty_like(x, order="F"))

    def by_rows(x, out):
        return partial(library.spmm, matrix, x.T, c=xp.empty_like(x, order="F"), transb=True)
    return {"cusparse": by_columns, "cusparse_rows": by_rows}

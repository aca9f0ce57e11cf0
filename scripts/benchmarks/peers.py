"""Products of other libraries, for comparison.

A library that cannot be imported is left out.

A peer of a product A-hat x is a function of (x, out). It converts its arguments and returns the
timed call, which has no arguments.
"""

import warnings
from functools import partial
from importlib import import_module

from benchmarks.checks import tolerated


def installed(makers, absent):
    """Return the union of the dicts that `makers` return.

    Record in `absent` why some of them fail.
    """
    peers = {}
    for name, maker in makers.items():
        with tolerated(name, absent):
            peers |= maker()
    return peers


def products_on_cpu(A, threads, absent):
    """Return the products of SciPy and, if installed, MKL and torch.

    They multiply a benchmark matrix.
    """
    return installed({
        "scipy": lambda: {"scipy": lambda x, out: lambda: A.matrix @ x},
        "mkl": lambda: _mkl(A.matrix, threads),
        "torch": lambda: _torch(threads, *_csr(A.matrix), A.matrix.shape)}, absent)


def products_on_gpu(A, gpu, absent):
    """Return the product functions of cuSPARSE and, if installed, torch, for a benchmark matrix."""
    arrays = [gpu.put(array) for array in _csr(A.matrix)]
    return installed({"cusparse": partial(_cusparse, gpu.xp, *arrays, A.matrix.shape),
                      "torch": partial(_torch, 1, *arrays, A.matrix.shape)}, absent)


def _csr(matrix):
    return matrix.indptr, matrix.indices, matrix.data


def _mkl(matrix, threads):
    mkl = import_module("sparse_dot_mkl")
    mkl.mkl_set_num_threads(threads)
    return {"mkl": lambda x, out: partial(mkl.dot_product_mkl, matrix, x, out=out, out_scalar=0.0)}


def _torch(threads, indptr, indices, values, shape):
    torch = import_module("torch")
    torch.set_num_threads(threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its CSR is in beta
        arrays = map(torch.from_dlpack, (indptr, indices, values))
        csr = torch.sparse_csr_tensor(*arrays, size=shape)
    multiply = torch.no_grad()(torch.matmul)
    return {"torch": lambda x, out: partial(multiply, csr, torch.from_dlpack(x))}


def _cusparse(xp, indptr, indices, values, shape):
    """Return CuPy's products with x stored by columns and by rows.

    CuPy prefers columns.
    """
    library = import_module("cupyx.cusparse")
    matrix = import_module("cupyx.scipy.sparse").csr_matrix((values, indices, indptr), shape=shape)
    matrix.sum_duplicates()

    def by_columns(x, out):
        return partial(library.spmm, matrix, xp.asfortranarray(x), c=xp.empty_like(x, order="F"))

    def by_rows(x, out):
        return partial(library.spmm, matrix, x.T, c=xp.empty_like(x, order="F"), transb=True)
    return {"cusparse": by_columns, "cusparse_rows": by_rows}

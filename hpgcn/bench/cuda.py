"""CUDA kernels against the copy bandwidth of the GPU, cuSPARSE and torch."""
from __future__ import annotations

import math
import sys
import warnings
from functools import partial
from importlib import import_module

import numpy as np
import scipy.sparse as sp

from hpgcn.bench import tables
from hpgcn.bench.floors import gather_bytes, mask_bytes, scatter_add_bytes, spmm_bytes
from hpgcn.bench.gpu import Gpu, in_turns, in_whole_rows, tolerated
from hpgcn.bench.graphs import make, operator
from hpgcn.bench.timing import OURS, TOLERANCE, need, relative_error
from hpgcn.errors import InternalError

ROWS = 1 << 20  # rows of the larger matrix; half of them, each once, are gathered or added to
ORDERS = ("random", "sorted")
HOST_BYTES = 33  # an element of x on the host: x, bits, a result, and in float64 two that are expected, one difference
ARRAYS = 7  # of the size of x at once on the GPU: x and out by rows and by columns, and what torch returns
SCALED, MASKED, WHOLE = f"{OURS}_scaled", f"{OURS}_masked", f"{OURS}_whole_rows"
CUDA_R_32F = 0  # cudaDataType


def measure(settings, gpu=None):
    """Measure the bandwidth of a copy, then SpMM, S-SpMM, gather and scatter_add.

    A share of copy is bytes over the least time, over the bandwidth of a copy.

    Parameters
    ----------
    settings : hpgcn.bench.Settings
    gpu : Gpu, optional

    Returns
    -------
    dict
        "machine": hpgcn.bench.hardware, and the GPU. "limits": copy_bytes_per_s (bytes read plus written, over the
        least time), copy_buffer_bytes. "rows": see `measure_products`. "ratios": see `compare`. "summary": see
        `summarise`. "copies": see `measure_copies`. "absent": peers that are missing or fail (name: reason).

    Raises
    ------
    MissingError
        No CuPy or no GPU.
    UsageError
        More than the memory.
    InternalError
        A kernel gives a wrong result.
    """
    gpu = gpu or Gpu()
    from hpgcn.bench import hardware

    machine = hardware.describe() | gpu.describe()
    size = gpu.buffers[0].nbytes
    took = in_turns(gpu, {"copy": gpu.copy}, 2 * settings.repeats, "copy")["copy"]
    copy_bytes_per_s = 2 * size / (1e-3 * took["time_ms"])
    rows, absent = [], {}
    for name in settings.graphs:
        rows += measure_products(name, settings, gpu, copy_bytes_per_s, absent)
        gpu.release()
    ratios, copies = compare(rows), measure_copies(settings, gpu)
    machine["versions"] |= {name: sys.modules[name].__version__ for name in ("cupy", "torch") if name in sys.modules}
    return {"machine": machine, "limits": {"copy_bytes_per_s": copy_bytes_per_s, "copy_buffer_bytes": size},
            "rows": rows, "ratios": ratios, "summary": summarise(rows, ratios), "copies": copies, "absent": absent}


def measure_products(name, settings, gpu, copy_bytes_per_s, absent):
    """Time SpMM on one graph: with values, without (rows and columns scaled), masked, uncut, and by the peers.

    Half of the bits of the mask are set. Bytes are the least that move: every array once.

    Returns
    -------
    list of dict
        graph, vertices, nonzeros, width, kernel, time_ms (least), median_ms, host_ms (to queue a call), least_bytes,
        share_of_copy, relative_error (against SciPy in float64).
    """
    A = operator(make(name, settings.scale_down, settings.seed))
    exact = sp.csr_array((A.values.astype(np.float64), A.indices, A.indptr), shape=A.matrix.shape)
    n, nnz = A.scale.size, A.indices.size
    gpu.fits(2 * (8 * nnz + 8 * n), f"cuda on {name}:")
    arrays = [gpu.put(array) for array in (A.indptr, A.indices, A.values, A.scale)]
    others, cut, rows = peers(A, gpu, absent), gpu.is_cut(arrays[0]), []
    sizes = {OURS: {}, WHOLE: {}, SCALED: {"value": 0, "extra": 2 * A.scale.nbytes}}
    for width in settings.widths:
        label = f"cuda {name} {width}"
        need(HOST_BYTES * n * width, f"{label}:")
        gpu.fits(ARRAYS * 4 * n * width, f"{label}:")
        rng = np.random.default_rng(settings.seed)
        x, keep = rng.standard_normal((n, width), np.float32), rng.integers(0, 2, (n, width), np.uint8)
        on_gpu, out = gpu.put(x), gpu.xp.empty((n, width), np.float32)
        calls = product_calls(gpu, arrays, on_gpu, gpu.put(np.packbits(keep, axis=1, bitorder="little")), out, cut)
        for peer, bind in others.items():
            with tolerated(peer, absent):
                calls[peer] = bind(on_gpu, out)
        expected = exact @ x.astype(np.float64)
        check = partial(check_result, gpu, label, {None: expected, MASKED: expected * keep})
        took = in_turns(gpu, calls, settings.repeats, label, prepare=partial(out.fill, np.nan), check=check,
                        absent=absent)
        sizes[MASKED] = {"extra": mask_bytes(n, width)}
        for kernel, found in took.items():
            least, _ = spmm_bytes(n, n, nnz, width, cache_bytes=0, index=A.indices.itemsize,
                                  **sizes.get(kernel, {"pointer": 4}))
            error = found.pop("relative_error")
            rows.append({"graph": name, "vertices": n, "nonzeros": nnz, "width": width, "kernel": kernel, **found,
                         "least_bytes": least, "relative_error": error,
                         "share_of_copy": least / (1e-3 * found["time_ms"]) / copy_bytes_per_s})
    return rows


def product_calls(gpu, arrays, x, mask, out, cut):
    """Our kernels: a dict of name to callable."""
    (indptr, indices, values, scale), kernels = arrays, gpu.kernels
    calls = {OURS: partial(kernels.spmm, indptr, indices, values, x, out),
             SCALED: partial(kernels.spmm, indptr, indices, None, x, out, row_scale=scale, col_scale=scale),
             MASKED: partial(kernels.sspmm, indptr, indices, values, x, mask, out)}
    if cut:
        calls[WHOLE] = in_whole_rows(calls[OURS])
    return calls


def check_result(gpu, label, expected, name, result):
    """Error of a result, None if it is not finite; that of a kernel of ours must be small.

    Raises
    ------
    InternalError
    """
    error = relative_error(gpu.get(result), expected.get(name, expected[None]))
    if name.startswith(OURS) and not error <= TOLERANCE:
        raise InternalError(f"{label}: the result of {name} has relative error {error:.2g}, expected at most "
                            f"{TOLERANCE:g}")
    return error if math.isfinite(error) else None


def peers(A, gpu, absent):
    """Other libraries' A-hat x: functions of (x, out) that return what is timed, a function without arguments.

    cusparse: as CuPy calls it, dense matrices by columns. cusparse_rows: by rows, its default and its second
    algorithm. Transposes, descriptors and work space are made before the time is taken.
    """
    found = {}
    for make_peers in (_cusparse, _torch):
        with tolerated(make_peers.__name__.removeprefix("_"), absent):
            indptr, indices = (gpu.put(array.astype(np.int32)) for array in (A.indptr, A.indices))
            found |= make_peers(gpu, indptr, indices, gpu.put(A.values), A.matrix.shape)
    return found


def _cusparse(gpu, indptr, indices, values, shape):
    library = import_module("cupyx.cusparse")
    matrix = import_module("cupyx.scipy.sparse").csr_matrix((values, indices, indptr), shape=shape)
    matrix.sum_duplicates()

    def by_columns(x, _):
        x = gpu.xp.asfortranarray(x)
        out = gpu.xp.empty_like(x)
        return lambda: library.spmm(matrix, x, c=out)

    def by_rows(algorithm, x, out):
        low = import_module("cupy_backends.cuda.libs.cusparse")
        handle = import_module("cupy.cuda.device").get_cusparse_handle()
        sparse, (one, zero) = library.SpMatDescriptor.create(matrix), np.array([[1], [0]], np.float32)
        dense = [library.DnMatDescriptor(low.createDnMat(*array.shape, array.shape[1], array.data.ptr, CUDA_R_32F,
                                                         low.CUSPARSE_ORDER_ROW), low.dnMatGet, low.destroyDnMat)
                 for array in (x, out)]
        arguments = (handle, low.CUSPARSE_OPERATION_NON_TRANSPOSE, low.CUSPARSE_OPERATION_NON_TRANSPOSE,
                     one.ctypes.data, sparse.desc, dense[0].desc, zero.ctypes.data, dense[1].desc, CUDA_R_32F,
                     getattr(low, algorithm))
        space = gpu.xp.empty(max(1, low.spMM_bufferSize(*arguments)), np.int8)

        def call(held=(sparse, dense, one, zero, x)):  # arguments are addresses, which keep nothing alive
            low.spMM(*arguments, space.data.ptr)
            return out
        return call

    return {"cusparse": by_columns, "cusparse_rows": partial(by_rows, "CUSPARSE_SPMM_ALG_DEFAULT"),
            "cusparse_rows_2": partial(by_rows, "CUSPARSE_SPMM_CSR_ALG2")}


def _torch(gpu, indptr, indices, values, shape):
    torch = import_module("torch")
    if not torch.cuda.is_available():
        raise ImportError("torch finds no GPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that its CSR is in beta
        csr = torch.sparse_csr_tensor(*map(torch.from_dlpack, (indptr, indices, values)), size=shape)

    def bind(x, _):
        tensor = torch.from_dlpack(x)
        return lambda: csr @ tensor
    return {"torch": bind}


def measure_copies(settings, gpu):
    """Time gather and scatter_add of half of the rows of a matrix, in random and in increasing order.

    Returns
    -------
    list of dict
        operation, order, rows, width, kernel, time_ms, median_ms, host_ms, bytes (hpgcn.bench.floors), bytes_per_s,
        share_of_copy (of a copy of as many rows, in the same turns), relative_error (against NumPy).
    """
    n = max(64, ROWS // settings.scale_down)
    chosen, rows = np.random.default_rng(settings.seed).permutation(n)[:n // 2], []
    for width in settings.widths:
        need(5 * 4 * n * width, f"cuda gather at width {width}:")
        gpu.fits(4 * 4 * n * width, f"cuda gather at width {width}:")
        x = np.random.default_rng(settings.seed).standard_normal((n, width), np.float32)
        on_gpu, part = gpu.put(x), x[:n // 2]
        half, added, target = gpu.put(part), gpu.xp.empty_like(on_gpu), gpu.put(np.full_like(part, np.nan))
        for order in ORDERS:
            index = chosen if order == "random" else np.sort(chosen)
            sums, place = np.zeros_like(x), gpu.put(index)
            sums[index] = part
            for operation, size, call, expected in (
                    ("gather", gather_bytes, partial(gpu.kernels.gather, on_gpu, place, target), x[index]),
                    ("scatter_add", scatter_add_bytes, partial(gpu.kernels.scatter_add, half, place, added), sums)):
                label = f"cuda {operation} {order} {width}"
                copy = partial(_copied, gpu.xp, gpu.xp.empty_like(half), half)
                took = in_turns(gpu, {OURS: call, "copy": copy}, settings.repeats, label,
                                prepare=partial(added.fill, 0),
                                check=partial(check_result, gpu, label, {None: expected, "copy": part}))
                moved = {OURS: size(index.size, width), "copy": 2 * part.nbytes}
                rate = {kernel: moved[kernel] / (1e-3 * found["time_ms"]) for kernel, found in took.items()}
                rows += [{"operation": operation, "order": order, "rows": index.size, "width": width, "kernel": kernel,
                          **found, "bytes": moved[kernel], "bytes_per_s": rate[kernel],
                          "share_of_copy": rate[kernel] / rate["copy"]} for kernel, found in took.items()]
    return rows


def _copied(xp, target, source):
    xp.copyto(target, source)
    return target


def compare(rows):
    """Hold SpMM against the fastest peer that is right, and against its own variants.

    Returns
    -------
    list of dict
        graph, width, fastest_peer, peer_ms, time_ms (SpMM with values), peer_ratio (these two), median_ratio (of
        medians), masked_ratio (S-SpMM over SpMM), whole_rows_ratio (uncut rows over SpMM; None if it does not cut).
    """
    ratios = []
    for graph, width in dict.fromkeys((row["graph"], row["width"]) for row in rows):
        found = {row["kernel"]: row for row in rows if (row["graph"], row["width"]) == (graph, width)}
        ours, others = found[OURS], [row for row in found.values() if is_peer(row)]
        best = min(others, key=lambda row: row["time_ms"], default=None)
        ratios.append({
            "graph": graph, "width": width, "fastest_peer": best and best["kernel"],
            "peer_ms": best and best["time_ms"], "time_ms": ours["time_ms"],
            "peer_ratio": best and best["time_ms"] / ours["time_ms"],
            "median_ratio": best and min(row["median_ms"] for row in others) / ours["median_ms"],
            "masked_ratio": found[MASKED]["time_ms"] / ours["time_ms"],
            "whole_rows_ratio": found[WHOLE]["time_ms"] / ours["time_ms"] if WHOLE in found else None})
    return ratios


def is_peer(row):
    """Whether a row is another library's, with a result that is right."""
    error = row["relative_error"]
    return not row["kernel"].startswith(OURS) and error is not None and error <= TOLERANCE


def summarise(rows, ratios):
    """One number for each question; None where nothing answers it.

    Returns
    -------
    dict
        Of peer, masked and whole_rows: KIND_mean_ratio (geometric mean over graphs and widths), KIND_least_ratio,
        KIND_most_ratio. Of each peer alone, its times over ours: NAME_mean_ratio.
    """
    summary = {}
    for kind in ("peer", "masked", "whole_rows"):
        values = [row[f"{kind}_ratio"] for row in ratios if row[f"{kind}_ratio"] is not None]
        summary |= {f"{kind}_mean_ratio": geometric_mean(values), f"{kind}_least_ratio": min(values, default=None),
                    f"{kind}_most_ratio": max(values, default=None)}
    ours = {(row["graph"], row["width"]): row["time_ms"] for row in rows if row["kernel"] == OURS}
    alone = {}
    for row in filter(is_peer, rows):
        alone.setdefault(row["kernel"], []).append(row["time_ms"] / ours[row["graph"], row["width"]])
    return summary | {f"{name}_mean_ratio": geometric_mean(values) for name, values in alone.items()}


def geometric_mean(values):
    """Geometric mean; None of nothing."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def table(report):
    """Lines for people."""
    lines = [tables.format_report(report)]
    for name in ("ratios", "copies"):
        if report[name]:
            lines += ["", *tables.aligned(report[name])]
    return "\n".join([*lines, "", *tables.pairs(report["summary"])])

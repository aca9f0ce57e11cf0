"""Benchmark of DistGNN's aggregation.

By the number of blocks of x, and by the steps of its Figure 4.
"""

from functools import partial
from itertools import pairwise

import numpy as np

from benchmarks.benchmark_graphs import matrices
from benchmarks.checks import checked_turns
from hpgcn.errors import UsageError
from hpgcn.kernels import cpu
from hpgcn.kernels.cpu.chunks import by_nonzeros, evenly
from hpgcn.kernels.cpu.column_blocks import cuts_of, reading_in_blocks
from hpgcn.kernels.cpu.emit.row_product import max_width, sets_of
from hpgcn.kernels.host.jit import jit
from hpgcn.kernels.host.threads import Threaded, chunks

COUNTS = (1, 2, 4, 8, 16, 32, 64)  # blocks, as in Table 3
CHUNKS = 256
ITEM = 4  # bytes of a number
NONE = -1


def measure(settings, device, limits):
    """Time the sum of all neighbors' rows on each graph at each width.

    The sum has no weights.

    rows : graph, vertices, nonzeros, width, kernel ("N blocks"), the entries of `checked_turns`,
        read_bytes and written_bytes of `count_transfers`, and reuse of `reuse_of`.
    variants : graph, width, step, the entries of `checked_turns`, and speedup over the baseline.
        Each step adds one method of Figure 4 to those before it; `blocks` is the number of the
        fastest row.
    """
    rows, steps = [], []
    for name, A in matrices(settings):
        for width in settings.widths:
            if sets_of(width, ITEM) > 1 or width > max_width(ITEM):
                raise UsageError(f"--widths {width}: blocks need more than 32 columns, and at most "
                                 f"{max_width(ITEM)}")
            given = {"graph": name, "width": width}
            found = block_rows(A, width, settings, device)
            rows += [given | {"vertices": A.scale.size, "nonzeros": A.indices.size} | row
                     for row in found]
            best = min(found, key=lambda row: row["time_ms"])["blocks"]
            steps += [given | row for row in step_rows(A, width, best, settings, device)]
    return {"rows": rows, "variants": steps}


def block_rows(A, width, settings, device):
    """Time hpgcn's kernel for several numbers of blocks.

    Count also the bytes that it moves. Return a dict for each.
    """
    x, expected = operands(A, width, settings.seed)
    counts = [count for count in COUNTS if count <= len(x)]
    calls = {f"hpgcn, {count} blocks": partial(in_blocks, count, A, x) for count in counts}
    timings = checked_turns(device, calls, settings.repeats, f"aggregate, width {width}",
                            expected=dict.fromkeys(calls, expected))
    rows = []
    for count, (kernel, timing) in zip(counts, timings.items()):
        cuts = cuts_for(A, count)
        reads, writes = count_transfers(cuts, A.indices, max(1, device.cache_bytes // x[0].nbytes))
        rows.append({"kernel": kernel, "blocks": count, **timing,
                     "read_bytes": reads * x[0].nbytes, "written_bytes": writes * x[0].nbytes,
                     "reuse": round(reuse_of(A.indices.size, reads, writes), 2)})
    return rows


def step_rows(A, width, count, settings, device):
    """Time the methods of Figure 4, adding one after the other.

    Return a dict for each step.
    """
    x, expected = operands(A, width, settings.seed)
    m = len(x)
    whole, cuts = cuts_for(A, 1), cuts_for(A, count)
    calls = {"baseline": partial(edge_by_edge, whole, A, x, evenly(m, settings.threads)),
             "+ dynamic scheduling": partial(edge_by_edge, whole, A, x, evenly(m, CHUNKS)),
             f"+ {count} blocks": partial(edge_by_edge, cuts, A, x, evenly(m, CHUNKS)),
             "+ loop reordering": partial(in_blocks, count, A, x)}
    timings = checked_turns(device, calls, settings.repeats, f"steps, width {width}",
                            expected=dict.fromkeys(calls, expected))
    first = timings["baseline"]["time_ms"]
    return [{"step": step, "blocks": count, **timing,
             "speedup": round(first / timing["time_ms"], 2)} for step, timing in timings.items()]


def operands(A, width, seed):
    """Return a random x, and the sum of neighbors' rows for each vertex.

    The sum is computed in float64.
    """
    x = np.random.default_rng(seed).standard_normal((A.scale.size, width), np.float32)
    pattern = A.matrix.astype(float)
    pattern.data[:] = 1
    return x, pattern @ x


def in_blocks(count, A, x):
    """Aggregate by hpgcn's kernel in `count` blocks.

    Sums lie in registers (Algorithms 2 and 3).
    """
    with reading_in_blocks(count):
        return cpu.aggregate(A.indptr, A.indices, x)[0]


def edge_by_edge(cuts, A, x, bounds):
    """Aggregate by reading and writing the result for each edge (Algorithms 1 and 2)."""
    out = np.zeros_like(x)
    for starts, stops in pairwise(cuts):
        _edge_by_edge(A.indices.size * x.shape[1], starts, stops, A.indices, x, out, bounds)
    return out


@Threaded
def _edge_by_edge(counters, starts, stops, indices, x, out, bounds):
    for chunk in chunks(counters, bounds.size - 1):
        for v in range(bounds[chunk], bounds[chunk + 1]):
            for entry in range(starts[v], stops[v]):
                u = indices[entry]
                for q in range(x.shape[1]):
                    out[v, q] += x[u, q]


def cuts_for(A, count):
    """Return the position of each row's first entry in each block, (count + 1, n)."""
    if count == 1:
        return np.stack([A.indptr[:-1], A.indptr[1:]])
    n = A.scale.size
    return cuts_of(A.indptr, A.indices, n, -(-n // count), by_nonzeros(A.indptr)).copy()


def reuse_of(nonzeros, reads, writes):
    """Return how often a row is used each time it is moved (Table 3).

    The best possible value is the mean degree.
    An edge uses one row of x and one row of the result.
    """
    return 2 * nonzeros / (reads + writes)


@jit()
def count_transfers(cuts, indices, capacity):
    """Count the rows that an LRU cache reads from memory and writes.

    It holds `capacity` rows.

    One thread processes blocks and rows in order. A row of the result is written when
    it leaves the cache, and read again if a later block has edges of it. Indices do not
    use the cache.
    """
    blocks, n = cuts.shape[0] - 1, cuts.shape[1]
    capacity = max(2, capacity)
    older, newer = np.full(2 * n, NONE), np.full(2 * n, NONE)  # rows of x, then of the result
    held = np.zeros(2 * n, np.bool_)
    oldest, newest, used = NONE, NONE, 0
    reads = writes = 0
    for block in range(blocks):
        for v in range(n):
            first, last = cuts[block, v], cuts[block + 1, v]
            if first == last:
                continue
            for entry in range(first, last + 1):
                row = np.int64(indices[entry]) if entry < last else n + v

                # a row in the cache becomes the newest
                if held[row]:
                    if row == newest:
                        continue
                    if row == oldest:
                        oldest = newer[row]
                    else:
                        newer[older[row]] = newer[row]
                    older[newer[row]] = older[row]
                else:
                    if used == capacity:  # the oldest leaves
                        leaving = oldest
                        oldest = newer[leaving]
                        held[leaving] = False
                        writes += leaving >= n
                    else:
                        used += 1
                    reads += row < n or cuts[0, v] < first
                    held[row] = True
                    if oldest == NONE:
                        oldest = row
                older[row] = newest
                if newest != NONE:
                    newer[newest] = row
                newest = row
    for row in range(n, 2 * n):
        writes += held[row]
    return reads, writes

"""Measure the seconds of each kernel of a step at several sizes, for `hpgcn plan`."""
from functools import partial
from itertools import product

import numpy as np

from hpgcn.bench.kernel_calls import ENTRY_CALLS, ROW_CALLS, Arrays
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.datasets.generators.generate import generate
from hpgcn.kernels.cpu import tuning
from hpgcn.kernels.host.threads import num_threads
from hpgcn.planning.answers.candidates import candidates, count_candidate
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.kernel_rates import (
    ARRAYS,
    DENSE_SIZES,
    PRODUCT_BYTES,
    PRODUCT_WIDTHS,
    ROW_BYTES,
    ROW_WIDTHS,
)
from hpgcn.runtime.machine import memory_budget
from hpgcn.runtime.progress_bar import bar
from hpgcn.training.trainer import make_trainer

SHORT, LONG = 4, 36  # nonzeros of a row; the difference of their times gives that of a nonzero
ROWS = 1 << 15  # rows of the matrix
MOST_ROWS = 1 << 20
DENSE_ROWS = (64, 1 << 17)  # least and most rows of a dense product
MULTIPLICATIONS = 1 << 29  # multiplications of a dense product, if these rows allow it
STEPS = 30  # steps of training
ENOUGH = 0.1  # seconds of a call's repetitions that are enough


def measure(settings, host, ranks=1):
    """Time kernels while `ranks` ranks run the same kernels side by side.

    All ranks call this together. Return kernel_rates.Rates as a dict of numbers and
    lists of numbers.
    """
    rows = {}
    for size, width in product(range(len(ROW_BYTES)), range(len(ROW_WIDTHS))):
        found = row_times(settings, host, ROW_BYTES[size], ROW_WIDTHS[width])
        for name, seconds in found.items():
            times = rows.setdefault(name, np.zeros((len(ROW_BYTES), len(ROW_WIDTHS))))
            times[size, width] = seconds
    entries = entry_times(settings, host)
    products, product_rows = product_times(settings, host)
    return {"ranks": ranks, "call_s": call_seconds(host),
            "rows": {name: times.tolist() for name, times in rows.items()},
            "entries": {name: times.tolist() for name, times in entries.items()},
            "products": products.tolist(), "product_rows": product_rows.tolist(),
            "dense": dense_times(settings, host)}


def least(host, calls, settings, label):
    """Return the shortest time of each call in seconds.

    A call is repeated several times in a row, or for ENOUGH seconds.

    A call then finds its arrays in the caches, like a kernel that reads the output of
    the previous one.
    """
    found = {}
    first = host.comm is None or host.comm.rank == 0
    for name, call in bar(calls.items(), desc=label, unit="kernel", leave=False, shown=first):
        call()  # compile code, touch pages
        seconds = []
        while len(seconds) < settings.repeats and sum(seconds) < ENOUGH:
            seconds.append(host.seconds(call)[0])
        found[name] = min(seconds)
    return found


def random_matrix(rows, columns, degree, seed):
    """Return indptr, indices and values of a random matrix.

    Each row has `degree` nonzeros in random columns.
    """
    indptr = np.arange(0, degree * rows + 1, degree, dtype=np.int64)
    indices = np.random.default_rng(seed).integers(0, columns, indptr[-1], np.int32)
    return indptr, indices, np.full(indices.size, 0.5, np.float32)


def row_times(settings, host, size, width):
    """Return the seconds that each kernel takes for one row.

    The arrays have `size` bytes in total.
    """
    size = min(size, memory_budget() // 8)
    n = max(64, size // (ARRAYS * 4 * width))
    label = f"{size >> 20} MiB, {width} columns"
    arrays = Arrays(*random_matrix(n, n, 1, settings.seed), width, settings.seed)
    calls = {name: partial(call, host.kernels, arrays) for name, call in ROW_CALLS.items()}
    calls["pack"] = lambda: host.kernels.gather(arrays.x, arrays.vertex, arrays.out)
    calls["pack pieces"] = partial(gather_pieces, host.kernels, arrays)
    places = arrays.rng.integers(0, n * width, n * width)
    calls["take"] = lambda: arrays.x.reshape(-1)[places]
    calls["numpy"] = lambda: np.add(arrays.x, arrays.out, out=arrays.out)
    found = least(host, calls, settings, f"kernels, {label}")
    return {name: seconds / n for name, seconds in found.items()}


def gather_pieces(kernels, arrays):
    """Gather the left and the right half of the columns separately.

    Messages to two ranks are packed like this.
    """
    half = -(-arrays.width // 2)
    room = arrays.out.reshape(-1)[:arrays.n * half].reshape(arrays.n, half)
    for piece in (arrays.x[:, :half], arrays.x[:, -half:]):
        kernels.gather(piece, arrays.vertex, room)


def entry_times(settings, host):
    """Return the seconds of a nonzero and a row, by kernel and width.

    They are those of kernels of attention, with arrays in caches.
    """
    found = {name: np.zeros((2, len(ROW_WIDTHS))) for name in ENTRY_CALLS}
    for i, width in enumerate(ROW_WIDTHS):
        n = max(64, ROW_BYTES[0] // (ARRAYS * 4 * width))
        seconds = {}
        for degree in (SHORT, LONG):
            arrays = Arrays(*random_matrix(n, n, degree, settings.seed), width, settings.seed)
            calls = {name: partial(call, host.kernels, arrays)
                     for name, call in ENTRY_CALLS.items()}
            seconds[degree] = least(host, calls, settings, f"attention, {width} columns")

        # the additional time of long rows is that of their additional entries
        for name, times in found.items():
            short, long = (seconds[degree][name] / n for degree in (SHORT, LONG))
            times[0, i] = max(long - short, 0) / (LONG - SHORT)
            times[1, i] = max(short - SHORT * times[0, i], 0)
    return found


def product_times(settings, host):
    """Return the seconds of a nonzero and a row of a sparse product.

    They are by array size and width. The time of a nonzero is the difference between
    long and short rows, divided by the difference of their nonzeros. The time of a row
    is the remaining time of a short row.
    """
    # arrays that are made once
    budget = memory_budget() // 8
    room = np.ones(min(PRODUCT_BYTES[-1], budget) // 4, np.float32)
    nonzeros = np.zeros((len(PRODUCT_BYTES), len(PRODUCT_WIDTHS)))
    rows = np.zeros((len(ROW_BYTES), len(PRODUCT_WIDTHS)))

    def call(count, degree, size, width):
        n = max(1, min(size, budget) // (4 * width))
        matrix = random_matrix(count, n, degree, settings.seed)
        x = room[:n * width].reshape(n, width)
        out = np.ones((count, width), np.float32)
        return partial(host.kernels.spmm, *matrix, x, out)

    # nonzeros: time of long rows minus short ones, by bytes of x
    for i, width in enumerate(PRODUCT_WIDTHS):
        calls = {(size, degree): call(ROWS, degree, size, width)
                 for size in PRODUCT_BYTES for degree in (SHORT, LONG)}
        with tuning.using(tuning.current()._replace(blocks=0)):  # x in place
            times = least(host, calls, settings, f"products, {width} columns")
        for j, size in enumerate(PRODUCT_BYTES):
            longer = times[size, LONG] - times[size, SHORT]
            nonzeros[j, i] = max(longer, 0) / (LONG - SHORT) / ROWS

        # rows: time of short rows minus that of their nonzeros, by bytes of out
        counts = [max(1, min(size, budget) // (4 * width)) for size in ROW_BYTES]
        counts = [min(count, MOST_ROWS) for count in counts]
        calls = {j: call(count, SHORT, PRODUCT_BYTES[0], width) for j, count in enumerate(counts)}
        times = least(host, calls, settings, f"rows of products, {width} columns")
        for j, count in enumerate(counts):
            rows[j, i] = max(times[j] / count - SHORT * nonzeros[0, i], 0)
    return nonzeros, rows


def dense_times(settings, host):
    """Return the seconds of one multiplication in x W and x^T g.

    They are listed for pairs of DENSE_SIZES.
    """
    found = {"rows": [], "sums": []}
    for small in DENSE_SIZES:
        calls = {}
        counts = {}
        for other in DENSE_SIZES:
            rows = int(np.clip(MULTIPLICATIONS // (small * other), *DENSE_ROWS))
            x, g = (np.ones((rows, columns), np.float32) for columns in (small, other))
            w = np.ones((small, other), np.float32)
            calls["rows", other] = partial(host.kernels.matmul, x, w, np.ones_like(g))
            calls["sums", other] = partial(host.kernels.matmul, x.T, g, np.ones_like(w))
            counts[other] = rows * small * other

        seconds = least(host, calls, settings, f"dense products, {small} columns")
        for kind, times in found.items():
            times.append([seconds[kind, other] / counts[other] for other in DENSE_SIZES])
    return found


def call_seconds(host):
    """Return the fixed seconds of a kernel call.

    They are measured in a training step on a tiny graph.
    """
    graph = generate("grid", scale=6, edge_factor=1, features=16, classes=4, seed=0)
    config = Config(eval_every=0, threads=num_threads())
    inputs = PlanInput(graph, config)
    candidate, *_ = candidates(inputs, (1,))
    footprint = count_candidate(inputs, candidate)
    calls = footprint.rank_steps[0].work.calls + 2 * len(footprint.products)
    trainer = make_trainer(graph, config, SerialComm())
    seconds = []
    with trainer:
        for epoch in range(1, STEPS + 1):
            seconds.append(host.seconds(partial(trainer.train_epoch, epoch))[0])
    return float(np.median(seconds)) / calls

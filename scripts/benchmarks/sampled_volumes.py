"""Rows that mini-batches send in several partitions (demirci-2022, Figure 5).

The batches are those of `hpgcn train --batch vertices:B`, with B = 20,000 or a tenth of the
vertices, whichever is less. All ranks are counted in one process over whole epochs; nothing is
sent. The paper measured com-Amazon, 10,000 batches, 3 to 27 GPUs: `hypergraph` sent 10% more than
`stochastic` on average, and the difference grew with the ranks.
"""

import numpy as np

from hpgcn import store
from hpgcn.errors import DataError
from hpgcn.partition import make_partition
from hpgcn.partition.rows.partition_model import entry_rows, pattern
from hpgcn.partition.rows.stochastic import batch_size
from hpgcn.sampling import VertexSampler

REFERENCE = "stochastic"
CASES = (  # label, method, refined: the paper's partitions, and ours of full exchanges
    (REFERENCE, REFERENCE, False), ("hypergraph", "hypergraph", False),
    ("best, refined", "best", True))
PAPER_RATIO = 1.10  # ratio of hypergraph over stochastic, com-Amazon, mean of P = 3 to 27


def measure(settings, host, limits):
    """Count the rows that one product of a batch sends.

    For each number of ranks and partition; nothing is timed.

    "rows" have these keys:

    - ranks, parts;
    - rows_a_batch: mean;
    - error: of that mean, by the scatter of epochs;
    - ratio: of rows_a_batch, over that of REFERENCE;
    - busiest: mean of the rows of the busiest rank; busiest_ratio;
    - full: rows of an exchange of all vertices. "summary": vertices of a batch, batches, mean ratio
      of hypergraph over stochastic, the paper's.
    """
    with store.load(settings.graph) as stored:
        if stored.offsets is not None:
            raise DataError(f"{settings.graph}: is partitioned already; give the original graph")
        graph = stored.read()
    n = graph.num_rows
    if max(settings.ranks) > n:
        raise DataError(f"{settings.graph}: {max(settings.ranks)} ranks for {n} vertices")
    sampler = VertexSampler(n, batch_size(n), settings.seed)
    rows = []
    for k in settings.ranks:
        for label, method, refine in CASES:
            made = make_partition(graph, k, method=method, epsilon=0.01, seed=settings.seed,
                                  rcm=False, refine=refine, threads=settings.threads)
            counted = count(pattern(graph), made.part, k, sampler, settings.epochs)
            rows.append({"ranks": k, "parts": label, **counted})
        first = rows[-len(CASES)]
        for row in rows[-len(CASES):]:
            for name, key in (("ratio", "rows_a_batch"), ("busiest_ratio", "busiest")):
                row[name] = row[key] / first[key] if first[key] else 1.0
    plain = [row["ratio"] for row in rows if row["parts"] == CASES[1][0]]
    return {"rows": rows, "summary": {
        "vertices_of_a_batch": batch_size(n), "batches": sampler.batches * settings.epochs,
        "mean_ratio": float(np.mean(plain)), "paper_ratio": PAPER_RATIO}}


def count(matrix, part, k, sampler, epochs):
    """Count the rows that a product of a batch sends, a dict.

    The vertices have the parts `part`.

    `matrix` is a csr_array (n, n). Rank part[i], which owns vertex i, stores row i.
    """
    # rows and the ranks that read them but do not own them
    part = part.astype(np.int64)
    readers, columns = entry_rows(matrix), matrix.indices.astype(np.int64)
    across = part[columns] != part[readers]
    readers, columns = readers[across], columns[across]
    keys, pair = np.unique(columns * k + part[readers], return_inverse=True)
    line = keys // k

    # a row is sent if it and one of its readers on that rank are in the same batch
    vertices = np.arange(part.size)
    sent = []
    for epoch in range(1, epochs + 1):
        batch = sampler.batch_of(vertices, epoch)
        hit = np.unique(pair[batch[readers] == batch[columns]])
        places = batch[line[hit]] * k + part[line[hit]]
        sent.append(np.bincount(places, minlength=sampler.batches * k).reshape(-1, k))
    totals = np.sum(sent, axis=(1, 2)) / sampler.batches
    error = totals.std(ddof=1) / np.sqrt(epochs) if epochs > 1 else 0.0
    return {"rows_a_batch": round(float(totals.mean()), 2), "error": round(float(error), 2),
            "busiest": round(float(np.max(sent, axis=2).mean()), 2), "full": keys.size}

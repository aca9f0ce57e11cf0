"""The parts that a run makes batches of."""
from __future__ import annotations

import logging

import numpy as np

from hpgcn.training.setup.run_partition import PARTITIONING, SEED, kept_partition

log = logging.getLogger("hpgcn")


def parts_of(request, source, comm, method, out=""):
    """Return the part of each ORIGINAL vertex, (n,) int32, and how many parts there are.

    All ranks call this together. source: the graph of a run as it was given. A number of parts is
    made by a method, beside a file once for all runs, else in the run directory `out`: it depends
    on the graph alone. Errors on all ranks as `hpgcn.partition.batch_parts.parts_of` and
    `hpgcn.partition.make_partition`.
    """
    from hpgcn.partition import batch_parts

    found = None
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0:
            own = source.vertex_partition
            part, number = batch_parts.parts_of(
                request, source.where, source.header.num_nodes, own and (own.part, own.k),
                lambda k: _made(source, k, method, out))
            found = part.astype(np.int32), number
    return comm.bcast(found)


def _made(source, k, method, out):
    kept = kept_partition(source, k, method, out)
    if kept is None:
        from hpgcn.partition import make_partition

        log.info("partitioning %s into %d parts by %s, for mini-batches", source.where, k, method)
        graph = source.read().in_original_order()
        return make_partition(graph, k, method=method, seed=SEED).part
    from hpgcn import store

    with store.load(kept[0]) as made:
        return made.vertex_partition.part

"""The parts that batches are made of: a run's own, made for it, or those of another file."""
from __future__ import annotations

import logging

import numpy as np

from hpgcn.errors import DataError, UsageError, setting
from hpgcn.training.parts import PARTITIONING, SEED, kept_partition, where_of

log = logging.getLogger("hpgcn")


def parts_of(request, source, comm, method):
    """Return the part of each ORIGINAL vertex, (n,) int32, and how many parts there are.

    All ranks call this together. source: the graph of a run as it was given. method: by which a
    number of parts is made, beside a file once for all runs; parts made so depend on the graph
    alone.

    Raises
    ------
    UsageError, DataError, on all ranks
        The graph has no parts, or has some already; fewer than a batch takes; a file of another
        graph, or without parts. Others as `hpgcn.partition.make_partition`.
    """
    found = None
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0:
            part, k = _find(request, source, method)
            if k < request.size:
                raise UsageError(f"batch: {request.size} parts of {k}, expected {k} at most")
            found = part.astype(np.int32), k
    return comm.bcast(found)


def _find(request, source, method):
    where = where_of(source)
    if not request.parts:
        if source.offsets is None:
            raise UsageError(f"{where}: no parts to make batches of; give their number, "
                             f"{setting('batch', f'parts:{request.size}:100')}, or a partitioned "
                             f"file of the graph in its place")
        return _own(source)
    if not request.parts.isdigit():
        return _of_file(request.parts, source)
    k = int(request.parts)
    if k > source.header.num_nodes:
        raise UsageError(f"batch: {k} parts of {source.header.num_nodes} vertices")
    if source.offsets is not None:
        raise UsageError(f"{where}: partitioned already; take its parts, "
                         f"{setting('batch', f'parts:{request.size}')}, or those of a file, "
                         f"parts:{request.size}:FILE")
    if not hasattr(source, "path"):
        from hpgcn.partition import make_partition

        log.info("partitioning %s in %d parts by %s, for batches", where, k, method)
        return make_partition(source, k, method=method, seed=SEED).part, k
    from hpgcn import store

    path, _ = kept_partition(source, k, method)
    with store.load(path) as made:
        return made.vertex_partition.part, k


def _own(source):
    """Parts of a partitioned graph; of a file all, also where nested ones are merged."""
    if hasattr(source, "path"):
        partition = source.vertex_partition
        return partition.part, partition.k
    k = len(source.offsets) - 1
    part = np.empty(source.header.num_nodes, np.int32)
    part[source.vertex] = np.repeat(np.arange(k), np.diff(source.offsets))
    return part, k


def _of_file(path, source):
    from hpgcn import store

    with store.load(path) as other:
        partition = other.vertex_partition
        if partition is None:
            raise DataError(f"{path}: not partitioned, expected parts to make batches of")
        expected, found = source.header, other.header
        if (found.num_nodes, found.num_edges) != (expected.num_nodes, expected.num_edges):
            raise DataError(f"{path}: of {found.num_nodes} vertices and {found.num_edges} edges, "
                            f"expected {expected.num_nodes} and {expected.num_edges} as in "
                            f"{where_of(source)}")
        return partition.part, partition.k

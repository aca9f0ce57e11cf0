"""Partitions that runs make of graphs that come without parts, and keep for later runs."""
from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

from hpgcn.errors import HpgcnError
from hpgcn.graphs.identity import changed
from hpgcn.runtime.waiting import doing

log = logging.getLogger("hpgcn")
SEED = 0
PARTITIONING = 7200.0  # seconds that ranks wait for it: an hour for the engine, an hour around it


def where_of(source):
    """How messages call a graph: by its path, or by its name in memory."""
    return getattr(source, "path", source.header.name)


def partitioned(source, comm, method):
    """Return a source in as many parts as there are ranks; all ranks call this together.

    A DataError on all ranks if its file, or the one that was made, was changed meanwhile; errors as
    `hpgcn.partition.make_partition`.
    """
    make = _partition_file if hasattr(source, "path") else _partition_memory
    return make(source, comm, method)


def _partition_memory(graph, comm, method):
    from hpgcn.partition import make_partition

    graph = graph.in_original_order()
    partition = None
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0:
            doing(f"partitioning {graph.header.name}")
            log.info("partitioning %s in %d parts by %s", graph.header.name, comm.size, method)
            partition = make_partition(graph, comm.size, method=method, seed=SEED)
    partition = comm.bcast(partition)
    graph = replace(graph, edge_parts=partition.edge_part)
    return graph.permuted(partition.perm, partition.offsets)


def _partition_file(stored, comm, method):
    kept = None
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0:
            kept = kept_partition(stored, comm.size, method)
    path, checksum = comm.bcast(kept)
    with comm.collective_errors():
        found = stored.reopen(path)
        if found.checksum() != checksum:
            raise changed(path)
    return found


def kept_partition(stored, k, method):
    """Path and checksum of an automatic partition of a stored graph, found or made.

    One made otherwise is left alone. A DataError if the graph, or what was just
    made of it, was replaced or written to by somebody else.
    """
    from hpgcn import store
    from hpgcn.partition import make_partition

    stem = Path(stored.path).with_suffix("")
    doing(f"looking for a partition of {stored.path}")
    names = [Path(f"{stem}.p{k}.h5"), Path(f"{stem}.p{k}-{method}-{SEED}.h5")]
    stored.sha256()  # before an hour of partitioning
    stored.refuse_replaced()
    for path in names:
        checksum = _matching(path, stored, k, method) if os.path.exists(path) else None
        if checksum:
            log.info("using the partition in %s", path)
            return str(path), checksum
    path = names[1] if os.path.lexists(names[0]) else names[0]
    store.refuse_existing(path, overwrite=True)  # before the work
    log.info("partitioning %s in %d parts by %s; kept as %s", stored.path, k, method, path)
    doing(f"partitioning {stored.path}")
    graph = stored.read()
    partition = make_partition(graph, k, method=method, seed=SEED)
    store.write_partitioned(path, graph, partition, source=stored, overwrite=True)
    checksum = _matching(path, stored, k, method)
    if checksum is None:
        raise changed(path)
    return str(path), checksum


def _matching(path, stored, k, method):
    """Checksum of a file if it holds the automatic partition of a stored graph, else None."""
    from hpgcn import store

    try:
        with store.load(path) as found:
            made = found.vertex_partition
    except HpgcnError as error:
        log.warning("%s is not used: %s", path, error)
        return None
    header = replace(stored.header, source_sha256=stored.sha256())
    expected = (header, method, SEED, k)
    if made is None or (found.header, made.method, made.seed, made.k) != expected:
        return None
    return found.checksum()

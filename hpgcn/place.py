"""From a graph, in memory or in a file, to the rows that this rank owns."""
from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from hpgcn.errors import ConfigError, HpgcnError
from hpgcn.layout import Layout

log = logging.getLogger("hpgcn")
METHOD, SEED = "hypergraph", 0  # how a graph is partitioned that was not partitioned before


def place(source, comm):
    """Return (source, layout) such that source.slab(layout.start, layout.stop) are this rank's rows.

    What is partitioned already is taken as it is. On several ranks any other graph is partitioned first (rank 0,
    hypergraph, in a child process); of a file NAME.h5 the result is kept as NAME.pP.h5, and used again by later runs.

    Parameters
    ----------
    source : hpgcn.graph.Graph or hpgcn.store.StoredGraph
    comm : hpgcn.comm.SerialComm or MpiComm

    Raises
    ------
    ConfigError
        On all ranks: the file has another number of parts than there are ranks.
    """
    if source.offsets is None and comm.size > 1:
        stored = hasattr(source, "path")
        source = _partition_file(source, comm) if stored else _partition_memory(source, comm)
    offsets = np.array([0, source.header.num_nodes]) if source.offsets is None else source.offsets
    parts = offsets.size - 1
    if parts != comm.size:
        error = ConfigError(f"{getattr(source, 'path', source.header.name)}: partition has {parts} parts but "
                            f"{comm.size} ranks started; rerun `hpgcn partition -k {comm.size}` "
                            f"or `mpiexec -n {parts}`")
        error.collective = True  # every rank read the same offsets
        raise error
    return source, Layout(np.asarray(offsets, np.int64), comm.rank)


def _partition_memory(graph, comm):
    from hpgcn.partition import make_partition

    partition = None
    with comm.together():
        if comm.rank == 0:
            log.info("partitioning %s in %d parts by %s", graph.header.name, comm.size, METHOD)
            partition = make_partition(graph, comm.size, method=METHOD, seed=SEED)
    partition = comm.bcast(partition)
    return graph.permuted(partition.perm, partition.offsets)


def _partition_file(stored, comm):
    path = None
    with comm.together():
        if comm.rank == 0:
            path = _kept(stored, comm.size)
    return stored.reopen(comm.bcast(path))


def _kept(stored, k):
    """Path of an automatic partition of a stored graph: found or made. A file made otherwise is left alone."""
    from hpgcn import store
    from hpgcn.partition import make_partition

    stem = Path(stored.path).with_suffix("")
    names = [Path(f"{stem}.p{k}.h5"), Path(f"{stem}.p{k}-{METHOD}-{SEED}.h5")]
    digest = store.file_sha256(stored.path)
    for path in names:
        if path.exists() and _matches(path, digest, k):
            log.info("using the partition in %s", path)
            return str(path)
    path = names[0] if not names[0].exists() else names[1]
    log.info("partitioning %s in %d parts by %s; kept as %s", stored.path, k, METHOD, path)
    graph = stored.read()
    partition = make_partition(graph, k, method=METHOD, seed=SEED)
    store.write_partitioned(path, graph, partition, source_path=stored.path, overwrite=True)
    return str(path)


def _matches(path, digest, k):
    from hpgcn import store

    try:
        found = store.load(path)
        made = found.partition
    except HpgcnError as error:
        log.warning("%s is not used: %s", path, error)
        return False
    wanted = digest, METHOD, SEED, k
    return made is not None and (found.header.source_sha256, made.method, made.seed, made.k) == wanted

"""From a graph, in memory or in a file, to the rows that this rank owns."""
from __future__ import annotations

import logging
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from hpgcn.errors import ConfigError, HpgcnError, UsageError, agreed
from hpgcn.graphs.consistency import add_up, doubtful, nonzero, refuse
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.identity import changed
from hpgcn.parallel.layout import BlockLayout, split
from hpgcn.strategies import Arrangement, find_strategy

log = logging.getLogger("hpgcn")
SEED = 0  # of partitions of graphs that were not partitioned before
NAMING = 3600.0  # seconds that ranks wait while one reads all of a file that was found wrong
PARTITIONING = 7200.0  # seconds that ranks wait for it: an hour for the engine, an hour around it


def as_source(source):
    """Return a graph in memory or in a file as it is, and open a path, as `hpgcn.load`.

    A UsageError if it is none of these.
    """
    from hpgcn import store

    if isinstance(source, str | os.PathLike):
        return store.load(source)
    if not isinstance(source, Graph | store.StoredGraph):
        raise UsageError(f"graph is of type {type(source).__name__}, expected hpgcn.Graph, "
                         "hpgcn.load(path) or a path")
    return source


def same_everywhere(source, config, comm):
    """Refuse to go on unless all ranks were started with the same settings and the same graph.

    The ConfigError, on all ranks, names the first field that differs.
    """
    with comm.collective_errors():
        checksum = source.checksum() if comm.size > 1 else 0
    settings = asdict(config.replace(threads=0))
    comm.assert_same({**settings, **asdict(source.header), "checksum": checksum},
                     "configuration or graph")


@dataclass(frozen=True, eq=False)
class Placement:
    """Who owns what of a graph in a run."""

    source: object  # Graph or StoredGraph, whose rows from layout.rows.start on are this rank's
    arrangement: Arrangement

    @property
    def layout(self):
        """hpgcn.parallel.layout.BlockLayout of all rows, as this rank sees it."""
        return self.arrangement.layout


def assign_rows(source, comm, config):
    """Say who owns what; all ranks call this together, once in a run.

    A strategy that needs parts takes a partitioned source as it is. On several ranks
    any other is partitioned first (rank 0, in a child process); of a file
    NAME.h5 the result is kept as NAME.pP.h5, and used again by later runs. Others that
    take parts take those of a partitioned source; all others cut the stored order.

    Return a Placement. Raised on all ranks: a ConfigError if the file has
    another number of parts than there are ranks, or the grid does not fit; a
    DataError if the file changed meanwhile, or its partition contradicts itself.
    """
    strategy = find_strategy(config)
    shape = strategy.choose_shape(config, comm.size)
    if strategy.needs_parts and source.offsets is None and comm.size > 1:
        stored = hasattr(source, "path")
        make = _partition_file if stored else _partition_memory
        source = make(source, comm, strategy.method)
    if source.offsets is not None and hasattr(source, "path"):
        _check_partition(source, comm)
    if strategy.takes_parts and source.offsets is not None:
        offsets = np.asarray(source.offsets, np.int64)
        if offsets.size - 1 != comm.size:
            raise agreed(ConfigError(
                f"{where_of(source)}: partition has {offsets.size - 1} parts but {comm.size} ranks "
                f"started; rerun `hpgcn partition -k {comm.size}` or "
                f"`mpiexec -n {offsets.size - 1}`"))
    elif strategy.needs_parts:
        offsets = np.array([0, source.header.num_nodes])
    else:
        with comm.collective_errors():
            loops = np.cumsum(source.degrees()["loop"] == 0)
            pointers = source.pointers(0, source.header.num_nodes)
            offsets = strategy.row_offsets(shape, pointers + np.concatenate([[0], loops]))
    layout = BlockLayout(offsets, strategy.blocks(shape)[1], comm.rank)
    arrangement = Arrangement(shape, layout, strategy.own_options(config, comm.device))
    return Placement(source, arrangement)


def where_of(source):
    """How messages call a graph: by its path, or by its name in memory."""
    return getattr(source, "path", source.header.name)


def _partition_memory(graph, comm, method):
    from hpgcn.partition import make_partition

    partition = None
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0:
            log.info("partitioning %s in %d parts by %s", graph.header.name, comm.size, method)
            partition = make_partition(graph, comm.size, method=method, seed=SEED)
    partition = comm.bcast(partition)
    graph = replace(graph, edge_parts=partition.edge_part)
    return graph.permuted(partition.perm, partition.offsets)


def _partition_file(stored, comm, method):
    kept = None
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0:
            kept = _kept(stored, comm.size, method)
    path, checksum = comm.bcast(kept)
    with comm.collective_errors():
        found = stored.reopen(path)
        if found.checksum() != checksum:
            raise changed(path)
    return found


def _check_partition(stored, comm):
    """Refuse a file whose rows are in no order of its vertices, or of other parts.

    Each rank reads a share of it.
    """
    start, stop = split(stored.header.num_nodes, comm.size)[comm.rank:comm.rank + 2].tolist()
    with comm.collective_errors():
        mine = stored.partition_sums(start, stop)
    if nonzero(comm.sum(mine)):
        with comm.extended_timeout(NAMING), comm.collective_errors():
            if comm.rank == 0:
                stored.vertex_partition  # noqa: B018 (refuses)


def read_slab(placed, comm):
    """Read this rank's rows of a graph, a Graph; every rank calls this together.

    A graph is refused on all ranks whose degrees, loops or symmetry are not what its
    entries say, with a DataError as `hpgcn.graphs.consistency.add_up` and `refuse`.
    """
    source = placed.source
    layout = placed.layout
    where = where_of(source)
    with comm.collective_errors():
        slab = source.slab(layout.rows.start, layout.rows.stop)
    with comm.collective_errors():
        mine = add_up(slab, where)
    # of ranks with the same rows one tells
    total = comm.sum(mine if layout.column == 0 else np.zeros_like(mine))
    if doubtful(total):
        with comm.extended_timeout(NAMING), comm.collective_errors():
            if comm.rank == 0:
                refuse(total, source, where)
    return slab


def _kept(stored, k, method):
    """Path and checksum of an automatic partition of a stored graph, found or made.

    One made otherwise is left alone. A DataError if the graph, or what was just
    made of it, was replaced or written to by somebody else.
    """
    from hpgcn import store
    from hpgcn.partition import make_partition

    stem = Path(stored.path).with_suffix("")
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

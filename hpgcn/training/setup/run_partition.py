"""Partition graphs without parts when a run starts, and store the partition for later runs."""
from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from hpgcn.errors import DataError, HpgcnError
from hpgcn.partition.effort import DEFAULT, EFFORTS, FAST, column_sizes
from hpgcn.partition.method_table import METHODS
from hpgcn.partition.partition_memory import check_memory, needed_memory, window_bytes
from hpgcn.planning.answers.automatic import METHOD
from hpgcn.planning.answers.preparation import Preparation, choose_preparation
from hpgcn.runtime.disk import page_cache
from hpgcn.runtime.files import changed
from hpgcn.runtime.machine import size
from hpgcn.runtime.progress_log import set_activity
from hpgcn.runtime.temporary import temporary_file
from hpgcn.training.files.run_directory import PARTITIONS

if TYPE_CHECKING:
    from contextlib import ExitStack

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.config import Config
    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.graphs.header import Header
    from hpgcn.graphs.partition import Partition
    from hpgcn.sampling.batch_request import BatchRequest

log = logging.getLogger("hpgcn")
SEED = 0
# on rank 0: partitions of graphs in memory, and folders of those that are not beside the graph
_PARTITIONS: WeakKeyDictionary[GraphSource, dict[tuple, Partition]] = WeakKeyDictionary()
_FOLDERS: WeakKeyDictionary[GraphSource, list[Path]] = WeakKeyDictionary()
PARTITIONING = 7200.0  # seconds that ranks wait for it: an hour for the engine, an hour around it


def partitioned(source: GraphSource, comm: SerialComm, method: str, out: str = "",
                config: Config | None = None, held: ExitStack | None = None) -> GraphSource:
    """Return the graph with one part for each rank; all ranks call this together.

    With a Config the parts are those that pay for its epochs (`choose_preparation`);
    without one, those of the method with effort DEFAULT.

    The partition of a file is stored beside it, else in the run directory `out`, else
    in memory. With an ExitStack `held` a new one is removed when that closes. DataError
    on all ranks if the file of the graph, or that of the partition, was changed at the
    same time. Other errors as `hpgcn.partition.make_partition`.
    """
    # rank 0 takes parts that are stored, or makes them
    stored_file = chosen = None
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0:
            chosen = config and choose_preparation(
                source.header, column_sizes(source), method, comm.size, config)
            memory = size(config.memory) if config and config.scratch else None
            stored_file = kept_partition(source, comm.size, method, out, also=METHOD,
                                         chosen=chosen, memory=memory, held=held)
    stored_file = comm.bcast(stored_file)
    if stored_file is None:
        with comm.collective_errors():
            graph = source.read().in_original_order()
        made = _PARTITIONS.setdefault(source, {})
        return _partition_in_memory(graph, comm, chosen or _default(method), made)

    # every rank opens the same partition
    path, checksum = stored_file
    with comm.collective_errors():
        stored = source.reopen(path)
        if stored.checksum() != checksum:
            stored.close()
            raise changed(path)
    return stored


def _partition_in_memory(graph: Graph, comm: SerialComm, chosen: Preparation,
                         made: dict[tuple, Partition]) -> Graph:
    """Return a graph in parts; `made` keeps partitions for later runs on the same graph."""
    from hpgcn.partition import make_partition

    key = comm.size, chosen.method, chosen.effort
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0 and key not in made:
            set_activity(f"partitioning {graph.header.name}")
            log.info("partitioning %s into %d parts by %s%s", graph.header.name, comm.size,
                     *_method_and_reason(chosen))
            made[key] = make_partition(graph, comm.size, method=chosen.method,
                                       effort=chosen.effort, seed=SEED)
    partition = comm.bcast(made.get(key))
    graph = replace(graph, edge_parts=partition.edge_part)
    return graph.permuted(partition.perm, partition.offsets)


def _default(method: str) -> Preparation:
    return Preparation(method, DEFAULT, "")


def _method_and_reason(chosen: Preparation) -> tuple[str, str]:
    """Return the method of a Preparation, and a clause about its effort and the reason."""
    if not chosen.reason:
        return chosen.method, ""
    effort = f", effort {chosen.effort}" if METHODS[chosen.method].effort else ""
    return chosen.method, f"{effort} ({chosen.reason})"


def kept_partition(source: GraphSource, k: int, method: str, out: str = "", also: str | None = None,
                   chosen: Any = None, memory: int | None = None,
                   exact: bool = False, held: ExitStack | None = None) -> tuple[str, str] | None:
    """Find or make the automatic partition of a graph file.

    Return its path and checksum. It lies beside the graph, or in the run directory
    `out` if that folder cannot be written. Return None if neither can be written, or if
    the graph lies in memory. In the run directory a partition by the method `also` is
    accepted: that of --strategy auto, which a resumed run no longer has. Other
    partitions stay unchanged.

    A new partition is that of `chosen`, a Preparation; by default the method with
    effort DEFAULT. Beside the graph a partition of less effort is not used. With `exact`
    only that of a new partition is used, in both folders. If it would
    take more than `memory` bytes (None: no limit), it is made with less effort, or in
    passes over the file. DataError if no effort takes so little, or if another process
    replaced or changed the graph or the new partition.
    """
    from hpgcn import store

    # name the files that may hold the partition
    if source.path is None:
        return None
    preparation = _limit_effort(chosen or _default(method), source.header, k, memory)
    stem = Path(source.path).with_suffix("")
    folders = [stem.parent, *[Path(os.path.abspath(out), PARTITIONS)] * bool(out)]
    set_activity(f"looking for a partition of {source.path}")
    names = [f"{stem.name}.p{k}.h5", f"{stem.name}.p{k}-{method}-{SEED}.h5",
             f"{stem.name}.p{k}-{preparation.method}-{SEED}.h5"]

    source.sha256()  # before an hour of partitioning
    source.refuse_replaced()

    # use a partition that an earlier run kept
    for folder, name in product([*folders, *_FOLDERS.get(source, ())], names):
        path = folder / name
        methods, efforts = (method, preparation.method), (preparation.effort,)
        if not exact and folder not in folders[1:]:
            efforts = EFFORTS[EFFORTS.index(preparation.effort):]
        elif not exact:
            methods, efforts = (*methods, also), EFFORTS
        checksum = None
        if os.path.exists(path):
            checksum = _matching(path, source, k, methods, efforts)
        if checksum:
            log.info("using the partition in %s", path)
            return str(path), checksum

    # otherwise make one, and keep it where a file can be written
    with _writable(folders if held is None else folders[:1]) as folder:
        if folder is None:
            log.warning("%s cannot be written: the partition is not stored", folders[0])
            return None
        path = folder / (names[2] if os.path.lexists(folder / names[0]) else names[0])
        if held is not None:
            path = held.enter_context(temporary_file(folder))
        store.refuse_existing(path, overwrite=True)  # before the work
        log.log(logging.INFO if folder == folders[0] else logging.WARNING,
                "%spartitioning %s into %d parts by %s%s; %s",
                "" if folder == folders[0] else f"{folders[0]} cannot be written; ",
                source.path, k, *_method_and_reason(preparation),
                f"kept as {path}" if held is None else "not kept")
        set_activity(f"partitioning {source.path}")
        graph, partition = _make(source, k, preparation, memory)
        stored = graph is None
        with page_cache.bypassed(memory is not None):
            store.write_partitioned(path, graph, partition, source=source, overwrite=True,
                                    window=window_bytes(source.header, memory, stored=stored))

    # refuse a result whose graph was replaced in between
    checksum = _matching(path, source, k, (preparation.method,), (preparation.effort,))
    if checksum is None:
        raise changed(path)
    if held is None and folder != folders[0]:
        _FOLDERS.setdefault(source, []).append(folder)
    return str(path), checksum


def _limit_effort(chosen: Preparation, header: Header, k: int, memory: int | None) -> Preparation:
    """Return a Preparation with less effort if the memory does not allow that of `chosen`."""
    if memory is None or not METHODS[chosen.method].streams or chosen.effort == FAST:
        return chosen
    if needed_memory(header, k, chosen.method, chosen.effort) <= memory:
        return chosen
    return chosen._replace(effort=FAST, reason="the memory allows no more")


def _make(source: GraphSource, k: int, preparation: Preparation, memory: int | None) -> tuple:
    """Make the partition of a Preparation.

    Return the structure of the graph, or None if it is not in memory, and the
    partition.
    """
    from hpgcn.partition import make_partition, partition_stored

    method, effort, _ = preparation
    try:
        stored = check_memory(source.header, k, [method], effort, memory, stored=True)
    except DataError as error:
        raise DataError(f"{error}; `hpgcn partition {source.path} -k {k} --method {method}` makes "
                        "the parts beforehand") from None
    if stored:
        return None, partition_stored(source, k, method=method, seed=SEED, memory=memory)
    graph = source.structure()
    return graph, make_partition(graph, k, method=method, effort=effort, seed=SEED)


@contextmanager
def _writable(folders: list[Path]) -> Iterator[None]:
    """Yield the first writable folder, created if missing, or else None.

    Folders created here are removed if the block raises.
    """
    # try to write a file in each folder
    for folder in folders:
        created = []
        try:
            for path in (folder.parent, folder):
                if not path.is_dir():
                    path.mkdir(parents=True)
                    created.insert(0, path)

            with temporary_file(folder):
                pass
        except OSError:
            _remove_empty(created)
            continue

        try:
            yield folder
        except BaseException:
            _remove_empty(created)
            raise
        return

    yield None


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _matching(path: Path, source: GraphSource, k: int, methods: Sequence,
              efforts: Sequence) -> str | None:
    """Return the checksum of a partition file that fits, else None.

    It must fit the graph, `k`, and one of `methods` and `efforts`.
    """
    try:
        with source.reopen(path) as stored:
            partition = stored.vertex_partition
    except HpgcnError as error:
        log.warning("%s is not used: %s", path, error)
        return None
    header = replace(source.header, source_sha256=source.sha256())
    expected = (header, SEED, k)
    if partition is None or (stored.header, partition.seed, partition.k) != expected:
        return None
    if partition.method not in methods:
        return None
    # files without an effort are older, or of methods that have none
    if partition.effort in EFFORTS and partition.effort not in efforts:
        return None
    return stored.checksum()


def parts_of(request: BatchRequest, source: GraphSource, comm: SerialComm,
             out: str = "") -> tuple[np.ndarray, int]:
    """Return the part of each ORIGINAL vertex for mini-batches, and their number.

    Parts are (n,) int32. All ranks call this together. `source` is the graph of the run
    as the user passed it. If the request is a number of parts, the partition depends
    only on the graph. It is stored beside the graph's file for all runs, else in the
    run directory `out`. Errors on all ranks as `hpgcn.partition.batch_parts.parts_of`
    and `hpgcn.partition.make_partition`.
    """
    from hpgcn.partition import batch_parts

    parts = None
    with comm.extended_timeout(PARTITIONING), comm.collective_errors():
        if comm.rank == 0:
            stored = source.vertex_partition
            part, number = batch_parts.parts_of(
                request, source.where, source.header.num_nodes, stored and (stored.part, stored.k),
                lambda k: _make_parts(source, k, batch_parts.METHOD, out))
            parts = part.astype(np.int32), number
    return comm.bcast(parts)


def _make_parts(source: GraphSource, k: int, method: str, out: str) -> np.ndarray:
    # batches must not depend on the parts of ranks, which may have another effort
    partition_file = kept_partition(source, k, method, out, exact=True)
    if partition_file is None:
        from hpgcn.partition import make_partition

        log.info("partitioning %s into %d parts by %s, for mini-batches", source.where, k, method)
        graph = source.read().in_original_order()
        return make_partition(graph, k, method=method, seed=SEED).part
    from hpgcn import store

    with store.load(partition_file[0]) as made:
        return made.vertex_partition.part

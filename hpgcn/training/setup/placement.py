"""Assign the rows of a graph to ranks, and read those that this rank owns."""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.comm import MOST_RANKS, SerialComm, as_comm
from hpgcn.errors import ConfigError, DataError, agreed, setting
from hpgcn.graphs.consistency import add_up, doubtful, nonzero, refuse
from hpgcn.graphs.graph_source import GraphSource, check_source
from hpgcn.parallel.layout import BlockLayout, split
from hpgcn.planning.answers.automatic import METHOD
from hpgcn.planning.answers.choice import check_machine, choose_exchange, choose_strategy
from hpgcn.planning.answers.exchange_rule import exchange_setting, unsupported_exchange
from hpgcn.strategies import CHOOSING, RankGrid, Strategy, find_strategy, read_options
from hpgcn.training.setup.run_partition import partitioned

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.graphs.graph import Graph
    from hpgcn.parallel.layout import NodeLayout

NAMING = 3600.0  # seconds that ranks wait while one reads all of a file that was found wrong


def as_source(source: Any) -> GraphSource:
    """Return a GraphSource: the argument itself, or the opened file of that path.

    UsageError for an object of another type.
    """
    from hpgcn import store

    if isinstance(source, str | os.PathLike):
        return store.load(source)
    return check_source(source, "hpgcn.Graph, hpgcn.load(path) or a path")


@contextmanager
def opened(source: Any, comm: SerialComm, *,
           in_one_part: bool = False) -> Iterator[GraphSource]:
    """Yield a graph as from `as_source`; close it if it was opened here.

    With `in_one_part` the parts of a partitioned graph are merged into one, for one
    rank. All ranks call this together; errors of `as_source` are raised on all ranks.
    """
    with ExitStack() as files:
        with comm.collective_errors():
            found = _closing(files, source, as_source(source))
            if in_one_part and found.offsets is not None:
                found = _closing(files, found, found.merged(1))
        yield found


def _closing(files: ExitStack, given: Any, found: GraphSource) -> GraphSource:
    """Let the ExitStack `files` close `found`, unless it is `given`; return it."""
    if found is not given:
        files.callback(found.close)
    return found


def check_local_ranks(source: Any, ranks: int, comm: Any = None) -> None:
    """Refuse (DataError) more ranks than vertices, before they start: `ranks` in each process."""
    if type(ranks) is int and 1 < ranks <= MOST_RANKS:
        ranks *= 1 if comm is None else as_comm(comm).size
        with opened(source, SerialComm()) as graph:
            n = graph.header.num_nodes
            if ranks > n:
                raise agreed(DataError(f"{graph.where}: {ranks} ranks for {n} vertices, expected "
                                       f"1..{n}"))


def same_everywhere(source: GraphSource, config: Config, comm: SerialComm) -> None:
    """Raise ConfigError unless all ranks have one command and one graph.

    The ConfigError, on all ranks, names the first field that differs.
    """
    with comm.collective_errors():
        checksum = source.checksum() if comm.size > 1 else 0
    settings = asdict(config.replace(threads=0))
    comm.assert_same({**settings, **asdict(source.header), "checksum": checksum},
                     "configuration or graph")


@dataclass(frozen=True, eq=False)
class Placement:
    """Owners of the rows of a graph in a run, and the strategy for A.

    A context manager: `source` is closed at the end, if it was opened in place of the
    given graph.
    """

    source: GraphSource  # its rows from layout.rows.start on belong to this rank
    strategy: type[Strategy]
    rank_grid: RankGrid
    choice: str = ""  # why a strategy was chosen that the settings do not name
    files: ExitStack = field(default_factory=ExitStack)  # closes what was opened

    def __enter__(self) -> Placement:
        return self

    def __exit__(self, *_: object) -> None:
        self.files.close()

    @property
    def layout(self) -> BlockLayout:
        """The hpgcn.parallel.layout.BlockLayout of all rows, from the view of this rank."""
        return self.rank_grid.layout


def assign_rows(source: GraphSource, comm: SerialComm, config: Config, *,
                keep: bool = True) -> Placement:
    """Return the Placement of a run: the owner of each row.

    All ranks call this together, once. A strategy that requires parts uses those of a
    partitioned source. On several ranks any other source is partitioned first (by rank
    0, in a child process). The partition of a file NAME.h5 is stored as NAME.pP.h5 for
    later runs, beside it or else in the run directory. Without `keep` it is removed
    when the Placement closes. A strategy that only accepts parts uses those of a
    partitioned source; otherwise the stored order is divided. For the auto strategies
    the source is partitioned as well; `choose_strategy` then chooses.

    Errors are raised on all ranks: a ConfigError if the number of parts differs from
    the number of ranks, or the grid does not fit. A DataError if the file was changed
    in between, or its partition contradicts itself.
    """
    # the strategy in the settings
    options = read_options(config)
    strategy = find_strategy(options)
    shape = strategy.choose_shape(options, comm.size)
    open_choice = options.strategy in CHOOSING and comm.size > 1
    choice = ""
    check_machine(config, comm)

    with ExitStack() as files:  # closed here only after an error
        # parts, stored or made
        if strategy.requires_partition and source.offsets is None and comm.size > 1:
            method = METHOD if open_choice else strategy.method
            source = _closing(files, source, partitioned(
                source, comm, method, config.out, config, held=None if keep else files))
        comm.clock.setup.begin("checking")
        _check_order(source, comm)
        comm.clock.setup.begin("planning")
        if strategy.accepts_partition and source.offsets is not None:
            source = _closing(files, source, _in_parts(source, comm))

        # the strategy, if the settings leave it open
        if open_choice:
            strategy, node_aware, choice = choose_strategy(source, config, comm)
            shape = strategy.default_shape(comm.size)
        else:
            node_aware = choose_exchange(source, config, strategy, shape, comm)

        # the rows of each rank
        offsets = _row_offsets(source, comm, strategy, shape)
        layout = BlockLayout(offsets, strategy.block_grid(shape)[1], comm.rank)
        rank_grid = RankGrid(shape, layout, strategy.own_options(options, comm.device),
                             checked_exchange(strategy, comm.nodes, node_aware, config))
        return Placement(source, strategy, rank_grid, choice, files.pop_all())


def checked_exchange(strategy: type[Strategy], nodes: np.ndarray, node_aware: str,
                     config: Config) -> NodeLayout:
    """Return `exchange_rule.exchange_setting` of a run.

    Raise a ConfigError, on all ranks, if the setting `node_aware` is "always" and the
    strategy does not support it.
    """
    if nodes.max() and node_aware == "always":
        reason = unsupported_exchange(strategy, config)
        if reason:
            raise agreed(ConfigError(f"{setting('node_aware', node_aware)}: {reason}"))
    return exchange_setting(strategy, nodes, node_aware, config)


def _row_offsets(source: GraphSource, comm: SerialComm, strategy: type[Strategy],
                 shape: tuple) -> np.ndarray:
    """Return the offsets of the row blocks: the parts, or blocks of the strategy."""
    if strategy.accepts_partition and source.offsets is not None:
        return np.asarray(source.offsets, np.int64)
    if strategy.requires_partition:
        return np.array([0, source.header.num_nodes])
    with comm.collective_errors():
        loops = np.cumsum(source.degrees()["loop"] == 0)
        pointers = source.pointers(0, source.header.num_nodes)
        return strategy.row_offsets(shape, pointers + np.concatenate([[0], loops]))


def _in_parts(source: GraphSource, comm: SerialComm) -> GraphSource:
    """Return a source with one part for each rank.

    If needed, nested parts are merged.
    """
    parts = len(source.offsets) - 1
    if parts == comm.size:
        return source
    with comm.collective_errors():
        merges = source.merges
        if comm.size in merges:
            return source.merged(comm.size)
    others = f", or on {', '.join(map(str, merges))}" * bool(merges)
    started = f"{comm.size} ranks started" if comm.size > 1 else "1 rank started"
    again = (f"partition the graph again with `hpgcn partition -k {comm.size}`" if comm.size > 1
             else "use the graph that is not partitioned")
    raise agreed(ConfigError(
        f"{source.where}: partition has {parts} parts but {started}; run on {parts} ranks, by "
        f"{setting('ranks', parts)} or `mpiexec -n {parts}`{others}; or {again}"))


def _check_order(source: GraphSource, comm: SerialComm) -> None:
    """Raise DataError if rows lack a vertex or contradict the offsets of parts.

    Each rank reads a share of the file.
    """
    start, stop = split(source.header.num_nodes, comm.size)[comm.rank:comm.rank + 2].tolist()
    with comm.collective_errors():
        sums = source.order_sums(start, stop)
    total = comm.sum(sums)
    if nonzero(total):
        with comm.extended_timeout(NAMING), comm.collective_errors():
            if comm.rank == 0:
                source.check_order(total)


def read_slab(placed: Placement, comm: SerialComm, split: int = 0) -> Graph:
    """Read and check this rank's rows of a graph, a Graph of one split.

    All ranks call this together. If degrees, self loops or symmetry contradict the
    entries, all ranks raise a DataError, as from `hpgcn.graphs.consistency.add_up` and
    `refuse`.
    """
    source = placed.source
    layout = placed.layout
    comm.clock.setup.begin("reading")
    with comm.collective_errors():
        slab = source.slab(layout.rows.start, layout.rows.stop, split)
    comm.clock.setup.begin("checking")
    with comm.collective_errors():
        sums = add_up(slab, source.where)
    # one of several ranks with the same rows counts them
    total = comm.sum(sums if layout.column == 0 else np.zeros_like(sums))
    if doubtful(total):
        with comm.extended_timeout(NAMING), comm.collective_errors():
            if comm.rank == 0:
                refuse(total, source)
    return slab

"""`hpgcn.sweep`: train every combination of settings on one graph, and compare the results."""
from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpgcn.comm import as_comm
from hpgcn.config import SETTINGS, Config
from hpgcn.errors import ConfigError, DivergedError, HpgcnError, UsageError, setting
from hpgcn.model import check_strategy, make_spec, metric_of
from hpgcn.strategies import find_strategy, read_options
from hpgcn.training.files.records import read_summary
from hpgcn.training.files.run_directory import refuse_existing_run
from hpgcn.training.run import train
from hpgcn.training.run_grid import ALL, REPEATS, RunGrid, check_sweep
from hpgcn.training.setup.placement import opened
from hpgcn.training.setup.run_plan import check_trainable
from hpgcn.training.sweep_table import Sweep

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.graphs.header import Header

log = logging.getLogger("hpgcn")


def sweep(source: GraphSource | str | os.PathLike[str], config: Config | None = None,
          values: Mapping[str, Iterable] | None = None, comm: Comm | None = None, *,
          seeds: Iterable[int] | None = None, splits: Iterable[int] | str | None = None,
          ranks: int = 1, nodes: int | Sequence[int] | None = None, progress: bool = False,
          overwrite: bool = False) -> Sweep:
    """Train every combination of settings; all ranks of `comm` call this together.

    The graph is opened once. If `config` has `out`, each run has a directory in it, such
    as OUT/lr-0.01,hidden-64/seed-0. A finished run is then read instead of trained, and an
    interrupted one continues after its newest checkpoint.

    Parameters
    ----------
    source : hpgcn.Graph, hpgcn.store.StoredGraph, str or path-like
        As in `hpgcn.train`, like `comm`, `ranks`, `nodes` and `progress`.
    config : hpgcn.Config, optional
        The settings that all runs have in common.
    values : dict of str to iterable, optional
        The values of each setting that is varied, by its name in Config.
    seeds, splits : iterable of int, optional
        Every combination is trained with each seed, on each split. `splits` may be "all".
    overwrite : bool
        Train every run anew, and replace its directory.

    Returns
    -------
    hpgcn.Sweep
        A list with a dict for each run, on every rank.

    Raises
    ------
    UsageError
        A name or a value is invalid; nothing is trained.
    ConfigError
        A run directory has other settings, or is of another graph.
    DivergedError
        The loss of every run became NaN or infinite. If others are left, their rows have
        results, and that of the run has `error`.

    Other errors as `hpgcn.train`. Runs that were finished before an error stay as they are.

    Examples
    --------
    >>> A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))  # two triangles
    >>> y, masks = [0, 0, 0, 1, 1, 1], ([0, 3], [1, 4], [2, 5])
    >>> graph = hpgcn.Graph.from_scipy(A, np.eye(6), y, masks)
    >>> found = hpgcn.sweep(graph, hpgcn.Config(epochs=20), {"lr": [0, 0.1]}, seeds=range(3))
    >>> len(found), found.best["lr"], found.best["test_acc"]
    (6, 0.1, {'mean': 1.0, 'std': 0.0})
    """
    if not isinstance(config, Config | None):
        raise UsageError(f"config is of type {type(config).__name__}, expected hpgcn.Config")
    given = {name: [] if isinstance(each, str) else list(each)
             for name, each in (values or {}).items()}
    check_sweep(given)
    grid = RunGrid(given, _numbers("seeds", seeds),
                   ALL if isinstance(splits, str) and splits == ALL else _numbers("splits", splits))
    started = {"comm": comm, "ranks": ranks, "nodes": nodes}
    world = as_comm(comm)
    with opened(source, world) as graph:
        grid = grid.of(graph.header)
        configs = grid.configs(config or Config())
        return train_all(graph, grid, configs, world, started, progress=progress,
                         overwrite=overwrite)


def _numbers(name: str, given: Iterable | None) -> list | None:
    """Return seeds or splits as a list; UsageError if it is empty, or one occurs twice."""
    found = None if given is None else list(given)
    if found is not None and (not found or len({*found}) < len(found)):
        raise UsageError(f"{name}: expected one number or more, each once")
    return found


def train_all(source: GraphSource, grid: RunGrid, configs: list[Config], comm: Any,
              started: dict[str, Any], *, progress: bool, overwrite: bool) -> Sweep:
    """Train the runs of a grid, those of `configs`; return the Sweep on every rank.

    All ranks of `comm` call this together. `started` are the arguments of `hpgcn.train`
    by which each run starts its ranks. Errors as `sweep`.
    """
    # check all runs before the first takes its time
    begun = [False] * len(configs)
    with comm.collective_errors():
        if not configs:  # the graph has no splits
            check_trainable(source.header, where=source.where, embedding=1)
        for number, config in enumerate(configs):
            check_trainable(source.header, config.split_index, source.where,
                            embedding=config.embedding, task=config.task)
            if not (config.scratch or config.gpu_memory):  # which chooses the number of ranks
                check_on_graph(config, source.header, comm.size * started.get("ranks", 1))
            if config.out and comm.rank == 0 and not overwrite:
                begun[number] = is_begun(config, source)
    begun = comm.bcast(begun)

    # train
    results: list = []
    errors: dict[int, DivergedError] = {}
    for number, config in enumerate(configs):
        if comm.rank == 0:
            log.info("run %d of %d: %s", number + 1, len(configs), describe(config, grid))
        try:
            results.append(train(source, config, progress=progress, overwrite=overwrite,
                                 resume=config.out if begun[number] else None, **started))
        except DivergedError as error:  # a result as well: others may be better
            errors[number] = error
            results.append(None)
            if comm.rank == 0:
                log.warning("run %d of %d: %s", number + 1, len(configs), error)
        except (HpgcnError, KeyboardInterrupt):
            if comm.rank == 0 and config.out:
                log.info("%d of %d runs are finished; the same command trains the others", number,
                         len(configs))
            raise
    if len(errors) == len(configs):
        raise errors[0]

    rows = [{**(result or {"error": str(errors.get(number))}),
             **{name: getattr(config, name) for name in (*REPEATS, *grid.values)}}
            for number, (config, result) in enumerate(zip(configs, results))]
    return Sweep([*grid.values], rows, configs, results)


def check_on_graph(config: Config, header: Header, ranks: int) -> None:
    """Raise the error with which a run on this graph and number of ranks would be refused."""
    spec = make_spec(header, config)
    metric_of(spec, config.metric)
    options = read_options(config)
    strategy = find_strategy(options)
    check_strategy(strategy, spec, ranks)
    strategy.choose_shape(options, ranks)


def describe(config: Config, grid: RunGrid) -> str:
    """Return the settings in which a run differs from others, as text."""
    return ", ".join(f"{name.replace('_', '-')} {getattr(config, name)}" for name in grid.varied)


def is_begun(config: Config, source: GraphSource) -> bool:
    """Return whether config.out is the directory of a run, finished or not.

    ConfigError if the run has other settings or is of another graph. OutputError for
    another directory that is not empty.
    """
    path = os.path.join(config.out, "config.toml")
    if not os.path.exists(path):
        refuse_existing_run(config.out, overwrite=False)
        return False
    before = Config.from_toml(path)
    way = f"choose another {setting('out')}, or {setting('overwrite', True)}"
    for name, entry in SETTINGS.items():
        was, now = getattr(before, name), getattr(config, name)
        if was != now and not entry.metadata["resumable"]:
            raise ConfigError(f"{config.out}: {name} is {now!r}, but the run was started with "
                              f"{was!r}; {way}")
    summary = read_summary(config.out)
    if summary and summary.get("graph_checksum") not in (None, str(source.checksum())):
        raise ConfigError(f"{config.out}: was trained on another graph than {source.where}; {way}")
    return True

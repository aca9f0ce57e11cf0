"""`hpgcn.train`: check the arguments, read the checkpoint of an earlier run, and train."""
from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from hpgcn.comm import as_comm, in_process
from hpgcn.config import Config, settings_of_run
from hpgcn.errors import UsageError, assigned, setting
from hpgcn.model import find_model
from hpgcn.runtime import signals
from hpgcn.runtime.device import choose
from hpgcn.runtime.disk import page_cache
from hpgcn.runtime.gpu_limits import translate_gpu_oom
from hpgcn.runtime.progress_log import progress_log
from hpgcn.sampling.negatives import check_link_settings
from hpgcn.strategies import find_strategy, read_options
from hpgcn.training.compile.warmup import compiling
from hpgcn.training.files.run_directory import RunDirectory, refuse_existing_run
from hpgcn.training.gpu_run import in_turns, run_with_gpu_memory
from hpgcn.training.saved.checkpoint import Checkpoints
from hpgcn.training.saved.resume import load_resume_state
from hpgcn.training.scratch_run import check_comm, run_with_scratch
from hpgcn.training.setup.placement import check_local_ranks, opened, same_everywhere
from hpgcn.training.setup.rank_links import check_links
from hpgcn.training.setup.run_plan import check_trainable
from hpgcn.training.setup.step_plan import check_batch
from hpgcn.training.steps.stopping import check_callbacks, raise_if_stop_requested
from hpgcn.training.trainer import make_trainer

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.training.files.result import Result


def train(source: GraphSource | str | os.PathLike[str], config: Config | None = None,
          comm: Comm | None = None, *, ranks: int = 1,
          nodes: int | Sequence[int] | None = None, progress: bool = False,
          overwrite: bool = False, resume: str | os.PathLike[str] | None = None,
          callbacks: Sequence[Callable[[dict[str, Any]], object]] = ()) -> Result:
    """Train a model; all ranks of `comm` call this together.

    Parameters
    ----------
    source : hpgcn.Graph, hpgcn.store.StoredGraph, str or path-like
        `hpgcn.load(path)` or the path itself, or a graph in memory (then equal on all
        ranks).
    config : hpgcn.Config, optional
        Files are written only if its `out` names a run directory.
    comm : mpi4py communicator, optional
        None: this process alone; no MPI is needed.
    ranks : int
        Number of ranks in this process, which take turns; see `hpgcn.run_on_ranks`.
        Each process of `comm` has as many. Results are those of as many processes as there
        are ranks. With `scratch` or `gpu_memory` in the config their number is chosen if it
        is 1.
    nodes : int or sequence of int, optional
        Nodes that these ranks are taken to run on; see `hpgcn.run_on_ranks`.
    progress : bool
        Show progress on rank 0: bars on a terminal or in a notebook, elsewhere (under
        mpiexec, for one) a line on standard error every ten seconds.
    overwrite : bool
        Replace an existing run directory.
    resume : path, optional
        A run directory to go on in after its newest checkpoint, by its own
        settings if `config` is None. Without a checkpoint the run starts there
        at epoch 1; if it is finished its result is returned.
    callbacks : sequence of callable
        Called on rank 0 after each epoch with its metrics, a dict as in
        metrics.jsonl. If one of them returns True, the run ends with this epoch on
        all ranks, as when patience is over; what one of them raises ends all ranks.

    Returns
    -------
    hpgcn.Result
        A dict of what summary.json holds, with the weights of the best epoch
        and the history, on every rank.

    Raises
    ------
    DataError, ConfigError, DivergedError, OutputError, StorageError, StoppedError,
    CancelledError, UsageError
        On all ranks together: no labels, features or such a split; ranks against parts,
        or a checkpoint of other data or settings; NaN or Inf; the run directory exists;
        a checkpoint cannot be written, or none of them read; SIGUSR1, SIGUSR2, SIGTERM,
        SIGXCPU or SIGINT (a KeyboardInterrupt) requested a stop; checkpoints without a run
        directory.
    MissingError
        On all ranks: a GPU is requested, and one of them finds none.
    DeviceMemoryError
        A GPU has less memory than is needed.

    Examples
    --------
    >>> A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))  # two triangles
    >>> y, masks = [0, 0, 0, 1, 1, 1], ([0, 3], [1, 4], [2, 5])
    >>> graph = hpgcn.Graph.from_scipy(A, np.eye(6), y, masks)
    >>> config = hpgcn.Config(hidden=4, dropout=0.0, epochs=20)
    >>> result = hpgcn.train(graph, config)
    >>> result["epochs"], result["test_acc"]
    (20, 1.0)
    >>> hpgcn.train(graph, config, ranks=2)["test_acc"]
    1.0
    """
    # check types that a caller may get wrong
    if not isinstance(config, Config | None):
        raise UsageError(f"config is of type {type(config).__name__}, expected hpgcn.Config")
    if resume and not isinstance(resume, str | os.PathLike):
        raise UsageError(f"resume is of type {type(resume).__name__}, expected the path of a run "
                         "directory")

    # a run that is resumed brings its own settings
    if resume:
        config = (config or Config(**settings_of_run(resume, {}))).replace(out=os.fspath(resume))
    options = {"progress": progress, "overwrite": overwrite, "resume": resume,
               "callbacks": callbacks}
    config = config or Config()
    if config.gpu_memory and not in_turns(comm):
        return run_with_gpu_memory(_train, source, config, comm, ranks, **options)
    if config.scratch and comm is None:
        return run_with_scratch(_train, source, config, ranks, **options)
    check_comm(config, comm)
    check_local_ranks(source, ranks, comm)
    return in_process(_train, comm, ranks, source, config, nodes=nodes, **options)


def check_settings(config: Config) -> None:
    """Raise UsageError for settings that are invalid for every graph."""
    options = read_options(config)
    strategy = find_strategy(options)
    check_batch(config, strategy, strategy.title(options))
    find_model(config)
    check_link_settings(config)


def _train(comm: Any, source: Any,
           config: Config, *, progress: bool, overwrite: bool, resume: str | None,
           callbacks: Sequence) -> Result:
    check_settings(config)

    # the ranks, and what they train on
    comm = as_comm(comm, config.comm_timeout)
    comm.restart_counts()  # it may have trained before
    with (page_cache.bypassed(config.memory), opened(source, comm) as graph,
          translate_gpu_oom(comm, config.dtype)):
        same_everywhere(graph, config, comm)
        comm.use(choose(config.updates_on, comm))

        # whether it can be trained on, and files written
        with comm.collective_errors():
            check_trainable(graph.header, config.split_index, graph.where,
                            embedding=config.embedding, task=config.task)
            check_links(graph, config)
            if config.checkpoint_every and not config.out:
                raise UsageError(f"{assigned('checkpoint_every', config.checkpoint_every)}: needs "
                                 f"a run directory, set {setting('out')}")
            check_callbacks(callbacks)
            if config.out and comm.rank == 0:
                refuse_existing_run(config.out, overwrite or bool(resume))

        # where an earlier run stopped
        checkpoints = Checkpoints(config.out, graph) if config.out else None
        saved = summary = None
        if resume:
            saved, summary = load_resume_state(checkpoints, config, comm)
        if summary:
            return summary

        # set up
        first = saved.epoch + 1 if saved else 1
        with signals.record_signals(*signals.STOPPING) if config.out else nullcontext():
            raise_if_stop_requested(first, config.graph, config.out, comm)
            with compiling(progress, comm.rank), progress_log(progress and comm.rank == 0):
                trainer = make_trainer(graph, config, comm)

            # train
            with trainer:
                record = None
                with comm.collective_errors():  # late: a refused run leaves no files
                    if config.out and comm.rank == 0:
                        after = saved and (saved.metrics or {"epoch": 0})
                        record = RunDirectory(trainer.config, overwrite=overwrite or bool(resume),
                                              after=after)
                with record or nullcontext():
                    return trainer.run(record, progress and comm.rank == 0, checkpoints, saved,
                                       callbacks)

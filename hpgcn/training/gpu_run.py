"""Run on local ranks that take turns on a GPU, or on the GPU of each process."""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from hpgcn.comm import as_comm, run_on_gpu
from hpgcn.errors import UsageError, setting
from hpgcn.planning.answers.gpu_plan import plan_gpu, table
from hpgcn.runtime.device import choose
from hpgcn.runtime.gpu.gpu_turns import GpuTurns
from hpgcn.runtime.gpu.host_memory import ScratchSpace
from hpgcn.strategies import read_options, strategy_setting

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.runtime.device import Cuda

log = logging.getLogger("hpgcn")


def in_turns(comm: Any) -> bool:
    """Return whether a communicator is of ranks that take turns on a GPU."""
    return hasattr(getattr(comm, "mpi", comm), "arena")


def run_with_gpu_memory(function: Callable, source: Any, config: Config, comm: Any, ranks: int,
                        *arguments: Any, **options: Any) -> Any:
    """Call `function` on local ranks, with arrays that take turns on a GPU.

    It is called as function(comm, source, config, ...). Each process of `comm`, an mpi4py
    communicator or None, has a GPU of its own and `ranks` ranks; 1: the plan chooses.
    Return the result of the first rank of this process. If the run fits config.gpu_memory
    with one rank in each process, `function` is called with `comm`. Errors as `plan_gpu`.
    """
    processes = as_comm(comm, config.comm_timeout)
    if processes.process_ranks > 1:
        raise UsageError(f"{setting('gpu_memory', config.gpu_memory)}: needs processes, and not "
                         "local ranks, which it starts")
    plan = None
    with processes.collective_errors():
        if processes.rank == 0:
            plan = plan_gpu(source, config, None if ranks == 1 else [ranks * processes.size],
                            gpus=processes.size)
            for line in table(plan).splitlines():
                log.info("%s", line)
    plan = processes.bcast(plan)
    if plan.ranks == plan.gpus:
        memory = "" if config.scratch else config.memory
        config = config.replace(gpu_memory="", scratch="", memory=memory)
        return function(comm, source, config, *arguments, **options)
    config = config.replace(strategy=strategy_setting(plan.strategy, read_options(config)))
    scratch = ScratchSpace(config.scratch, plan.ranks - plan.kept, plan.pool) if plan.pool else None
    gpu = choose("cuda", processes)
    with processes.collective_errors():
        turns = GpuTurns(plan.turns, plan.slots, plan.slot_bytes, plan.gpu_memory, scratch,
                         cast("Cuda", gpu))
    result = run_on_gpu(function, turns, source, config, *arguments, processes=processes,
                        **options)[0]
    told = processes.allgather(turns.told())
    log.info("%s: %s", "GPU" if plan.gpus == 1 else f"a GPU of {plan.gpus}, at most", ", ".join(
        f"{name} {value / 1e9:.4g} GB" if name.endswith("bytes") else f"{name} {value:.3g}"
        for name in told[0] for value in [max(each[name] for each in told)]))
    return result

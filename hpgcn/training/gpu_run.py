"""Run on ranks of this process that take turns on a GPU."""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpgcn.comm import run_on_gpu
from hpgcn.planning.answers.gpu_plan import plan_gpu, table
from hpgcn.runtime.gpu.gpu_turns import GpuTurns
from hpgcn.runtime.gpu.host_memory import ScratchSpace
from hpgcn.strategies import read_options, strategy_setting

if TYPE_CHECKING:
    from hpgcn.config import Config

log = logging.getLogger("hpgcn")


def run_with_gpu_memory(function: Callable, source: Any, config: Config, ranks: int,
                        *arguments: Any, **options: Any) -> Any:
    """Call `function` on ranks of this process, with arrays that take turns on a GPU.

    It is called as function(comm, source, config, ...). Return the result of rank 0. The
    plan chooses the number of ranks if `ranks` is 1. If the run fits config.gpu_memory in
    one piece, `function` is called with None in place of a communicator. Errors as
    `plan_gpu`.
    """
    plan = plan_gpu(source, config, None if ranks == 1 else [ranks])
    for line in table(plan).splitlines():
        log.info("%s", line)
    if plan.ranks == 1:
        memory = "" if config.scratch else config.memory
        config = config.replace(gpu_memory="", scratch="", memory=memory)
        return function(None, source, config, *arguments, **options)
    config = config.replace(strategy=strategy_setting(plan.strategy, read_options(config)))
    scratch = ScratchSpace(config.scratch, plan.ranks - plan.kept, plan.pool) if plan.pool else None
    turns = GpuTurns(plan.ranks, plan.slots, plan.slot_bytes, plan.gpu_memory, scratch)
    result = run_on_gpu(function, turns, source, config, *arguments, **options)[0]
    told = turns.told()
    log.info("GPU: %s", ", ".join(
        f"{name} {value / 1e9:.4g} GB" if name.endswith("bytes") else f"{name} {value:.3g}"
        for name, value in told.items()))
    return result

"""Run on ranks of this process whose arrays are files of a scratch folder."""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpgcn.comm import run_on_disk
from hpgcn.errors import UsageError, setting
from hpgcn.planning.answers.scratch_plan import plan_scratch, table
from hpgcn.sampling import FULL
from hpgcn.strategies import read_options, strategy_setting

if TYPE_CHECKING:
    from hpgcn.config import Config

log = logging.getLogger("hpgcn")


def run_with_scratch(function: Callable, source: Any, config: Config, ranks: int, *arguments: Any,
                     **options: Any) -> Any:
    """Call `function` on ranks of this process, with arrays in files.

    It is called as function(comm, source, config, ...). The files lie in
    config.scratch. Return the result of rank 0. The plan chooses the number of ranks if
    `ranks` is 1. If the run fits config.memory without files, `function` is called with
    None in place of a communicator. Full batches then keep config.memory; mini-batches
    in memory take none. Errors as `plan_scratch`.
    """
    plan = plan_scratch(source, config, None if ranks == 1 else [ranks])
    for line in table(plan).splitlines():
        log.info("%s", line)
    if plan.ranks == 1:
        config = config.replace(scratch="", memory=config.memory if config.batch == FULL else "")
        return function(None, source, config, *arguments, **options)
    config = config.replace(strategy=strategy_setting(plan.strategy, read_options(config)))
    return run_on_disk(function, plan.ranks, config.scratch, source, config, *arguments,
                       kept=plan.kept, **options)[0]


def check_comm(config: Config, comm: Any) -> None:
    """Raise UsageError if `scratch` needs ranks of this process, but `comm` has others."""
    local = hasattr(comm, "disk") or getattr(comm, "process_ranks", 1) > 1
    if config.scratch and not local:
        raise UsageError(f"{setting('scratch', config.scratch)}: runs ranks in this process, "
                         "without a launcher and without a communicator")

"""Plan a run whose arrays are files of a scratch folder: ranks, bytes and seconds."""
import os
from dataclasses import asdict, dataclass, replace

import numpy as np

from hpgcn import model
from hpgcn.errors import ConfigError, StorageError, UsageError, assigned, setting
from hpgcn.parallel.counts import copied
from hpgcn.planning.answers.batch_report import plans_of
from hpgcn.planning.answers.candidates import (
    Candidate,
    arranged,
    candidates,
    count_candidate,
    default_ranks,
)
from hpgcn.planning.counts.batch_reads import BatchReads, batch_reads
from hpgcn.planning.counts.disk_traffic import disk_traffic, most_waiting, small_arrays
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.step_seconds import Machine, compute_seconds
from hpgcn.runtime.copy_rates import CopyRates, measure_disk
from hpgcn.runtime.disk.scratch_folder import check_scratch
from hpgcn.runtime.machine import size
from hpgcn.runtime.text_table import label_list
from hpgcn.sampling import FULL, parse
from hpgcn.strategies import CHOOSING, STRATEGIES, read_options, strategy_by_name, variant

PROCESS = 240 << 20  # bytes of the interpreter, its libraries and small arrays
RANK = 2 << 20  # bytes of the small arrays, the objects and the thread of each rank
PAIR = 8 << 10  # bytes of Python's objects for a block of a matrix, and messages with its rank
TURNS = 3  # turns whose pages are in memory: one runs, one is read, one is written


def process_bytes(ranks):
    """Return the bytes of a process of local ranks without their large arrays."""
    return PROCESS + ranks * RANK


class TurnsPlan:
    """Base class of plans of ranks that take turns, with the bytes of an epoch."""

    @property
    def nbytes(self):
        """Bytes read and written in an epoch, with its share of an evaluation: a pair."""
        return self.in_epoch(self.read, self.written, self.evaluation_read, self.evaluation_written)

    def in_epoch(self, read, written, evaluation_read, evaluation_written):
        """Return the bytes of an epoch from those of its training steps and of an evaluation."""
        share = 1 / self.eval_every if self.eval_every else 0
        return round(read + share * evaluation_read), round(written + share * evaluation_written)


@dataclass(frozen=True)
class ScratchPlan(TurnsPlan):
    """Number of ranks on which a run fits the memory, and the bytes that it moves."""

    graph: str
    strategy: str
    ranks: int  # 1: the run fits without files
    kept: int  # the last ranks, whose arrays stay in memory
    memory: int  # bytes that the process may take
    needed: int  # bytes of a run on one rank in memory
    scratch: int  # bytes of files
    turn: int  # bytes of the largest turn
    read: int  # bytes that training steps of an epoch read
    written: int
    evaluation_read: int
    evaluation_written: int
    eval_every: int
    compute_s: float | None  # computing time of these steps; None: not forecast
    disk: CopyRates
    batch: str = FULL
    steps: int = 1  # training steps in an epoch
    batches_memory: int = 0  # bytes of mini-batches, which are always in memory
    messages: int = 0  # bytes of messages between ranks that are in memory at a time
    small: int = 0  # bytes of objects, and of arrays that are too small for files

    @property
    def least(self):
        """Bytes of memory that the run needs at least."""
        return (process_bytes(self.ranks) + TURNS * self.turn + self.batches_memory
                + self.messages + self.small)

    @property
    def seconds(self):
        """Seconds of an epoch: those of the disk or of computing, if these are more.

        None for mini-batches, whose reads are short.
        """
        if self.compute_s is None:
            return None
        return max(self.compute_s, self.disk.seconds(*self.nbytes))

    def as_dict(self):
        """Return the JSON object of docs/larger-than-memory.md."""
        read, written = self.nbytes
        return {**asdict(self), "bytes_read_per_epoch": read, "bytes_written_per_epoch": written,
                "seconds_per_epoch": self.seconds}


def plan_scratch(path, config, ranks=None, widths=None, machine=None):
    """Return the ScratchPlan of a run with config.memory and config.scratch.

    The number of ranks is the first that fits of `ranks`, a list. By default these are
    the parts of a partitioned file, else powers of two. The disk is that of the Machine,
    if it has one; else it is measured. ConfigError if none fits;
    StorageError if the folder cannot be written or has too little space. Errors of
    mini-batches as `hpgcn.planning.answers.batch_report.sampler_of`.
    """
    if not config.memory:
        raise UsageError(f"{setting('scratch', config.scratch)}: needs {setting('memory')}")
    check_strategy(config, "scratch")
    machine = machine_of_turns(config, machine)
    disk = machine.disk
    memory = size(config.memory)
    inputs = PlanInput(path, config, widths)

    # on one rank, in memory
    in_memory = _count(inputs, candidates(inputs, (1,))[0]) if has_one(inputs) else None
    needed = 0
    if in_memory:
        arrays = in_memory.footprint.peak.max() + in_memory.copies.sum()
        needed = int(arrays) + in_memory.memory + PROCESS
    if in_memory and needed <= memory and (ranks is None or 1 in ranks):
        return ScratchPlan(inputs.name, "", 1, 1, memory, needed, 0, 0, 0, 0, 0, 0,
                           config.eval_every, turns_seconds(machine, in_memory), disk, config.batch,
                           in_memory.steps, in_memory.memory)

    # the fewest ranks that fit
    plans = []
    for candidate in local_candidates(inputs, ranks):
        plans.append(_plan_of(inputs, candidate, memory, needed, machine))
        if plans[-1].kept >= 0:
            break
    else:
        raise ConfigError(f"{inputs.name}: needs {_shortage(inputs, plans, ranks, memory)}")
    plan = plans[-1]
    check_space(config.scratch, plan.scratch)
    return plan


def machine_of_turns(config, machine):
    """Return the Machine of ranks of which one computes at a time, with the disk of a Config.

    The disk is measured if the Machine has none. StorageError if the folder cannot be
    written.
    """
    machine = machine or Machine()
    machine = replace(machine, rates=machine.rates[:1])
    if not config.scratch:
        return machine
    check_scratch(config.scratch)
    return replace(machine, disk=machine.disk or measure_disk(config.scratch))


def check_space(folder, needed):
    """Raise StorageError if a folder has less than `needed` bytes of free space."""
    found = os.statvfs(folder) if needed else None
    if found and found.f_bavail * found.f_frsize < needed:
        raise StorageError(f"{setting('scratch', folder)}: {found.f_bavail * found.f_frsize:,} "
                           f"bytes are free, but the arrays need {needed:,}")


def takes(config):
    """Return whether ranks of a run with the strategy of a Config may take turns."""
    name = read_options(config).strategy
    return config.delay == type(config).delay and (name in CHOOSING or name in STRATEGIES)


def check_strategy(config, limit):
    """Raise UsageError for a strategy that `takes` does not take; `limit` is the setting."""
    for name in read_options(config).strategy.split("+"):
        if name not in CHOOSING:
            strategy_by_name(name)
    if not takes(config):
        field = "strategy" if config.delay == type(config).delay else "delay"
        raise UsageError(f"{assigned(field, getattr(config, field))}: does not combine with "
                         f"{setting(limit, getattr(config, limit))}, which takes one strategy for "
                         "all layers, without a delay")


def _shortage(inputs, plans, ranks, memory):
    """Return the bytes that ScratchPlans need beyond the memory, and a remedy; text."""
    if not plans:
        parts = ", ".join(map(str, sorted(inputs.part_counts)))
        wanted = ", ".join(str(each) for each in ranks or () if each > 1) or "several"
        return f"{wanted} ranks" + f", but the file has parts for {parts}" * bool(parts)
    plan = min(plans, key=lambda each: each.least)
    needed = f"{plan.least:,} bytes, but {setting('memory')} is {memory:,}"
    if memory < PROCESS:
        return f"{needed}; the interpreter and its libraries take {PROCESS:,}"

    # turns and messages of more ranks are shorter, but each rank has small arrays
    _, reason, change = max((TURNS * plan.turn + plan.messages, "more parts may need less", 1),
                            (plan.batches_memory, "most of them are of batches, so smaller "
                             "ones need less", 0),
                            (plan.ranks * RANK + plan.small, "most of them are small arrays of "
                             "each rank, so fewer parts may need less", -1))
    tried = [each.ranks for each in plans]
    if change and plan.ranks != (max if change > 0 else min)(tried):
        reason = f"no other number of ranks from {min(tried)} to {max(tried)} needs less"
    return f"{needed}; {reason}"


def has_one(inputs):
    return not inputs.part_counts or 1 in inputs.part_counts


def local_candidates(inputs, ranks):
    """Return the Candidates of the strategy in the settings, with fewest ranks first.

    If no nonzeros have owners yet, they are counted at the owners of their rows. UsageError
    if the strategy computes the model on none of `ranks`.
    """
    by_rows = next(each.name for each in STRATEGIES.values() if each.requires_partition)
    name = inputs.strategy_options.strategy
    name = by_rows if name in CHOOSING else name
    counted = name
    if STRATEGIES[name].accepts_nonzero_owners and not inputs.edge_parts:
        counted = by_rows
    if ranks is None and inputs.part_counts:
        ranks = sorted(inputs.part_counts)
    found = [replace(each, strategy=name) for each in candidates(inputs, ranks and tuple(ranks))
             if each.strategy == counted and each.ranks > 1]
    if not found:
        for each in ranks or default_ranks(inputs):
            model.check_strategy(STRATEGIES[name], inputs.spec, each)
    return found


def _count(inputs, candidate):
    """Return the BatchReads of a Candidate; those of full batches have no bytes."""
    footprint = count_candidate(inputs, candidate)
    request = parse(inputs.config.batch)
    if request is None:
        zero = np.zeros_like(footprint.rows)
        return BatchReads(footprint, 1, zero, 0, zero)
    strategy = variant(STRATEGIES[candidate.strategy], inputs.config)
    ordered = arranged(inputs, candidate, strategy)[0].in_order()
    return batch_reads(footprint, plans_of(footprint, ordered, inputs, request),
                       ordered.of_training.feature_entries)


def turns_seconds(machine, counted):
    """Return the seconds of all ranks, one after the other, in a step.

    Return None for mini-batches.
    """
    if counted.memory:
        return None
    return float(machine.compute_factor * compute_seconds(machine, counted.footprint).sum())


def _plan_of(inputs, candidate: Candidate, memory, needed, machine):
    """Return the ScratchPlan of a Candidate; `kept` is below 0 if it does not fit."""
    counted = _count(inputs, candidate)
    footprint, strategy = counted.footprint, STRATEGIES[candidate.strategy]
    train, evaluated = disk_traffic(footprint, strategy)
    moving = [evaluated] if counted.memory else [train, evaluated]  # batches are in memory
    turn = max(int(each.turn.max()) for each in moving)
    messages = max(each.messages for each in moving)

    # if there is room, arrays of the last ranks and messages to them stay in memory
    arrays = footprint.spooled_total + counted.copies
    small = int(small_arrays(footprint).sum())
    small += PAIR * sum(int(np.sum(operand.blocks)) for operand in footprint.operands)
    limit = memory - process_bytes(candidate.ranks) - counted.memory - messages - small
    spare = limit - TURNS * turn
    kept = -1
    if spare >= 0:
        received = most_waiting(disk_traffic(footprint, strategy, rule=copied))[1]
        kept = int(np.count_nonzero(np.cumsum((arrays + received)[::-1]) <= spare))
    in_files = candidate.ranks - max(kept, 0)
    if kept > 0:
        train, evaluated = disk_traffic(footprint, strategy, in_files)
    moved = [int(each.sum()) for traffic in (train, evaluated)
             for each in (traffic.read, traffic.written)]
    if counted.memory:
        moved[:2] = int(counted.read[:in_files].sum()), 0
    scratch = file_bytes(footprint, strategy, (train, evaluated), in_files)
    scratch += int(counted.copies[:in_files].sum())
    needed = needed or int((footprint.total + counted.copies).sum()) + counted.memory + PROCESS
    return ScratchPlan(inputs.name, candidate.strategy, candidate.ranks, kept, memory,
                       needed, scratch, turn, *moved, inputs.config.eval_every,
                       turns_seconds(machine, counted), machine.disk, inputs.config.batch,
                       counted.steps, counted.memory, messages, small)


def file_bytes(footprint, strategy, traffics, in_files):
    """Return the bytes of files: arrays of the first `in_files` ranks, and most messages.

    `traffics` is what `disk_traffic` returns. The matrix of all ranks may be in the Spool.
    """
    found = footprint.spooled_total[:in_files].sum() + most_waiting(traffics)[0].sum()
    if strategy.spools_matrix:
        found += footprint.parts["matrix"][in_files:].sum()
    return int(found)


def table(plan):
    """Return a ScratchPlan as text."""
    lines = [("memory", f"{plan.memory / 1e9:.3g} GB; in memory the run needs "
              f"{plan.needed / 1e9:.3g} GB")]
    if plan.ranks == 1:
        return label_list([*lines, ("scratch", "not used: the run fits")], width=19)
    read, written = plan.nbytes
    kept = f", {plan.kept} of them in memory" * (plan.kept > 0)
    lines += [("local ranks", f"{plan.ranks}{kept}, strategy {plan.strategy}"),
              ("scratch", f"{plan.scratch / 1e9:.3g} GB"),
              ("a turn of a rank", f"at most {plan.turn / 1e9:.3g} GB")]
    if plan.batch != FULL:
        lines.append(("batches", f"{plan.steps:,} per epoch, {plan.batches_memory / 1e9:.3g} GB of "
                      "memory"))
    lines += [("disk per epoch", f"{read / 1e9:.4g} GB read, {written / 1e9:.4g} GB written"),
              ("disk", plan.disk.text)]
    if plan.seconds is None:
        seconds = "not forecast for mini-batches, whose reads are short"
    else:
        seconds = (f"{plan.seconds:.3g}: disk {plan.disk.seconds(read, written):.3g}, computing "
                   f"{plan.compute_s:.3g} on the machine that `hpgcn plan` assumes")
    return label_list([*lines, ("seconds per epoch", seconds)], width=19)

"""Plan a run whose ranks take turns on GPUs: ranks, slots, bytes copied and seconds."""
from dataclasses import asdict, dataclass, replace

import numpy as np

from hpgcn.errors import ConfigError, UsageError, assigned, setting
from hpgcn.planning.answers.candidates import candidates, count_candidate, default_ranks
from hpgcn.planning.answers.scratch_plan import TurnsPlan, has_one, local_candidates
from hpgcn.planning.counts.disk_traffic import gpu_traffic, small_bytes
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.message_seconds import bytes_between
from hpgcn.planning.seconds.step_seconds import Machine, compute_seconds
from hpgcn.runtime.copy_rates import PCIE, CopyRates
from hpgcn.runtime.gpu import gpu_turns
from hpgcn.runtime.machine import size
from hpgcn.runtime.text_table import label_list
from hpgcn.sampling import FULL
from hpgcn.strategies import STRATEGIES

SMALL_ARRAYS = 64  # arrays of a rank below the threshold, at most, besides those of the matrix
MARGIN = 16  # one part in this many of a slot is for gaps between its arrays
SLOTS = 2, 3  # ranks on the GPU: one runs, the next one comes, the last one may still go


@dataclass(frozen=True)
class GpuPlan(TurnsPlan):
    """Number of ranks whose turns fit on GPUs, and the bytes that a GPU copies.

    Bytes and seconds are those of the GPU with most.
    """

    graph: str
    strategy: str
    ranks: int  # one for each GPU: the run fits in one piece
    gpus: int  # each of a process with equally many ranks
    slots: int  # parts of GPU memory, each for the arrays of a rank
    slot: int  # bytes that a slot needs
    small: int  # bytes of small arrays of all ranks, which stay on the GPU
    gpu_memory: int  # bytes of the GPU that the run may take
    needed: int  # bytes of a run in one piece; 0: not counted, because the file has no such parts
    home: int  # bytes of pinned host memory
    read: int  # bytes that a training step copies to the GPU
    written: int  # from it
    evaluation_read: int
    evaluation_written: int
    eval_every: int
    sent: int  # bytes that a process sends to others in a training step
    compute_s: float  # seconds of all kernels in a training step
    rates: CopyRates  # over PCIe
    measured: bool  # whether the rates are those of a machine file

    @property
    def turns(self):
        """Number of ranks that take turns on a GPU."""
        return self.ranks // self.gpus

    @property
    def least(self):
        """Bytes of the GPU that the run needs at least."""
        return self.slots * self.slot + self.small

    @property
    def slot_bytes(self):
        """Bytes that each slot gets: all that small arrays leave."""
        return (self.gpu_memory - self.small) // self.slots // 512 * 512

    @property
    def copy_s(self):
        """Seconds of the copies of an epoch; both ways go at the same time."""
        return self.rates.seconds(*self.nbytes)

    @property
    def seconds(self):
        """Seconds of an epoch: those of copies or of kernels, if these are more."""
        return max(self.copy_s, self.compute_s)

    def as_dict(self):
        """Return the JSON object of docs/larger-than-gpu.md."""
        read, written = self.nbytes
        return {**asdict(self), "bytes_to_gpu_per_epoch": read, "bytes_from_gpu_per_epoch": written,
                "seconds_per_epoch": self.seconds}


def plan_gpu(path, config, ranks=None, widths=None, machine=None, gpus=1):
    """Return the GpuPlan of a run with config.gpu_memory on each of some GPUs.

    The number of ranks is the first that fits of `ranks`, a list. By default these are the
    parts of a partitioned file, else powers of two for each GPU. ConfigError if none fits,
    which names the number that does, or if GPUs cannot divide them evenly. UsageError for
    settings that do not go together.
    """
    check_settings(config)
    if gpus < 1:
        raise UsageError(f"{assigned('gpus', gpus)}: expected a number from 1")
    for uneven in (each for each in ranks or () if each % gpus):
        raise ConfigError(f"{setting('ranks', uneven)}: {gpus} GPUs cannot divide them evenly")
    machine = machine or Machine()
    machine = replace(machine, rates=machine.rates[:1])  # one rank of a GPU computes at a time
    inputs = PlanInput(path, config, widths)
    limit = size(config.gpu_memory)
    needed = 0
    for whole in _candidates(inputs, [gpus]):
        plan = _plan_of(inputs, whole, limit, 0, machine, gpus)
        needed = plan.slot
        if needed <= limit and (ranks is None or gpus in ranks):
            return replace(plan, needed=needed, slots=1, read=0, written=0, evaluation_read=0,
                           evaluation_written=0, home=0)

    wanted = _first_that_fits(inputs, ranks, limit, needed, machine, gpus)
    if wanted[0] is not None:
        return wanted[0]
    raise ConfigError(_shortage(inputs, wanted[1], ranks, limit, needed, machine, gpus))


def _candidates(inputs, ranks):
    """Return the Candidates of the strategy in the settings on some numbers of ranks."""
    if ranks == [1]:
        return candidates(inputs, (1,))[:1] if has_one(inputs) else []
    fitting = [each for each in ranks if each in (inputs.part_counts or ranks)]
    return [*local_candidates(inputs, fitting)] if fitting else []


def _numbers(inputs, gpus):
    """Return the numbers of ranks that a plan tries, in rising order."""
    most = max(default_ranks(inputs))
    if inputs.part_counts:
        return sorted(each for each in inputs.part_counts if each > gpus and each % gpus == 0)
    return [gpus << e for e in range(1, 10) if gpus << e <= most]


def check_settings(config):
    """Raise UsageError for settings that do not go with gpu_memory."""
    given = setting("gpu_memory", config.gpu_memory)
    if config.device != "cuda" or config.updates_on != "cuda" or config.aggregates_on_host:
        raise UsageError(f"{given}: needs {setting('device', 'cuda')}, without "
                         f"{setting('aggregate_on')} and {setting('update_on')}")
    if config.scratch:
        raise UsageError(f"{given}: does not combine with {setting('scratch', config.scratch)}")
    if config.task == "links" or config.delay != "0":
        raise UsageError(f"{given}: trains neither {assigned('task', 'links')} nor with "
                         f"{assigned('delay')}")
    if config.batch != FULL:
        raise UsageError(f"{given}: needs full batches, but {setting('batch', config.batch)}; "
                         "batches that fit on the GPU need no limit")


def _first_that_fits(inputs, ranks, limit, needed, machine, gpus):
    """Return the first GpuPlan that fits, or None, and all that were counted."""
    plans = []
    for candidate in _candidates(inputs, _numbers(inputs, gpus) if ranks is None else ranks):
        plans.append(_plan_of(inputs, candidate, limit, needed, machine, gpus))
        if plans[-1].least <= limit:
            return plans[-1], plans
    return None, plans


def _shortage(inputs, plans, ranks, limit, needed, machine, gpus):
    """Return the bytes that a run needs beyond the limit, and ranks that fit, as text."""
    if not plans:
        parts = ", ".join(map(str, sorted(inputs.part_counts)))
        wanted = f"{ranks[0]} ranks" if ranks else f"more ranks than {gpus} that {gpus} GPUs divide"
        return (f"{inputs.name}: {setting('gpu_memory', limit)} needs {wanted}" +
                f", but the file has parts for {parts}" * bool(parts))
    best = min(plans, key=lambda each: each.least)
    text = (f"{inputs.name}: {_named(best)} need {best.least:,} bytes of GPU memory, but "
            f"{setting('gpu_memory')} is {limit:,}")
    if ranks is not None:
        other, others = _first_that_fits(inputs, None, limit, needed, machine, gpus)
        if other is not None:
            return f"{text}: {_named(other)} fit"
        plans = others or plans
    tried = [each.ranks for each in plans]
    return f"{text}: no number of ranks from {min(tried)} to {max(tried)} fits"


def _named(plan):
    """Return the number of ranks as text."""
    return f"{plan.turns} ranks" + f" on each of {plan.gpus} GPUs" * (plan.gpus > 1)


def _plan_of(inputs, candidate, limit, needed, machine, gpus):
    """Return the GpuPlan of a Candidate; it fits if `least` is at most `gpu_memory`."""
    footprint = count_candidate(inputs, candidate)
    turns = candidate.ranks // gpus

    def most(values):
        return int(np.reshape(values, (gpus, turns)).sum(1).max())

    itemsize = footprint.spec.row_itemsize
    total = footprint.on_gpu["total"]
    small = sum(small_bytes(operand, itemsize) for operand in footprint.operands)
    small = most((small + SMALL_ARRAYS * gpu_turns.THRESHOLD).clip(max=total))
    slot = int(total.max())
    if turns > 1:
        slot += slot // MARGIN
    slots = max((each for each in SLOTS if each * slot + small <= limit), default=SLOTS[0])
    slots = min(slots, turns)
    train, evaluated = gpu_traffic(footprint, STRATEGIES[candidate.strategy], slots, gpus)
    sent = np.zeros(candidate.ranks, int)
    if gpus > 1:
        places = np.repeat(np.arange(gpus), turns)
        sent = bytes_between(footprint.prediction, places, footprint.plan.is_floor).astype(int)
    return GpuPlan(
        inputs.name, candidate.strategy, candidate.ranks, gpus, slots, slot, small, limit,
        needed, most(total - footprint.on_gpu["kernels"]), most(train.read),
        most(train.written + sent), most(evaluated.read), most(evaluated.written),
        inputs.config.eval_every, most(sent),
        float(machine.compute_factor * np.reshape(
            compute_seconds(machine, footprint), (gpus, turns)).sum(1).max()),
        machine.pcie or PCIE, machine.pcie is not None)


def table(plan):
    """Return a GpuPlan as text."""
    several = f" on each of {plan.gpus} GPUs" * (plan.gpus > 1)
    pieces = f"on {plan.gpus} ranks" if several else "in one piece"
    whole = f"; {pieces} the run needs {plan.needed / 1e9:.3g} GB" if plan.needed else ""
    lines = [("GPU memory", f"{plan.gpu_memory / 1e9:.3g} GB{several}{whole}")]
    if plan.turns == 1:
        return label_list([*lines, ("turns", "none: the run fits")], width=19)
    read, written = plan.nbytes
    source = "of the machine file" if plan.measured else "assumed, as of PCIe 4.0 x16"
    lines += [
        ("local ranks", f"{plan.turns} take turns{several}, strategy {plan.strategy}"),
        ("peak on the GPU", f"{plan.least / 1e9:.3g} GB: {plan.slots} ranks of at most "
         f"{plan.slot / 1e9:.3g} GB, {plan.small / 1e9:.3g} GB of small arrays"),
        ("pinned host memory", f"{plan.home / 1e9:.3g} GB"),
        ("copies per epoch", f"{read / 1e9:.4g} GB to the GPU, {written / 1e9:.4g} GB from it"),
        *[("between GPUs", f"{plan.sent / 1e9:.4g} GB sent by a process in a training step, at "
           "most")] * bool(several),
        ("seconds per epoch", f"{plan.seconds:.3g}: copies {plan.copy_s:.3g}, computing "
         f"{plan.compute_s:.3g} on the machine of the plan"),
        ("copies", f"{plan.rates.text} ({source})")]
    return label_list(lines, width=19)

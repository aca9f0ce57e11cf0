"""Plan a run whose ranks take turns on a GPU: ranks, slots, bytes copied and seconds."""
from dataclasses import asdict, dataclass, replace

from hpgcn.errors import ConfigError, UsageError, assigned, setting
from hpgcn.planning.answers.candidates import candidates, count_candidate
from hpgcn.planning.answers.scratch_plan import TurnsPlan, has_one, local_candidates
from hpgcn.planning.counts.disk_traffic import gpu_traffic, small_bytes
from hpgcn.planning.counts.plan_input import PlanInput
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
    """Number of ranks whose turns fit on a GPU, and the bytes that it copies."""

    graph: str
    strategy: str
    ranks: int  # 1: the run fits in one piece
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
    compute_s: float  # seconds of all kernels in a training step
    rates: CopyRates  # over PCIe
    measured: bool  # whether the rates are those of a machine file

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


def plan_gpu(path, config, ranks=None, widths=None, machine=None):
    """Return the GpuPlan of a run with config.gpu_memory.

    The number of ranks is the first that fits of `ranks`, a list. By default these are the
    parts of a partitioned file, else powers of two. ConfigError if none fits, which names
    the number that does. UsageError for settings that do not go together.
    """
    check_settings(config)
    machine = machine or Machine()
    machine = replace(machine, rates=machine.rates[:1])  # one rank computes at a time
    inputs = PlanInput(path, config, widths)
    limit = size(config.gpu_memory)
    needed = 0
    if has_one(inputs):
        whole = _plan_of(inputs, candidates(inputs, (1,))[0], limit, 0, machine)
        needed = whole.slot
        if needed <= limit and (ranks is None or 1 in ranks):
            return replace(whole, slots=1, read=0, written=0, evaluation_read=0,
                           evaluation_written=0, home=0)

    wanted = _first_that_fits(inputs, ranks, limit, needed, machine)
    if wanted[0] is not None:
        return wanted[0]
    raise ConfigError(_shortage(inputs, wanted[1], ranks, limit, needed, machine))


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


def _first_that_fits(inputs, ranks, limit, needed, machine):
    """Return the first GpuPlan that fits, or None, and all that were counted."""
    plans = []
    for candidate in local_candidates(inputs, ranks):
        plans.append(_plan_of(inputs, candidate, limit, needed, machine))
        if plans[-1].least <= limit:
            return plans[-1], plans
    return None, plans


def _shortage(inputs, plans, ranks, limit, needed, machine):
    """Return the bytes that a run needs beyond the limit, and ranks that fit, as text."""
    if not plans:
        return f"{inputs.name}: {setting('gpu_memory', limit)} needs a graph with parts"
    best = min(plans, key=lambda each: each.least)
    text = (f"{inputs.name}: {best.ranks} ranks need {best.least:,} bytes of GPU memory, but "
            f"{setting('gpu_memory')} is {limit:,}")
    if ranks is not None:
        other, plans = _first_that_fits(inputs, None, limit, needed, machine)
        if other is not None:
            return f"{text}: {other.ranks} ranks fit"
    tried = [each.ranks for each in plans]
    return f"{text}: no number of ranks from {min(tried)} to {max(tried)} fits"


def _plan_of(inputs, candidate, limit, needed, machine):
    """Return the GpuPlan of a Candidate; it fits if `least` is at most `gpu_memory`."""
    footprint = count_candidate(inputs, candidate)
    train, evaluated = gpu_traffic(footprint, STRATEGIES[candidate.strategy], SLOTS[0])
    itemsize = footprint.spec.row_itemsize
    total = footprint.on_gpu["total"]
    small = sum(small_bytes(operand, itemsize) for operand in footprint.operands)
    small = int((small + SMALL_ARRAYS * gpu_turns.THRESHOLD).clip(max=total).sum())
    slot = int(total.max())
    if candidate.ranks > 1:
        slot += slot // MARGIN
    slots = max((each for each in SLOTS if each * slot + small <= limit), default=SLOTS[0])
    slots = min(slots, candidate.ranks)
    if slots != SLOTS[0]:
        train, evaluated = gpu_traffic(footprint, STRATEGIES[candidate.strategy], slots)
    return GpuPlan(
        inputs.name, candidate.strategy, candidate.ranks, slots, slot, small, limit, needed or slot,
        int((total - footprint.on_gpu["kernels"]).sum()), int(train.read.sum()),
        int(train.written.sum()), int(evaluated.read.sum()), int(evaluated.written.sum()),
        inputs.config.eval_every,
        float(machine.compute_factor * compute_seconds(machine, footprint).sum()),
        machine.pcie or PCIE, machine.pcie is not None)


def table(plan):
    """Return a GpuPlan as text."""
    whole = f"; in one piece the run needs {plan.needed / 1e9:.3g} GB" if plan.needed else ""
    lines = [("GPU memory", f"{plan.gpu_memory / 1e9:.3g} GB{whole}")]
    if plan.ranks == 1:
        return label_list([*lines, ("turns", "none: the run fits")], width=19)
    read, written = plan.nbytes
    source = "of the machine file" if plan.measured else "assumed, as of PCIe 4.0 x16"
    lines += [
        ("local ranks", f"{plan.ranks} take turns, strategy {plan.strategy}"),
        ("peak on the GPU", f"{plan.least / 1e9:.3g} GB: {plan.slots} ranks of at most "
         f"{plan.slot / 1e9:.3g} GB, {plan.small / 1e9:.3g} GB of small arrays"),
        ("pinned host memory", f"{plan.home / 1e9:.3g} GB"),
        ("copies per epoch", f"{read / 1e9:.4g} GB to the GPU, {written / 1e9:.4g} GB from it"),
        ("seconds per epoch", f"{plan.seconds:.3g}: copies {plan.copy_s:.3g}, computing "
         f"{plan.compute_s:.3g} on the machine of the plan"),
        ("copies", f"{plan.rates.text} ({source})")]
    return label_list(lines, width=19)

"""Plan a run whose ranks take turns on GPUs: ranks, slots, bytes copied and seconds."""
from dataclasses import asdict, dataclass, replace

import numpy as np

from hpgcn.comm.gpu_spool import STAGED
from hpgcn.errors import ConfigError, UsageError, assigned, setting
from hpgcn.parallel.counts import below_gpu, copied
from hpgcn.planning.answers.candidates import candidates, count_candidate, default_ranks
from hpgcn.planning.answers.scratch_plan import (
    PAIR,
    TURNS,
    TurnsPlan,
    check_space,
    check_strategy,
    has_one,
    local_candidates,
    machine_of_turns,
    process_bytes,
)
from hpgcn.planning.counts.disk_traffic import (
    disk_traffic,
    gpu_traffic,
    most_waiting,
    small_arrays,
)
from hpgcn.planning.counts.pinned_messages import pinned_messages
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.message_seconds import bytes_between
from hpgcn.planning.seconds.step_seconds import compute_seconds
from hpgcn.runtime.copy_rates import PCIE, CopyRates
from hpgcn.runtime.gpu import file_homes, gpu_turns
from hpgcn.runtime.gpu_limits import limit_of
from hpgcn.runtime.machine import size
from hpgcn.runtime.text_table import label_list
from hpgcn.sampling import FULL
from hpgcn.strategies import STRATEGIES

SMALL_ARRAYS = 64  # arrays of a rank below the threshold, at most, besides those of the matrix
MARGIN = 16  # one part in this many of a slot is for gaps between its arrays
PAGES = 64  # one part in this many of a home is what its last page has no use for, at most
SLOTS = 2, 3  # ranks on the GPU: one runs, the next one comes, the last one may still go
CONTEXT = 1 << 29  # bytes of host memory of CuPy and of the CUDA context, assumed
SET_UP = 2  # ranks whose arrays of set-up are in host memory: one runs, those of the last one go


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
    pinned: int  # bytes of pinned host memory: homes of blocks, and the pool before a file of them
    read: int  # bytes that a training step copies to the GPU
    written: int  # from it
    evaluation_read: int
    evaluation_written: int
    eval_every: int
    sent: int  # bytes that a process sends to others in a training step
    compute_s: float  # seconds of all kernels in a training step
    rates: CopyRates  # over PCIe
    measured: bool  # whether the rates are those of a machine file
    memory: int = 0  # bytes of the host that the process may take; 0: no limit
    host: int = 0  # bytes of it that the run needs at least
    kept: int = 0  # the last ranks, whose homes are in pinned memory
    pool: int = 0  # bytes of pinned memory before the file; 0: no file
    scratch: int = 0  # bytes of the file
    disk_read: int = 0  # bytes that a training step reads from the file
    disk_written: int = 0
    disk_evaluation_read: int = 0
    disk_evaluation_written: int = 0
    disk: CopyRates | None = None

    @property
    def fits(self):
        """Whether the run fits the GPU, and the memory of the host if that is limited."""
        return self.least <= self.gpu_memory and (not self.memory or self.host <= self.memory)

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
    def disk_nbytes(self):
        """Bytes read from the file and written to it in an epoch: a pair."""
        return self.in_epoch(self.disk_read, self.disk_written, self.disk_evaluation_read,
                             self.disk_evaluation_written)

    @property
    def disk_s(self):
        """Seconds of the disk in an epoch."""
        return self.disk.seconds(*self.disk_nbytes) if self.pool else 0.0

    @property
    def seconds(self):
        """Seconds of an epoch: those of copies, of the disk or of kernels, whichever are most."""
        return max(self.copy_s, self.disk_s, self.compute_s)

    def as_dict(self):
        """Return the JSON object of docs/larger-than-gpu.md."""
        names = "to_gpu", "from_gpu", "read", "written"
        return {**asdict(self), "seconds_per_epoch": self.seconds,
                **{f"bytes_{name}_per_epoch": count
                   for name, count in zip(names, (*self.nbytes, *self.disk_nbytes))}}


def plan_gpu(path, config, ranks=None, widths=None, machine=None, gpus=1):
    """Return the GpuPlan of a run with config.gpu_memory on each GPU, and maybe config.scratch.

    The number of ranks is the first that fits of `ranks`, a list. By default these are the
    parts of a partitioned file, else powers of two for each GPU. ConfigError if none fits,
    which names the number that does, or if GPUs cannot divide them evenly. UsageError for
    settings that do not go together. StorageError if the folder cannot be written or has
    too little space.
    """
    check_settings(config)
    if gpus < 1:
        raise UsageError(f"{assigned('gpus', gpus)}: expected a number from 1")
    for uneven in (each for each in ranks or () if each % gpus):
        raise ConfigError(f"{setting('ranks', uneven)}: {gpus} GPUs cannot divide them evenly")
    if config.scratch and gpus > 1:
        raise UsageError(f"{setting('scratch', config.scratch)}: needs one GPU and one process, "
                         f"but there are {gpus}")
    machine = machine_of_turns(config, machine)
    inputs = PlanInput(path, config, widths)
    limit = limit_of(config)
    needed = 0
    for whole in _candidates(inputs, [gpus]):
        plan = _plan_of(inputs, whole, limit, 0, machine, gpus)
        needed = plan.slot
        if plan.fits and (ranks is None or gpus in ranks):
            return replace(plan, needed=needed)

    wanted = _first_that_fits(inputs, ranks, limit, needed, machine, gpus)
    if wanted[0] is not None:
        check_space(config.scratch, wanted[0].scratch)
        return wanted[0]
    raise ConfigError(_shortage(inputs, wanted[1], ranks, limit, needed, machine, gpus))


def _candidates(inputs, ranks):
    """Return the Candidates of the strategy in the settings on some numbers of ranks."""
    if ranks == [1]:
        return candidates(inputs, (1,))[:1] if has_one(inputs) else []
    fitting = [each for each in ranks if each in (inputs.part_counts or ranks)]
    return local_candidates(inputs, fitting) if fitting else []


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
    if config.scratch and not config.memory:
        raise UsageError(f"{setting('scratch', config.scratch)}: needs {setting('memory')}")
    if config.task == "links":
        raise UsageError(f"{given}: does not train {assigned('task', 'links')}")
    check_strategy(config, "gpu_memory")
    if config.batch != FULL:
        raise UsageError(f"{given}: needs full batches, but {setting('batch', config.batch)}; "
                         "batches that fit on the GPU need no limit")


def _first_that_fits(inputs, ranks, limit, needed, machine, gpus):
    """Return the first GpuPlan that fits, or None, and all that were counted."""
    plans = []
    for candidate in _candidates(inputs, _numbers(inputs, gpus) if ranks is None else ranks):
        plans.append(_plan_of(inputs, candidate, limit, needed, machine, gpus))
        if plans[-1].fits:
            return plans[-1], plans
    return None, plans


def _shortage(inputs, plans, ranks, limit, needed, machine, gpus):
    """Return the bytes that a run needs beyond the limit, and ranks that fit, as text."""
    if not plans:
        parts = ", ".join(map(str, sorted(inputs.part_counts)))
        wanted = f"{ranks[0]} ranks" if ranks else f"more ranks than {gpus} that {gpus} GPUs divide"
        return (f"{inputs.name}: {setting('gpu_memory', limit)} needs {wanted}" +
                f", but the file has parts for {parts}" * bool(parts))
    on_gpu = min(plans, key=lambda each: each.least)
    on_host = min((each for each in plans if each.least <= limit), default=None,
                  key=lambda each: each.host)
    best, where, needs, name, given = on_gpu, "GPU", on_gpu.least, "gpu_memory", limit
    if on_host is not None:
        best, where, needs, name, given = on_host, "host", on_host.host, "memory", on_host.memory
    text = (f"{inputs.name}: {_named(best)} need {needs:,} bytes of {where} "
            f"memory, but {setting(name)} is {given:,}")
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

    strategy = STRATEGIES[candidate.strategy]
    copies = disk_traffic(footprint, strategy, rule=copied, processes=gpus)
    total = footprint.on_gpu["total"]
    homes, staged = total - footprint.on_gpu["kernels"], 0
    waiting = np.zeros((2, candidate.ranks), int)
    messages = np.zeros(gpus, int)
    matrix = np.zeros_like(total)  # a matrix in homes that no rank has
    if turns > 1:  # messages have staging memory instead of buffers
        if strategy.spools_matrix:
            matrix = footprint.parts["matrix"]
        staged = (STAGED + strategy.spools_matrix) * max(each.largest for each in copies)
        moved = footprint.message_buffers + matrix
        total, homes = total - moved + max(each.joined for each in copies), homes - moved
        waiting = most_waiting(copies)
        if strategy.sends_own_rows:  # all of a process wait at a time
            sent = waiting[0] if gpus == 1 else waiting.sum(0)
            messages = np.reshape(sent, (gpus, turns)).sum(1)
        else:
            messages = pinned_messages(footprint, strategy, gpus)
    homes = homes + homes // PAGES
    small = small_arrays(footprint) + SMALL_ARRAYS * gpu_turns.THRESHOLD
    small = most(small.clip(max=total)) + staged
    slot = int(total.max())
    if turns > 1:
        slot += slot // MARGIN
    slots = max((each for each in SLOTS if each * slot + small <= limit), default=SLOTS[0])
    slots = min(slots, turns)
    train, evaluated = gpu_traffic(copies, slots, gpus)
    sent = np.zeros(candidate.ranks, int)
    if gpus > 1:
        places = np.repeat(np.arange(gpus), turns)
        sent = bytes_between(footprint.prediction, places, footprint.plan.is_floor).astype(int)
    moved = [most(each) for each in (train.read, train.written, evaluated.read,
                                     evaluated.written)]
    if turns == 1:
        slots, homes, moved = 1, 0 * homes, [0] * 4
    pinned = int((np.reshape(homes + matrix, (gpus, turns)).sum(1) + messages).max())
    plan = GpuPlan(
        inputs.name, candidate.strategy, candidate.ranks, gpus, slots, slot, small, limit, needed,
        pinned, *moved, inputs.config.eval_every, most(sent),
        float(machine.compute_factor * np.reshape(
            compute_seconds(machine, footprint), (gpus, turns)).sum(1).max()),
        machine.pcie or PCIE, machine.pcie is not None)
    if not inputs.config.scratch:
        return plan
    return _with_file(plan, size(inputs.config.memory), (homes, *waiting), int(matrix.sum()),
                      footprint, strategy, machine.disk)


def _with_file(plan, memory, homes, stored, footprint, strategy, disk):
    """Return a GpuPlan with homes in a file, if `memory` has no room for all of them.

    `homes` are bytes by rank: of arrays, and of messages that wait, from it and to it. Those
    of the last ranks stay in memory if there is room beside the pool. `stored` are bytes of a
    matrix that is in the file alone.
    """
    arrays, sent, received = homes
    blocks = sum(int(np.sum(operand.blocks)) for operand in footprint.operands)
    process = (process_bytes(plan.ranks) + CONTEXT + PAIR * blocks
               + min(SET_UP, plan.ranks) * int(footprint.setup.max()))
    if process + plan.pinned <= memory:
        return replace(plan, memory=memory, host=process + plan.pinned, kept=plan.ranks)

    def count(in_files):
        """Return the DiskTraffic, and bytes of messages in the file and beside it."""
        traffic = disk_traffic(footprint, strategy, in_files, below_gpu)
        filed, _ = most_waiting(traffic)
        return traffic, int(filed.sum()), int((sent - filed).clip(min=0).sum())

    traffic, _, beside = count(plan.ranks)
    pool = max(file_homes.LEAST, TURNS * max(int(each.turn.max()) for each in traffic))
    spare = memory - process - pool - beside
    kept = int(np.searchsorted(np.cumsum((arrays + received)[::-1]), spare, side="right"))
    kept = min(kept, plan.ranks - 1)
    host = process + pool + beside
    traffic, filed, beside = count(plan.ranks - kept)
    moved = [int(each.sum()) for one in traffic for each in (one.read, one.written)]
    cut = plan.ranks - kept
    return replace(
        plan, memory=memory, host=host, kept=kept, pool=pool,
        scratch=stored + int(arrays[:cut].sum()) + filed,
        pinned=pool + int(arrays[cut:].sum()) + beside,
        disk_read=moved[0], disk_written=moved[1], disk_evaluation_read=moved[2],
        disk_evaluation_written=moved[3], disk=disk)


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
        ("pinned host memory", f"{plan.pinned / 1e9:.3g} GB"),
        ("copies per epoch", f"{read / 1e9:.4g} GB to the GPU, {written / 1e9:.4g} GB from it"),
        *[("between GPUs", f"{plan.sent / 1e9:.4g} GB sent by a process in a training step, at "
           "most")] * bool(several),
        ("copies", f"{plan.rates.text} ({source})")]
    if plan.memory:
        lines.insert(-2, ("host memory", f"{plan.memory / 1e9:.3g} GB, of which the run needs "
                          f"{plan.host / 1e9:.3g} GB"))
    disk = ""
    if plan.pool:
        read, written = plan.disk_nbytes
        disk = f"disk {plan.disk_s:.3g}, "
        lines += [
            ("scratch", f"{plan.scratch / 1e9:.3g} GB; pinned are a pool of "
             f"{plan.pool / 1e9:.3g} GB, and homes of {plan.kept} ranks"),
            ("disk per epoch", f"{read / 1e9:.4g} GB read, {written / 1e9:.4g} GB written"),
            ("disk", plan.disk.text)]
    lines.append(("seconds per epoch", f"{plan.seconds:.3g}: copies {plan.copy_s:.3g}, {disk}"
                  f"computing {plan.compute_s:.3g} on the machine of the plan"))
    return label_list(lines, width=19)

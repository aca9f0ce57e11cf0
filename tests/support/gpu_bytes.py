"""Bytes that ranks in turns on a GPU copy and move to a file, beside those of the plan."""
import numpy as np
from epoch_bytes import count_before_epochs, footprint_of
from graphs import make

from hpgcn import Config, save, train
from hpgcn.comm import run_on_gpu
from hpgcn.parallel.counts import below_gpu, copied
from hpgcn.partition import make_partition
from hpgcn.planning.answers.gpu_plan import plan_gpu
from hpgcn.planning.answers.scratch_plan import TURNS
from hpgcn.planning.counts import touches
from hpgcn.planning.counts.disk_traffic import disk_traffic, gpu_traffic
from hpgcn.runtime.disk import scratch_folder
from hpgcn.runtime.gpu import file_homes, gpu_turns
from hpgcn.runtime.gpu.gpu_turns import GpuTurns
from hpgcn.runtime.gpu.host_memory import ScratchSpace
from hpgcn.store import write_partitioned
from hpgcn.strategies import STRATEGIES

SLOT = 48 << 20


def write_parts(path, strategy, n, ranks, *, directed=False):
    """Write a graph, partitioned for the ranks of a strategy if it takes parts."""
    graph = make(n=n, f=64, degree=8, directed=directed)
    if not STRATEGIES[strategy.split(":")[0]].accepts_partition:
        save(graph, path)
        return
    method = strategy if strategy == "vertex-cut" else "random"
    write_partitioned(path, graph, make_partition(graph, ranks, method=method, refine=False))


def heads_of(strategy, model, ranks):
    """Return a number of heads that ranks can share, if the strategy has them do so."""
    return 1 if model != "gat" else ranks if strategy == "mop" else 2


def move_small_arrays(monkeypatch, nbytes):
    """Let arrays from some bytes on have homes, and files."""
    for module in (gpu_turns, scratch_folder):
        monkeypatch.setattr(module, "THRESHOLD", nbytes)
    monkeypatch.setattr(touches, "LEAST", nbytes)
    monkeypatch.setattr(file_homes, "PIECE", 1 << 14)
    monkeypatch.setattr(file_homes, "LEAST", 1 << 17)


def moved_and_planned(monkeypatch, path, strategy, model, ranks, *, scratch="", kept=0, comm=None):
    """Return the bytes of an epoch with an evaluation, and those of the plan; (2,) or (4,) each.

    They are those copied to the GPU of this process and from it, and with `scratch` those
    read from a file and written to it.
    """
    config = Config(layers=3, hidden=64, epochs=4, device="cuda", strategy=strategy, model=model,
                    heads=heads_of(strategy, model, ranks))
    footprint, strategy = footprint_of(path, config, ranks), STRATEGIES[strategy.split(":")[0]]
    gpus, place = (comm.size, comm.rank) if comm else (1, 0)
    local = ranks // gpus
    own = slice(place * local, (place + 1) * local)

    def total(traffics, part):
        return np.sum([[getattr(each, way)[part].sum() for way in ("read", "written")]
                       for each in traffics], 0)

    copies = disk_traffic(footprint, strategy, rule=copied, processes=gpus)
    planned, space = total(gpu_traffic(copies, 2, gpus), own), None
    if scratch:
        steps = disk_traffic(footprint, strategy, ranks - kept, below_gpu)
        space = ScratchSpace(scratch, ranks - kept, TURNS * max(int(each.turn.max())
                                                                for each in steps))
        planned = np.append(planned, total(steps, slice(None)))
    turns = GpuTurns(local, 2, SLOT, scratch=space)

    def read():
        files = [*turns.host.files.moved.values()] if scratch else []
        return [*np.sum([*turns.copied.values()], 0), *files]

    counts = count_before_epochs(monkeypatch, ranks, read, own.start)
    run_on_gpu(lambda each: train(path, config, each), turns,
               processes=comm.mpi if comm else None)
    return counts[3] - counts[2], planned


def pinned_and_planned(path, strategy, model, ranks, *, comm=None):
    """Return the bytes of pinned memory that this process takes, and those of the plan."""
    config = Config(layers=3, hidden=64, epochs=2, device="cuda", strategy=strategy, model=model,
                    heads=heads_of(strategy, model, ranks))
    gpus = comm.size if comm else 1
    turns = GpuTurns(ranks // gpus, 2, 2 * SLOT)
    run_on_gpu(lambda each: train(path, config, each), turns,
               processes=comm.mpi if comm else None)
    plan = plan_gpu(path, config.replace(gpu_memory="1G"), [ranks], gpus=gpus)
    return turns.host.nbytes, plan.pinned

"""Print the tables of docs/larger-than-memory.md and docs/gpu-forecasts.md, which are plans.

    python scripts/larger_than_memory.py [ghosts]

Sizes of a rank are means over ranks. `ghosts` are the rows of other ranks that a rank
reads for each own row (default: 1); they depend on the partition.
"""
import sys
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from hpgcn.config import Config
from hpgcn.graphs.graph import Header
from hpgcn.model import make_spec
from hpgcn.planning.answers.gpu_plan import CONTEXT
from hpgcn.planning.answers.scratch_plan import TURNS, process_bytes
from hpgcn.planning.counts.disk_traffic import disk_traffic
from hpgcn.planning.counts.footprint import VERTEX
from hpgcn.planning.counts.shaped_step import LevelSizes, run_rank
from hpgcn.planning.seconds.memory_rates import compute_seconds
from hpgcn.planning.seconds.step_seconds import Machine
from hpgcn.runtime.copy_rates import PCIE
from hpgcn.strategies.p2p import PointToPoint
from hpgcn.strategies.plan import Operand

MEMORIES = 32, 64, 128, 256  # GB
DISKS = 1, 3, 7, 14  # GB/s, read and written together
GPU_DISKS = 6, 12  # GB/s, as one NVMe drive of PCIe 4.0 may have, and two
SAR = 3.8 * 128 * 2  # socket-seconds of an epoch on 128 nodes of two sockets
CARD = Machine(memory_bytes_per_s=768e9, gemm_float32_flops_per_s=20e12)  # a GPU of 24 GB
CARD_BYTES = 23.5e9  # without the CUDA context and the work memory of cuBLAS
SLOTS, GAPS = 2, 17 / 16  # ranks on the GPU, and their bytes with the gaps between arrays


class Case(NamedTuple):
    """A graph and a GCN, with the seconds of GriNNder (arXiv 2605.11517) on one GPU."""

    name: str
    vertices: int
    entries: int
    widths: tuple
    memory: float = CARD_BYTES  # bytes of the GPU
    peer: str = "-"  # seconds of an epoch
    host: float = np.inf  # bytes of the host; beyond them homes are in a file

    @property
    def spec(self):
        header = Header(name=self.name, num_nodes=self.vertices, num_edges=self.entries,
                        num_features=self.widths[0], num_classes=self.widths[-1])
        return make_spec(header, Config(layers=len(self.widths) - 1, hidden=self.widths[1]))


PAPERS = Case("papers100M", 111_059_956, 3_228_124_712, (128, 256, 256, 172))
PRODUCTS = Case("ogbn-products", 2_449_029, 123_718_280, (100, 256, 47), peer="1.55")
CASES = (PRODUCTS, PRODUCTS._replace(memory=6.2e9, peer="6.7"),
         MEDIUM := Case("IGB-medium", 10_000_000, 240_155_388, (1024, 256, 19), peer="102"),
         MEDIUM._replace(host=128e9), PAPERS, PAPERS._replace(host=128e9))


class Plan(NamedTuple):
    """Bytes of a rank: in its arrays, in a turn, in messages, moved; its seconds."""

    stored: int
    turn: int
    messages: int
    read: int
    written: int
    compute_s: float


def plan(case, ranks, ghosts, near=1):
    """Return the Plan of a training step; messages to `near` next ranks are not moved."""
    spec = case.spec
    m, entries = case.vertices // ranks, case.entries // ranks
    levels = len(spec.layers) + 1
    sizes = LevelSizes([np.array([m])] * levels, [True] * levels, [m] * levels,
                       np.zeros((2, 1), np.int64))
    step = run_rank(spec, (sizes, sizes), 0, 1)
    others = int(m * ghosts) * (ranks > 1)

    # a block of the matrix for each rank that sends rows, with row pointers of its own
    matrix = Operand.of((1,), entries, ranks * (m + 1), results=m, blocks=ranks)
    each = others // max(ranks - 1, 1)
    transfer = SimpleNamespace(largest=each, spooled=lambda nbytes, in_files, pushed: np.full(
        (2, 1), each * max(ranks - 1 - near, 0) * nbytes))
    traffic = SimpleNamespace(
        period=1, slices=1, joined=False,
        moves=lambda product, itemsize: [(transfer, product.width * itemsize, False)],
        counts=lambda product, itemsize: np.array([[others * product.width * itemsize]] * 2))
    layout = SimpleNamespace(offsets=np.array([0, m]))
    grid = SimpleNamespace(nodes=SimpleNamespace(aware=False))
    maps = [SimpleNamespace(operands=(matrix, matrix), traffic=traffic, layout=layout,
                            layout_in=layout, rank_grid=grid, num_ranks=ranks)] * levels
    whole = SimpleNamespace(buffer_bytes=lambda *_: 0)
    footprint = SimpleNamespace(
        spec=spec, rank_steps=[step], train_plans=maps, evaluated_plans=maps, rows=np.array([m]),
        one_copy=(0, 0), products=step.products, widest=0,
        training=SimpleNamespace(plan_for_product=lambda number: whole))
    moved, _ = disk_traffic(footprint, PointToPoint)
    stored = (step.nbytes + m * (VERTEX + 4 * spec.widths[0]) + int(matrix.nbytes(4)[0])
              + 2 * others * max(spec.widths) * 4)
    return Plan(stored, int(moved.turn[0]), moved.messages, int(moved.read[0]),
                int(moved.written[0]), float(compute_seconds(CARD, footprint)[0]))


def on_disk(ghosts):
    """Print a line for each memory of a machine: papers100M with arrays in files."""
    print(f"in memory {plan(PAPERS, 1, ghosts).stored / 1e9:.0f} GB; SAR {SAR:.0f} socket-seconds")
    for memory in MEMORIES:
        for ranks in (2**k for k in range(1, 12)):
            found = plan(PAPERS, ranks, ghosts)
            room = memory * 1e9 - process_bytes(ranks) - TURNS * found.turn - found.messages
            if room >= 0:
                break
        moved = ranks - int(max(room, 0) // found.stored)
        stored, read, written = (moved * each / 1e9
                                 for each in (found.stored, found.read, found.written))
        hours = " | ".join(f"{(read + written) / rate / 3600:.2f}" for rate in DISKS)
        print(f"| {memory} | {ranks} | {stored:,.0f} | {read:,.0f} | {written:,.0f} | {hours} |")


def on_gpu(ghosts):
    """Print a line for each case: ranks take turns on a GPU, above host memory and maybe a disk."""
    for case in CASES:
        for ranks in (2**k for k in range(12)):
            found = plan(case, ranks, ghosts, near=0)
            room = case.host - process_bytes(ranks) - CONTEXT - TURNS * found.turn
            if room >= 0 and found.stored * (1 if ranks == 1 else SLOTS * GAPS) <= case.memory:
                break
        home, read, written = (ranks * each * (ranks > 1)
                               for each in (found.stored, found.read, found.written))
        kept = ranks if home <= room else int(room // found.stored)
        filed = 1 - kept / ranks
        copies, compute = PCIE.seconds(read, written), ranks * found.compute_s
        pinned = home * kept / ranks + TURNS * found.turn * (filed > 0)
        disks = [filed * (read + written) / 1e9 / rate for rate in GPU_DISKS]
        epochs = [f"{max(copies, compute, disk):.2f}" for disk in disks]
        print(f"| {case.name} | {case.memory / 1e9:.3g} | {ranks} | {pinned / 1e9:,.0f} | "
              f"{filed * home / 1e9:,.0f} | {read / 1e9:,.0f} | {written / 1e9:,.0f} | "
              f"{copies:.2f} | {compute:.2f} | {' | '.join(epochs)} | {case.peer} |")


if __name__ == "__main__":
    rows_of_others = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    on_disk(rows_of_others)
    on_gpu(rows_of_others)

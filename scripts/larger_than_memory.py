"""Print the table of docs/larger-than-memory.md: a GCN on ogbn-papers100M on one machine.

    python scripts/larger_than_memory.py [ghosts]

Sizes of a rank are means over ranks. `ghosts` are the rows of other ranks that a rank
reads for each own row (default: 1); they depend on the partition.
"""
import sys
from types import SimpleNamespace

import numpy as np

from hpgcn.config import Config
from hpgcn.graphs.graph import Header
from hpgcn.model import make_spec
from hpgcn.planning.answers.scratch_plan import TURNS, process_bytes
from hpgcn.planning.counts.disk_traffic import disk_traffic
from hpgcn.planning.counts.footprint import VERTEX
from hpgcn.planning.counts.shaped_step import LevelSizes, run_rank
from hpgcn.strategies.p2p import PointToPoint
from hpgcn.strategies.plan import Operand

VERTICES, ENTRIES, WIDTHS = 111_059_956, 3_228_124_712, (128, 256, 256, 172)
MEMORIES = 32, 64, 128, 256  # GB
DISKS = 1, 3, 7, 14  # GB/s, read and written together
SAR = 3.8 * 128 * 2  # socket-seconds of an epoch on 128 nodes of two sockets


def plan(ranks, ghosts, spec):
    """Return bytes of files, of the largest turn, read and written in a step, of all ranks."""
    m, entries = VERTICES // ranks, ENTRIES // ranks
    sizes = LevelSizes([np.array([m])] * 4, [True] * 4, [m] * 4, np.zeros((2, 1), np.int64))
    step = run_rank(spec, (sizes, sizes), 0, 1)
    others = int(m * ghosts) * (ranks > 1)

    # a block of the matrix for each rank that sends rows, with row pointers of its own
    matrix = Operand.of((1,), entries, ranks * (m + 1))
    traffic = SimpleNamespace(period=1, counts=lambda product, itemsize: np.array(
        [[others * product.width * itemsize]] * 2))
    maps = [SimpleNamespace(operands=(matrix, matrix), traffic=traffic)] * 3
    moved, _ = disk_traffic(SimpleNamespace(spec=spec, rank_steps=[step], train_plans=maps,
                                            evaluated_plans=maps), PointToPoint)
    stored = (step.nbytes + m * (VERTEX + 4 * spec.widths[0]) + int(matrix.nbytes(4)[0])
              + 2 * others * max(spec.widths) * 4)
    return ranks * stored, int(moved.turn[0]), ranks * int(moved.read[0]), \
        ranks * int(moved.written[0])


def main(ghosts=1.0):
    header = Header(name="papers100M", num_nodes=VERTICES, num_edges=ENTRIES,
                    num_features=WIDTHS[0], num_classes=WIDTHS[-1])
    spec = make_spec(header, Config(layers=3, hidden=256))
    whole = plan(1, ghosts, spec)[0]
    print(f"in memory {whole / 1e9:.0f} GB; SAR {SAR:.0f} socket-seconds")
    for memory in MEMORIES:
        for ranks in (2**k for k in range(1, 12)):
            stored, turn, read, written = plan(ranks, ghosts, spec)
            room = memory * 1e9 - process_bytes(ranks) - TURNS * turn
            if room >= 0:
                break
        room = max(room, 0)
        moved = 1 - int(room // (stored / ranks)) / ranks
        stored, read, written = (moved * each / 1e9 for each in (stored, read, written))
        hours = " | ".join(f"{(read + written) / rate / 3600:.2f}" for rate in DISKS)
        print(f"| {memory} | {ranks} | {stored:,.0f} | {read:,.0f} | {written:,.0f} | {hours} |")


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))

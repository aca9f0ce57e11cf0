#!/usr/bin/env python3
"""Predictions of `hpgcn plan`'s model for the machines and graphs of mixgcn and mg-gcn-2021.

    python scripts/paper_machines.py [--json]

Only the numbers of the graphs are used (vertices, edges, widths of the papers' tables). Their
entries are spread evenly over all blocks of A. So no graph is read or generated, and its size is
free. Effects of the pattern (balance, locality) are not seen. docs/papers.md compares these
tables with the claims of the papers.
"""
import json
import sys
from dataclasses import replace

import numpy as np

from hpgcn.config import Config
from hpgcn.graphs.header import Header
from hpgcn.model import make_spec, products_of
from hpgcn.parallel.layout import BlockLayout, split
from hpgcn.planning.answers.options import read_machine
from hpgcn.planning.counts.footprint import RankFootprint
from hpgcn.planning.counts.shaped_step import LevelSizes, Steps
from hpgcn.planning.seconds.mixed_devices import pipeline_seconds
from hpgcn.planning.seconds.step_seconds import step_seconds
from hpgcn.runtime.text_table import table
from hpgcn.strategies import STRATEGIES, RankGrid

# vertices, edges, features, classes, and stages of Table 4 (mixgcn, tables 2 and 4)
MIXGCN = {
    "Reddit": (233e3, 115e6, 602, 41, 11),
    "Orkut": (3.07e6, 117e6, 320, 20, 11),
    "Twitter": (41.7e6, 1.47e9, 52, 16, 19),
    "Friendster": (65.6e6, 1.81e9, 128, 64, 6),
    "papers100M": (111e6, 1.62e9, 128, 172, 4),
}
# energy in J of the sparse unit, HyGCN, AWB-GCN and CPU (mixgcn, table 3)
ENERGY = {
    "Reddit": (7.6, 19.3, 6.9, 146.9e3),
    "Orkut": (9.5, 43.9, 33.6, 164.1e3),
    "Twitter": (605.5, 533.9, 2326, 3291e3),
    "Friendster": (1135, 1031, 6250, 3843e3),
    "papers100M": (1269, 1547, 6810, 4322e3),
}
# vertices, edges, widths, and seconds by GPUs (mg-gcn-2021, tables 1 and 3, section 6.6)
MG_GCN = {
    "Reddit": (233e3, 115e6, (602, 16, 41), {1: .033, 2: .017, 4: .012, 8: .012}),
    "Products": (2.5e6, 126e6, (104, 256, 256, 47), {1: .355, 2: .202, 4: .110, 8: .067}),
    "Proteins": (8.74e6, 1.3e9, (128, 256, 256, 256), {1: 4.221, 2: 2.272, 4: 1.191, 8: .641}),
    "Papers": (111e6, 1.61e9, (128, 208, 208, 172), {8: 2.89}),
}
WORKERS = 32  # 4 nodes of 8


class EvenPattern:
    """A symmetric pattern with entries spread evenly.

    It stands in for hpgcn.parallel.pattern.Pattern.

    Every block has entries in proportion to its area, like blocks of a graph whose
    vertices are in random order.
    """

    symmetric = square = True
    weighted = False
    holders = None
    bandwidth = 0

    def __init__(self, n, nnz):
        self.n = n
        self.density = nnz / n**2
        self.indptr = EvenPointers(nnz / n, n)

    def layouts(self, layout):
        """Return the row layout and the column layout, like `Pattern.layouts`."""
        return layout, layout

    def nonzeros(self, row_offsets, column_offsets):
        """Return the expected number of nonzeros in each block."""
        areas = np.outer(np.diff(row_offsets), np.diff(column_offsets))
        return np.rint(areas * self.density).astype(np.int64)

    def touched_rows(self, row_offsets, column_offsets):
        """Return the expected rows with a nonzero in each block.

        Entries are independent.
        """
        chance = -np.expm1(-self.density * np.diff(column_offsets))
        return np.rint(np.outer(np.diff(row_offsets), chance)).astype(np.int64)


class EvenPointers:
    """Row pointers (n + 1,) of rows with equally many entries.

    They are computed when they are read.
    """

    def __init__(self, degree, n):
        self.degree = degree
        self.n = n
        self.size = n + 1

    def __getitem__(self, rows):
        rows = np.asarray(rows)
        return np.rint(np.where(rows < 0, rows + self.size, rows) * self.degree).astype(np.int64)


def footprint(strategy, ranks, n, edges, widths):
    """Return the RankFootprint of training a GCN on a graph of these sizes.

    It has n vertices and `edges` entries.
    """
    n, nnz = int(n), int(edges + n)  # with loops
    config = Config(prune=False)
    header = Header("numbers", n, nnz, widths[0], widths[-1], all_ones=True)
    spec = make_spec(header, config, widths)
    kind = STRATEGIES[strategy]
    shape = kind.default_shape(ranks)
    layout = BlockLayout(split(n, ranks), 1, 0)
    options = {"pipeline_batches": 1, "on_host": False} if strategy == "mop" else {}
    plan = kind.Plan.of(EvenPattern(n, nnz), RankGrid(shape, layout, options))
    hops = sum(products_of(spec))
    sizes = LevelSizes.of([None] * (hops + 1), plan.layout)
    plans = [plan] * hops
    entries = np.full(ranks, nnz // ranks)
    return RankFootprint(spec, plan.layout, sizes, sizes, Steps(), plan, plan, plans, plans,
                         entries)


def aggregation(device, n, edges, width):
    """Return the seconds to multiply by A, and by A with a mask."""
    n, nnz = int(n), int(edges + n)
    return sum(float(device.seconds(nnz, n, width * 4, 4, n, masked)) for masked in (False, True))


def figure_12():
    """Return the speed-up of aggregation on the sparse unit.

    Over CPU, HyGCN and AWB-GCN, at the 4 columns of a worker and at 128.
    """
    unit, cpu = (read_machine(name)[0].devices.aggregate
                 for name in ("mixgcn-sparse-unit", "mixgcn-cpu"))
    others = {"CPU": cpu, "HyGCN": replace(unit, clock_hz=1e9, masked_share=1.0),
              "AWB-GCN": replace(unit, clock_hz=3.3e8, masked_share=1.0)}
    rows = []
    for name, (n, edges, *_) in MIXGCN.items():
        row = {"graph": name}
        for width in (128 // WORKERS, 128):
            seconds = aggregation(unit, n, edges, width)
            row |= {f"{other}, {width}": aggregation(device, n, edges, width) / seconds
                    for other, device in others.items()}
        rows.append(row)
    return rows


def mixgcn_seconds(machine, name, stages=None):
    """Return the seconds of MixGCN's computation and communication.

    The GCN has 3 layers of 128 on 32 workers.

    `stages` is the number of pipeline stages, by default that of the graph in Table 4.
    """
    n, edges, features, classes, own = MIXGCN[name]
    counted = footprint("mop", WORKERS, n, edges, (features, 128, 128, classes))
    rates, _ = read_machine(machine)
    rates = replace(rates, devices=replace(rates.devices, stages=stages or own))
    return np.array(step_seconds(rates, counted))


def figure_7():
    """Return the throughput of MixGCN on the sparse unit over the CPU.

    The model has 3 layers of 128, on 32 workers.
    """
    rows = []
    for name in MIXGCN:
        unit = mixgcn_seconds("mixgcn-sparse-unit", name)
        cpu = mixgcn_seconds("mixgcn-cpu", name)
        rows.append({"graph": name, "unit s": unit.sum(), "unit, compute s": unit[0],
                     "CPU s": cpu.sum(), "CPU, compute s": cpu[0], "ratio": cpu.sum() / unit.sum(),
                     "compute ratio": cpu[0] / unit[0]})
    return rows


def table_4():
    """Return the largest possible gain by ordering rows, min(a, u) / s of each product.

    If the all-to-alls go with the update, u + communication, they are pipelined as well. On both
    machines aggregation is the slower device in every product (by a factor of 2.6 at least). So a
    step without filling takes as long as aggregation.
    """
    rows = []
    for name, (*_, stages) in MIXGCN.items():
        row = {"graph": name, "stages": stages, "bound": 1 + 1 / stages}
        for short, machine in (("CPU", "mixgcn-cpu"), ("unit", "mixgcn-sparse-unit")):
            compute, communication = mixgcn_seconds(machine, name)
            slower = mixgcn_seconds(machine, name, 10**9)[0]
            second = (compute - slower) * stages + communication
            row[short] = compute / slower
            row[f"{short}, pipelined"] = (pipeline_seconds(slower, second, stages)
                                          / max(slower, second))
        rows.append(row)
    return rows


def table_3():
    """Return the energy of other devices relative to the sparse unit, from Table 3."""
    return [{"graph": name, **{other: value / unit for other, value in zip(
        ("HyGCN", "AWB-GCN", "CPU"), others)}} for name, (unit, *others) in ENERGY.items()]


def mg_gcn():
    """Return the seconds of an epoch on a DGX-A100, claimed and predicted.

    Rows are broadcast (1d).
    """
    rates, _ = read_machine("mg-gcn-dgx-a100")
    rows = []
    for name, (n, edges, widths, claims) in MG_GCN.items():
        for ranks, claim in claims.items():
            compute, communication = step_seconds(rates, footprint("1d", ranks, n, edges, widths))
            total = compute + communication
            rows.append({"graph": name, "GPUs": ranks, "claim s": claim, "ours s": total,
                         "communication s": communication, "claim / ours": claim / total})
    return rows


TABLES = {
    "Figure 7: epoch on the sparse unit and on the CPU": figure_7,
    "Figure 12: the sparse unit over others, by columns": figure_12,
    "Table 4: gain by ordering rows; pipelined: with the all-to-alls": table_4,
    "Table 3: energy over the sparse unit's": table_3,
    "mg-gcn-2021, Table 3 and section 6.6: DGX-A100": mg_gcn}


def main(words):
    """Print all tables, with --json as one object by function."""
    tables = {title: make() for title, make in TABLES.items()}
    if words == ["--json"]:
        print(json.dumps({make.__name__: tables[title] for title, make in TABLES.items()}))
        return
    for title, rows in tables.items():
        print(f"\n{title}\n")
        print(table([list(rows[0]), *([text(cell) for cell in row.values()] for row in rows)],
                    left=(0,), rule=True))


def text(cell):
    """Return a cell of a table: numbers with four digits."""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


if __name__ == "__main__":
    main(sys.argv[1:])

"""What a partition costs: communication volume, messages and imbalance."""
from __future__ import annotations

import numpy as np

from hpgcn.graphs.graph import Graph
from hpgcn.graphs.partition import check_parts
from hpgcn.parallel.halo_plan import HaloPlanSizes
from hpgcn.partition.model import pattern
from hpgcn.runtime.text_table import table

# key of Partition.statistics -> how the table calls it, and how it is written
LABELS = {
    "volume": ("rows sent, total", "{:,}"),
    "volume_max": ("rows sent, max per part", "{:,}"),
    "volume_avg": ("rows sent, mean per part", "{:,.1f}"),
    "ghosts_max": ("rows received, max per part", "{:,}"),
    "messages": ("messages, total", "{:,}"),
    "messages_max": ("messages sent, max per part", "{:,}"),
    "messages_avg": ("messages sent, mean per part", "{:,.1f}"),
    "replication_factor": ("replication factor", "{:.3f}"),
    "imbalance_nnz": ("imbalance of nonzeros", "{:.2%}"),
    "imbalance_rows": ("imbalance of rows", "{:.2%}"),
    "engine_volume": ("rows sent, by the engine's own count", "{:,}"),
    "bandwidth_stored": ("bandwidth as stored", "{:,}"),
    "bandwidth": ("bandwidth in this order", "{:,}"),
    "stages_stored": ("pipeline stages as stored", "{:,}"),
    "stages": ("pipeline stages in this order", "{:,}"),
}
COMPARED = tuple(LABELS)[:8]  # with random partitions: volumes, messages, replication


def statistics(graph, part, k):
    """Count what one exchange of width 1 costs under a partition (demirci-2022, section 4.3).

    The owner of column j sends row j once to every other part that has some i with a_ij != 0, so
    the volume is the sum over nets of (lambda - 1), where lambda counts the parts that a net
    touches and the diagonal is in every net.

    Parameters
    ----------
    graph : hpgcn.graphs.graph.Graph with all rows, or scipy sparse (n, n)
    part : (n,) integers in [0, k)
    k : int

    Returns
    -------
    dict
        volume, volume_max, volume_avg: rows sent, in total, by the part that sends most, per part;
        ghosts_max: rows received by the part that receives most (their total is the volume);
        messages, messages_max, messages_avg: non-empty (source, destination) pairs, in total, by
        the part that sends most, per part;
        replication_factor: mean number of parts that hold a row of H, its owner included
        (1 + volume / n);
        imbalance_nnz, imbalance_rows: max / mean - 1 over parts, of nonzeros (the diagonal counted)
        and of rows.
        Counts are int, means and imbalances float.

    Raises
    ------
    DataError
        The matrix is not square, or the part vector does not fit it.
    """
    if not isinstance(graph, Graph):
        graph = Graph.from_scipy(graph)
    return count(pattern(graph), check_parts(part, k, n=graph.header.num_nodes), k)


def count(rows, part, k):
    """Count as `statistics`, of `hpgcn.partition.model.pattern` and parts that were checked."""
    exchange = HaloPlanSizes.between(rows, part, k)
    replication = 1 + int(exchange.sent.sum()) / part.size if part.size else 1.0
    nonzeros = np.bincount(part, np.diff(rows.indptr), k)
    return summary(exchange, replication, nonzeros, np.bincount(part, minlength=k))


def summary(exchange, replication, nonzeros, rows):
    """Sum up as `statistics` does: HaloPlanSizes, and the nonzeros and rows of each part, (k,)."""
    k = rows.size
    volume = int(exchange.sent.sum())
    messages = int(exchange.destinations.sum())
    return {
        "volume": volume, "volume_max": int(exchange.sent.max()), "volume_avg": volume / k,
        "ghosts_max": int(exchange.received.max()),
        "messages": messages, "messages_max": int(exchange.destinations.max()),
        "messages_avg": messages / k, "replication_factor": replication,
        "imbalance_nnz": imbalance(nonzeros), "imbalance_rows": imbalance(rows),
    }


def imbalance(loads):
    """Return maximum over mean, less 1; 0 where there is nothing."""
    total = loads.sum()
    return float(loads.max() * loads.size / total - 1) if total else 0.0


def format_statistics(columns):
    """Write the statistics of partitions as a table for the terminal.

    Parameters
    ----------
    columns : dict of str -> Partition
        Heading of each column.

    Returns
    -------
    str
        One line per quantity. Where random partitions were counted (`over_random`), a column
        beside tells the ratio to their mean. No line feed at the end.
    """
    cells = [["", *(label for label, _ in LABELS.values())]]
    for name, partition in columns.items():
        numbers = partition.statistics
        cells.append([name, *(form.format(numbers[key]) if key in numbers else "-"
                              for key, (_, form) in LABELS.items())])
        if any(f"random_{key}" in numbers for key in COMPARED):
            ratios = relative(numbers)
            cells.append(["/ random", *(f"{ratios[key]:.3f}" if key in ratios else ""
                                        for key in LABELS)])

    heading, *lines = zip(*cells)
    return table([heading, *(line for line in lines if any(cell.strip("-") for cell in line[1:]))])


def describe(partition):
    """Say in a line how a partition was made."""
    text = f"{partition.method or 'unnamed'}, {partition.k} parts, seed {partition.seed}"
    if partition.engine:
        text += f", {partition.engine} {partition.engine_version}, epsilon {partition.epsilon:g}"
    return text


def relative(numbers):
    """Divide those statistics that COMPARED names by their mean over random partitions."""
    return {key: numbers[key] / numbers[f"random_{key}"] for key in COMPARED
            if key in numbers and numbers.get(f"random_{key}")}

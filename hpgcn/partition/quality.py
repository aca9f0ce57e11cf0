"""What a partition costs: communication volume, messages and imbalance."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from hpgcn.graph import Graph
from hpgcn.partition.model import pattern
from hpgcn.partition.partition import check_parts

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
COMPARED = ("volume", "volume_max", "volume_avg", "ghosts_max", "messages", "messages_max", "messages_avg",
            "replication_factor")


def statistics(graph, part, k):
    """Count what one exchange of width 1 costs under a partition (demirci-2022, section 4.3).

    The owner of column j sends row j once to every other part that has some i with a_ij != 0, so the volume is the
    sum over nets of (lambda - 1), where lambda counts the parts that a net touches and the diagonal is in every net.

    Parameters
    ----------
    graph : hpgcn.graph.Graph with all rows, or scipy sparse (n, n)
    part : (n,) integers in [0, k)
    k : int

    Returns
    -------
    dict
        volume, volume_max, volume_avg: rows sent, in total, by the part that sends most, per part;
        ghosts_max: rows received by the part that receives most (their total is the volume);
        messages, messages_max, messages_avg: non-empty (source, destination) pairs, in total, by the part that
        sends most, per part;
        replication_factor: mean number of parts that hold a row of H, its owner included (1 + volume / n);
        imbalance_nnz, imbalance_rows: max / mean - 1 over parts, of nonzeros (the diagonal counted) and of rows.
        Counts are int, means and imbalances float.

    Raises
    ------
    DataError
        The matrix is not square, or the part vector does not fit it.
    """
    if not isinstance(graph, Graph):
        graph = Graph.from_scipy(graph)
    n = graph.header.num_nodes
    return count(pattern(graph), check_parts(part, k, n=n), k)


def count(rows, part, k):
    """As `statistics`, for the pattern of A + I (`hpgcn.partition.model.pattern`) and parts that were checked."""
    n = part.size
    found = exchange_counts(rows, part, k)
    total, messages = int(found.sent.sum()), int(found.pairs.sum())
    return {
        "volume": total, "volume_max": int(found.sent.max()), "volume_avg": total / k,
        "ghosts_max": int(found.received.max()),
        "messages": messages, "messages_max": int(found.pairs.max()), "messages_avg": messages / k,
        "replication_factor": 1 + total / n if n else 1.0,
        "imbalance_nnz": imbalance(np.bincount(part, np.diff(rows.indptr), k)),
        "imbalance_rows": imbalance(np.bincount(part, minlength=k)),
    }


@dataclass(frozen=True, eq=False)
class Exchange:
    """Rows and messages of one exchange, by part.

    Attributes
    ----------
    sent, received : (k,) int64
        Rows that each part sends and receives.
    pairs, sources : (k,) int64
        Messages that each part sends and receives: non-empty (source, destination) pairs.
    """

    sent: np.ndarray
    received: np.ndarray
    pairs: np.ndarray
    sources: np.ndarray


def exchange_counts(rows, part, k):
    """Count who sends how much to whom.

    Parameters
    ----------
    rows : csr_array (n, n)
        `hpgcn.partition.model.pattern` of a graph.
    part : (n,) int32 in [0, k)
    k : int

    Returns
    -------
    Exchange
    """
    n = part.size
    offsets = np.concatenate([[0], np.cumsum(np.bincount(part, minlength=k))])
    members = sp.csr_array((np.ones(n, bool), np.argsort(part, kind="stable"), offsets), shape=(k, n))
    read = members @ rows  # row p: the columns that part p reads, each once
    reader = np.repeat(np.arange(k), np.diff(read.indptr))
    owner = part[read.indices].astype(np.int64)
    ghost = reader != owner
    reader, owner = reader[ghost], owner[ghost]
    pair = np.unique(owner * k + reader)
    return Exchange(*(np.bincount(each, minlength=k) for each in (owner, reader, pair // k, pair % k)))


def format_statistics(columns):
    """Table of the statistics of partitions for the terminal.

    Parameters
    ----------
    columns : dict of str -> Partition
        Heading of each column.

    Returns
    -------
    str
        One line per quantity. Where random partitions were counted (`over_random`), a column beside tells the ratio
        to their mean. No line feed at the end.
    """
    table = [[""]]
    for name, partition in columns.items():
        table[0] += [name, *(["/ random"] if compared(partition.statistics) else [])]
    for key, (label, form) in LABELS.items():
        line = [label]
        for partition in columns.values():
            found = partition.statistics
            line.append(form.format(found[key]) if key in found else "-")
            if compared(found):
                ratio = relative(found).get(key)
                line.append("" if ratio is None else f"{ratio:.3f}")
        if any(cell.strip("-") for cell in line[1:]):
            table.append(line)
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join((line[0].ljust(widths[0]) + "".join(f"  {cell:>{width}}" for cell, width in
                                                           zip(line[1:], widths[1:]))).rstrip() for line in table)


def describe(partition):
    """How a partition was made, in a line."""
    text = f"{partition.method or 'unnamed'}, {partition.k} parts, seed {partition.seed}"
    if partition.engine:
        text += f", {partition.engine} {partition.engine_version}, epsilon {partition.epsilon:g}"
    return text


def compared(found):
    """Whether statistics hold those of random partitions too."""
    return any(f"random_{key}" in found for key in COMPARED)


def relative(found):
    """Statistics over the mean of random partitions: dict of the keys of COMPARED for which there is one."""
    return {key: found[key] / found[f"random_{key}"] for key in COMPARED if key in found and found.get(f"random_{key}")}


def imbalance(loads):
    """Maximum over mean, less 1; 0 where there is nothing."""
    total = loads.sum()
    return float(loads.max() * loads.size / total - 1) if total else 0.0

"""What a partition costs: communication volume, messages and imbalance."""
from __future__ import annotations

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
    "imbalance_nnz": ("imbalance of nonzeros", "{:.2%}"),
    "imbalance_rows": ("imbalance of rows", "{:.2%}"),
}


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
    part = check_parts(part, k, n=n)
    rows = pattern(graph)
    sizes = np.bincount(part, minlength=k)
    weights = np.bincount(part, np.diff(rows.indptr), k)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    members = sp.csr_array((np.ones(n, bool), np.argsort(part, kind="stable"), offsets), shape=(k, n))
    read = members @ rows  # row p: the columns that part p reads, each once
    reader = np.repeat(np.arange(k), np.diff(read.indptr))
    owner = part[read.indices].astype(np.int64)
    ghost = reader != owner
    reader, owner = reader[ghost], owner[ghost]
    sent = np.bincount(owner, minlength=k)
    source = np.unique(owner * k + reader) // k  # of each message
    messages = np.bincount(source, minlength=k)
    return {
        "volume": int(owner.size), "volume_max": int(sent.max()), "volume_avg": owner.size / k,
        "ghosts_max": int(np.bincount(reader, minlength=k).max()),
        "messages": int(source.size), "messages_max": int(messages.max()), "messages_avg": source.size / k,
        "imbalance_nnz": _imbalance(weights), "imbalance_rows": _imbalance(sizes),
    }


def format_statistics(partition, random_statistics=None):
    """Table of a partition's statistics for the terminal.

    Parameters
    ----------
    partition : Partition
    random_statistics : dict, optional
        Statistics of a random partition of the same graph into as many parts, to compare with.

    Returns
    -------
    str
        A line on how the partition was made, then one line per quantity: this partition, and with a comparison the
        random one and the ratio of the two. No line feed at the end.
    """
    title = f"{partition.method or 'unnamed'}, {partition.k} parts, seed {partition.seed}"
    if partition.engine:
        title += f", {partition.engine} {partition.engine_version}, epsilon {partition.epsilon:g}"
    table = [("", "this", "random", "relative")]
    for key, (label, form) in LABELS.items():
        if key not in partition.statistics:
            continue
        value = partition.statistics[key]
        other = (random_statistics or {}).get(key)
        ratio = f"{value / other:.3f}" if other and not key.startswith("imbalance") else ""
        table.append((label, form.format(value), "" if other is None else form.format(other), ratio))
    columns = 4 if random_statistics else 2
    widths = [max(len(line[column]) for line in table) for column in range(columns)]
    lines = [line[0].ljust(widths[0]) + "".join(f"  {line[c]:>{widths[c]}}" for c in range(1, columns))
             for line in table]
    return "\n".join([title, *(line.rstrip() for line in lines)])


def _imbalance(loads):
    total = loads.sum()
    return float(loads.max() * loads.size / total - 1) if total else 0.0

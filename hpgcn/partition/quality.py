"""Cost of a partition: communication volume, messages and imbalance."""
import numpy as np
import scipy.sparse as sp

from hpgcn.graphs.adjacency import LARGE
from hpgcn.graphs.graph import Graph
from hpgcn.graphs.partition import check_parts, describe_nodes, run_offsets
from hpgcn.partition.partition_request import MAX_PARTS
from hpgcn.partition.rows.partition_model import entry_rows, holders, pattern
from hpgcn.runtime.text_table import table

# key of Partition.statistics -> heading in the table, and format
LABELS = {
    "volume": ("rows sent, total", "{:,}"),
    "unrefined_volume": ("  before refinement", "{:,}"),
    "volume_max": ("rows sent, max per part", "{:,}"),
    "unrefined_volume_max": ("  before refinement", "{:,}"),
    "volume_avg": ("rows sent, mean per part", "{:,.1f}"),
    "volume_between": ("rows sent between nodes", "{:,}"),
    "volume_within": ("rows sent within nodes", "{:,}"),
    "ghosts_max": ("rows received, max per part", "{:,}"),
    "messages": ("messages, total", "{:,}"),
    "unrefined_messages": ("  before refinement", "{:,}"),
    "messages_max": ("messages sent, max per part", "{:,}"),
    "messages_avg": ("messages sent, mean per part", "{:,.1f}"),
    "replication_factor": ("replication factor", "{:.3f}"),
    "split_share": ("split vertices, of all", "{:.2%}"),
    "split_share_avg": ("split vertices, of a part's (mean)", "{:.2%}"),
    "imbalance_nnz": ("imbalance of nonzeros", "{:.2%}"),
    "imbalance_rows": ("imbalance of rows", "{:.2%}"),
    "imbalance_train": ("imbalance of training vertices", "{:.2%}"),
    "nets": ("stochastic nets", "{:,}"),
    "engine_volume": ("rows sent, by the engine's own count", "{:,}"),
    "bandwidth_stored": ("bandwidth as stored", "{:,}"),
    "bandwidth": ("bandwidth in this order", "{:,}"),
    "stages_stored": ("pipeline stages as stored", "{:,}"),
    "stages": ("pipeline stages in this order", "{:,}"),
    "pipeline_batches": ("batches of rows", "{:,}"),
    "first_batches": ("batches that the first one waits for", "{:,}"),
}
# the same for attributes of a Partition: the engine and its work
WORK = {"engine": ("engine", "{}"), "divided": ("  divided", "{}"), "start": ("  began with", "{}"),
        "seconds": ("seconds", "{:,.1f}")}
# statistics that a user needs most; the last three need a flag
BRIEF = ("volume", "messages", "imbalance_nnz", "volume_between", "nets", "first_batches")
# meaning of an imbalance above UNEVEN
UNEVEN = 0.1
MEANINGS = {
    "imbalance_nnz": "nonzeros: ranks wait for it in products with A",
    "imbalance_rows": "rows, and its rank needs as much more memory and time for dense work "
                      "(`--w0` adds to the weight of each row)",
    "imbalance_train": "training vertices: ranks wait for it in the loss (`--balance-train`)"}
# compared with random partitions: volumes, messages, replication
COMPARED = ("volume", "volume_max", "volume_avg", "ghosts_max", "messages", "messages_max",
            "messages_avg", "replication_factor")


def statistics(graph, part, k, edge_part=None):
    """Count the numbers that one product of width 1 sends (demirci-2022, section 4.3).

    The owner of column j sends row j of H to every other part that holds an entry of
    column j. Every part that holds an entry of row i sends a partial sum to the owner
    of row i. If rows are held whole there are no sums, and the volume is that of the
    column nets: sum of (lambda - 1).

    Parameters
    ----------
    graph : hpgcn.graphs.graph.Graph with all rows, or scipy sparse (n, n)
    part : (n,) integers in [0, k)
        Owners of rows.
    k : int
    edge_part : (nnz,) integers in [0, k), optional
        Part that holds each stored entry; by default the owner of its row. Entries on
        the diagonal always belong to the owner.

    Returns
    -------
    dict
        volume, volume_max, volume_avg: rows and sums sent, in total, by the part that
        sends most, per part; ghosts_max: rows and sums received by the part that
        receives most (their total is the volume); messages, messages_max, messages_avg:
        non-empty (source, destination) pairs of rows, and those of sums, in total, by
        the part that sends most, per part; replication_factor: mean number of parts
        that own a vertex, or hold an entry of its row or column (of whole rows 1 +
        volume / n); split_share: share of the vertices that are split, whose edges
        (loops apart) more than one part holds; split_share_avg: mean over parts of that
        share among the vertices of edges of the part (distgnn-2021, section 5.2 and
        Table 6); imbalance_nnz, imbalance_rows, imbalance_train: max / mean - 1 over
        parts, of nonzeros (the diagonal counted), of rows, and of vertices to train on,
        where there is a split. Counts are int, means and imbalances float.

    Raises
    ------
    DataError
        The matrix is not square, or a vector does not fit it.
    """
    if not isinstance(graph, Graph):
        graph = Graph.from_scipy(graph)
    rows = pattern(graph)
    part = check_parts(part, k, n=graph.header.num_nodes)

    # holders of nonzeros, if they are not the owners of their rows
    holder = None
    if edge_part is not None:
        edge_part = check_parts(edge_part, k, n=graph.indices.size, where="edge_part", what="entry")
        holder = holders(graph, rows, edge_part, part)
    return count(rows, part, k, holder, train_mask(graph))


def train_mask(graph):
    """Return the vertices to train on, (n,) bool; None without a split."""
    return None if graph.masks is None else graph.of_split(0).masks["train"]


def count(rows, part, k, holder=None, train=None, *, symmetric=False):
    """Return the dict of `statistics` for checked parts and a `partition_model.pattern`.

    `holder`: (nnz,) of all entries of the pattern. `train`: (n,) bool. `symmetric`: the
    pattern is known to be symmetric, which saves memory and time.
    """
    if holder is None and rows.indices.size >= LARGE and k <= MAX_PARTS:
        counted = _count_whole_rows(rows, part, k, symmetric)
    else:
        counted = _count_entries(rows, part, k, holder)

    if train is not None:
        counted["imbalance_train"] = imbalance(np.bincount(part[train], minlength=k))
    return counted


def node_volumes(rows, part, sizes, counted, holder=None):
    """Count the rows and sums of a node-aware exchange, between nodes and within them.

    A row is sent once to each other node that reads it. The part that receives it sends
    it on to the other parts of its node that read it. Sums take the same ways back.

    Parameters
    ----------
    rows, part, holder
        As of `count`.
    sizes : tuple of int
        Parts of each node, in the order of their numbers.
    counted : dict
        From `count`.

    Returns
    -------
    dict of str -> int
        volume_between and volume_within, whose sum is the volume; {} without nodes.
    """
    if not sizes:
        return {}

    # count what each node reads of the others: rows, or rows and sums
    node = np.repeat(np.arange(len(sizes)), sizes)
    if holder is None:
        from hpgcn.parallel.pattern_counts import count_parts  # brings Numba

        owner = node[part]
        offsets = run_offsets(np.bincount(owner, minlength=len(sizes)))
        order = np.argsort(owner, kind="stable")
        between = int(count_parts(rows.indptr, rows.indices, owner, order, offsets)[2].sum())
    else:
        lines = touched(rows, node[part], len(sizes), node[holder])
        between = sum(each.nnz - part.size for each in lines)
    return {"volume_between": between, "volume_within": counted["volume"] - between}


def _count_whole_rows(rows, part, k, symmetric):
    """Count statistics of parts that own whole rows, by compiled passes."""
    from hpgcn.partition.part_counts import count_parts  # brings Numba

    n = part.size
    found = count_parts(rows, part, k, symmetric=symmetric)
    volume = int(found.sent.sum())
    shares = found.split_vertices / np.maximum(found.vertices, 1)
    return {
        **totals(found.sent, found.destinations), "ghosts_max": int(found.received.max()),
        "replication_factor": (n + volume) / n if n else 1.0,
        "split_share": found.split / n if n else 0.0, "split_share_avg": float(shares.mean()),
        "imbalance_nnz": imbalance(np.bincount(part, np.diff(rows.indptr), k).astype(np.int64)),
        "imbalance_rows": imbalance(np.bincount(part, minlength=k)),
    }


def _count_entries(rows, part, k, holder):
    """Count statistics; several parts may hold entries of a row."""
    # rows pulled and sums pushed, by part
    holder = part[entry_rows(rows)] if holder is None else holder
    in_columns, in_rows = touched(rows, part, k, holder)
    pulled, pushed = (_rows_by_pair(each, part, k) for each in (in_columns, in_rows))
    sent = pulled.sum(0) + pushed.sum(1)  # every holder of entries of a row sends the sum
    messages = np.bincount(pulled.indices, minlength=k) + np.diff(pushed.indptr)

    n = part.size
    return {
        **totals(sent, messages), "ghosts_max": int((pulled.sum(1) + pushed.sum(0)).max()),
        "replication_factor": (in_columns + in_rows).nnz / n if n else 1.0,
        **split_shares(rows, k, holder),
        "imbalance_nnz": imbalance(np.bincount(holder, minlength=k)),
        "imbalance_rows": imbalance(np.bincount(part, minlength=k)),
    }


def _rows_by_pair(read, part, k):
    """Count the rows that each part reads of each other part; csr_array (k, k)."""
    reader, owner = entry_rows(read), part[read.indices]
    others = reader != owner
    ends = reader[others], owner[others]
    return sp.csr_array((np.ones(ends[0].size, np.int64), ends), shape=(k, k))


def totals(sent, messages):
    """Return the statistics of the rows and messages that each part sends, (k,) each."""
    k = sent.size
    volume, count = int(sent.sum()), int(messages.sum())
    return {"volume": volume, "volume_max": int(sent.max()), "volume_avg": volume / k,
            "messages": count, "messages_max": int(messages.max()), "messages_avg": count / k}


def split_shares(rows, k, holder):
    """Return the shares of split vertices of `statistics`: of all, and the mean over parts."""
    n = rows.shape[0]
    number = entry_rows(rows)
    edge = number != rows.indices
    ends = np.concatenate([number[edge], rows.indices[edge]])
    holds = sp.csc_array((np.ones(ends.size, bool), (np.tile(holder[edge], 2), ends)), shape=(k, n))
    holds.sum_duplicates()

    # vertices whose edges several parts hold, among all and among those of each part
    split = np.diff(holds.indptr) > 1
    vertices = np.bincount(holds.indices, minlength=k)
    split_vertices = np.bincount(holds.indices[np.repeat(split, np.diff(holds.indptr))],
                                 minlength=k)
    return {"split_share": float(split.mean()) if n else 0.0,
            "split_share_avg": float((split_vertices / np.maximum(vertices, 1)).mean())}


def touched(rows, part, k, holder):
    """Return which parts touch each column, and which touch each row, csr_arrays (k, n).

    A part touches a line if it owns the vertex or holds entries of the line.
    """
    n = part.size
    number = entry_rows(rows)
    who = np.concatenate([part[number] if holder is None else holder, part])
    held = np.ones(who.size, bool)
    vertices = np.arange(n, dtype=number.dtype)
    return [sp.csr_array((held, (who, np.concatenate([lines, vertices]))), shape=(k, n))
            for lines in (rows.indices, number)]


def imbalance(loads):
    """Return maximum / mean - 1; 0 for empty input."""
    total = loads.sum()
    return float(loads.max() * loads.size / total - 1) if total else 0.0


def explain_imbalance(numbers):
    """Return sentences about each imbalance above UNEVEN in the statistics of a partition."""
    return [f"the largest part has {1 + numbers[key]:.2f} times the mean number of {meaning}"
            for key, meaning in MEANINGS.items() if numbers.get(key, 0) > UNEVEN]


def format_statistics(columns, *, brief=False):
    """Write the statistics of partitions as a table for the terminal.

    Parameters
    ----------
    columns : dict of str -> Partition
        Heading of each column. A method that compares several is named with the one
        whose parts it took.
    brief : bool
        Write only the quantities in BRIEF.

    Returns
    -------
    str
        One line per quantity. If random partitions were counted (`over_random`), a
        further column has the ratios to their mean. No line feed at the end.
    """
    # a column for each partition, and its ratio to random ones
    labels = {key: each for key, each in LABELS.items() if not brief or key in BRIEF}
    work = {} if brief else WORK
    cells = [["", *(label for label, _ in (*work.values(), *labels.values()))]]
    for name, partition in columns.items():
        numbers = partition.statistics
        if name == partition.method:
            name = partition.title
        ran = {key: getattr(partition, key) for key in work if getattr(partition, key)}
        cells.append([name, *(form.format(each[key]) if key in each else "-"
                              for each, forms in ((ran, work), (numbers, labels))
                              for key, (_, form) in forms.items())])
        if any(f"random_{key}" in numbers for key in COMPARED):
            ratios = relative(numbers)
            cells.append([f"{name} / random", *(f"{ratios[key]:.3f}" if key in ratios else ""
                                        for key in (*work, *labels))])

    # leave out quantities that no partition has
    heading, *lines = zip(*cells)
    known = [line for line in lines if any(cell.strip("-") for cell in line[1:])]
    return table([heading, *known], keys=1)


def describe(partition):
    """Return a line that describes how a partition was made."""
    text = f"{partition.title or 'unnamed'}, {partition.k} parts, seed {partition.seed}"
    if partition.work:
        text += f", {partition.work}"
    if partition.engine:
        text += f", epsilon {partition.epsilon:g}"
    if partition.effort:
        text += f", effort {partition.effort}"
    if partition.node_sizes:
        text += f", {describe_nodes(partition.node_sizes)}"
    if partition.batch:
        numbers = partition.statistics
        text += f", batch {partition.batch}" + "".join(
            f", {name} {numbers[name]:g}" for name in ("theta", "delta") if name in numbers)
    return text


def relative(numbers):
    """Divide the statistics in COMPARED by their mean over random partitions.

    Values before refinement are divided by the same means.
    """
    means = {key: numbers.get(f"random_{key.removeprefix('unrefined_')}") for key in LABELS}
    return {key: numbers[key] / mean for key, mean in means.items() if key in numbers and mean}

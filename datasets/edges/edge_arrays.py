"""Edges in arrays of numbers, read by the rules of edge lists."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.edges.columns import EdgeColumns
from hpgcn.datasets.edges.edge_stream import Stream
from hpgcn.datasets.raw_graph import Raw
from hpgcn.datasets.source import need
from hpgcn.datasets.text.column_names import DIRECTED
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.validation import first_true

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.source import Source


def refuse_list_flags(options: ConvertOptions, where: Source) -> None:
    """Raise UsageError for flags on ids of edges, because `where` has a matrix."""
    if flags := options.flags("base", "num_nodes", "compact"):
        raise UsageError(f"{' and '.join(flags)}: only for lists of edges; {where} has a matrix")


def read_edge_arrays(ends: Sequence[np.ndarray], weights: np.ndarray | None, n: int | None,
                     options: ConvertOptions, memory: int, where: list[str], *,
                     names: tuple[str, str] = DIRECTED) -> Raw:
    """Return the Raw of edges, as of the same edges in a text list.

    Parameters
    ----------
    ends : two (e,) arrays of integers
        By default the sources and the targets.
    weights : (e,) numbers, or None
    n : int, or None
        Number of vertices in other arrays; None if ids determine the vertices.
    options : ConvertOptions
    memory : int
    where : list of str
        Input, and the names of both ends, for errors.
    names : tuple of str
        A pair of ENDS of hpgcn.datasets.edges.columns: the names of the ends.
    """
    # check the range of ids
    where, *places = where
    given = options.flags("num_nodes", "compact")
    if n is not None and given:
        raise UsageError(f"{' and '.join(given)}: other arrays of {where} give the number of "
                         f"vertices, {n}")
    base = options.base or 0
    count = options.num_nodes if n is None else n
    stop = 1 << 63 if count is None else base + count
    low = min((int(end.min()) for end in ends if end.size), default=0)
    high = max((int(end.max()) for end in ends if end.size), default=-1)
    from_one = options.base is None and low == 1 and high == stop
    for place, end in zip(places, ends):
        if (k := first_true((end < base) | (end >= stop)) if end.size else None) is not None:
            hint = "; ids begin at 1: use --base 1" if from_one else ""
            raise DataError(f"{where} {place}: entry {k} is {end[k]}, expected {base}.."
                            f"{stop - 1}{hint}")

    # number the vertices of the only block
    columns = EdgeColumns.of_ends(names, weights is not None)
    u, v = (end.astype(np.int64, copy=False) for end in ends)
    if n is not None and not u.size:
        need(64 * n, memory, f"{where}: {n} vertices")
        return Raw(n, u, v, weights, base=base, reads=columns.reads)
    stream = Stream(where, iter([(u, v, weights)]), columns, count, base=base,
                    base_known=options.base is not None, compact=options.compact)
    return stream.collect(memory)

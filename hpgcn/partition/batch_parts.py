"""The parts that batches are drawn of: the file's own, some that are made, or another file's."""
from __future__ import annotations

from hpgcn import store
from hpgcn.errors import DataError, setting


def parts_of(asked, source, n, own, make):
    """Return the part of each ORIGINAL vertex, (n,) integers, and the number of parts.

    Parameters
    ----------
    asked : str
        The `parts` of a hpgcn.sampling.Request.
    source : str
        What the graph that is trained on is called.
    n : int
        Its vertices.
    own : (part, number) or None
        Its own parts, by ORIGINAL number.
    make : callable
        Returns the part of each ORIGINAL vertex of so many that are made of it.

    Raises
    ------
    DataError
        The graph has no parts, fewer vertices than parts, or the other file is of another graph.
    """
    if not asked:
        if own is None:
            raise DataError(f"{source}: not partitioned; {setting('batch')} parts:Q:K makes K "
                            "parts")
        return own
    if asked.isdigit():
        number = int(asked)
        if number > n:
            raise DataError(f"{source}: {number} parts for {n} vertices, expected 1..{n}")
        return make(number), number
    with store.load(asked) as other:
        made = other.vertex_partition
        if made is None:
            raise DataError(f"{asked}: not partitioned; {setting('batch')} parts:Q:FILE takes a "
                            "file that is")
        if made.part.size != n:
            raise DataError(f"{asked}: {made.part.size} vertices, expected the {n} of {source}")
        return made.part, made.k

"""Choose the parts from which batches are drawn: of the graph, new ones, or of a file."""
from hpgcn import store
from hpgcn.errors import DataError, UsageError, setting

METHOD = "best"  # method of new parts for batches, for any strategy and its parts


def parts_of(request, source, n, own, make):
    """Return the part of each ORIGINAL vertex, (n,) integers, and the number of parts.

    Parameters
    ----------
    request : hpgcn.sampling.BatchRequest
    source : str
        Name of the graph that is trained on.
    n : int
        Number of its vertices.
    own : (part, number) or None
        Its own parts, by ORIGINAL number.
    make : callable
        Takes a number of parts; returns the part of each ORIGINAL vertex.

    Raises
    ------
    UsageError
        The graph has no parts, or has parts although new ones are requested. Or there are
        fewer parts than a batch takes, or more parts than vertices.
    DataError
        The other file has no parts, or is of another graph.
    """
    part, number = _found(request, source, n, own, make)

    # a batch takes no more parts than there are
    if number < request.size:
        raise UsageError(f"batch: {request.size} parts of {number}, expected {number} at most")
    return part, number


def _found(request, source, n, own, make):
    asked, example = request.parts, f"{request.name}:{request.size}"

    # the parts of the graph that is trained on
    if not asked:
        if own is None:
            raise UsageError(f"{source}: the graph is not partitioned; give a number of parts, "
                             f"{setting('batch', f'{example}:100')}, or use a partitioned file of "
                             "the graph")
        return own

    # parts that are made for the batches
    if asked.isdigit():
        number = int(asked)
        if number > n:
            raise UsageError(f"batch: {number} parts of {n} vertices, expected 1..{n}")
        if own is not None:
            raise UsageError(f"{source}: already partitioned; use its parts, "
                             f"{setting('batch', example)}, or those of another file, "
                             f"{example}:FILE")
        return make(number), number

    # parts of another file
    with store.load(asked) as other:
        made = other.vertex_partition
        if made is None:
            raise DataError(f"{asked}: not partitioned, expected a partitioned graph file")
        if made.part.size != n:
            raise DataError(f"{asked}: {made.part.size} vertices, expected the {n} of {source}")
        return made.part, made.k

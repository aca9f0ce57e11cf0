"""Memory that `hpgcn partition` needs at most, by the sizes of a graph."""
from hpgcn.errors import DataError, setting
from hpgcn.graphs.validation import index_dtype
from hpgcn.partition.effort import COARSE, DEFAULT, FAST, FEWEST, PINS
from hpgcn.partition.method_table import METHODS
from hpgcn.partition.rows.net_bits import NET_BYTES, num_words
from hpgcn.partition.rows.row_methods import QUICK

BASE = 240 << 20  # bytes of the interpreter, its libraries and their compiler
BLOCKS = 96 << 20  # bytes of what is read or written at a time
KEPT = 10  # mean entries of a cluster that are sorted at once, at most
# rough bytes of an entry, and of a vertex, in an engine and in its input
ENGINE = 150, 300
NET_ENTRY = 16  # bytes of an entry while the nets of clusters are made
VERTEX_BYTES = 60  # bytes of a vertex in `partition_stored`, at most
LEVEL_BYTES = 24  # bytes of a vertex while clusters are contracted
LEAST_WINDOW = 16 << 20


def structure_bytes(header):
    """Return the bytes of rows without weights, features and labels."""
    n = header.num_nodes
    return header.num_edges * index_dtype(n).itemsize + (24 + 3 * header.num_splits) * n


def needed_memory(header, k, method, effort, *, refine=True):
    """Return the bytes that a method of partitioning takes at most.

    Parameters
    ----------
    header : hpgcn.graphs.header.Header
    k : int
        Number of parts.
    method, effort : str
    refine : bool
        The parts are refined.
    """
    n = header.num_nodes
    entries = header.num_edges + n
    item = index_dtype(n).itemsize

    # the rows as they are stored, and the pattern of A + I
    pattern = (item + 1) * entries + 12 * n
    need = BASE + BLOCKS + structure_bytes(header) + pattern + 40 * n
    if method in QUICK:
        return need

    # an engine, for the graph or for clusters
    by_rows = method in ("best", "hypergraph", "graph")
    divided = by_rows and effort == DEFAULT and entries >= COARSE
    if divided:
        engine = ENGINE[0] * PINS + ENGINE[1] * (FEWEST if method == "best" else n)
        need += max(engine, NET_ENTRY * entries if method == "hypergraph" else 0)
    elif method != "stream" and not (by_rows and effort == FAST):
        return need + ENGINE[0] * entries + ENGINE[1] * n

    # clusters and the lists of the refinement
    clusters = 24 * min(header.num_edges, KEPT * n) + 40 * n
    lists = (8 * min(entries + n, n * (k + 1)) + 80 * n) if refine else 0
    return need + max(clusters, lists)


def stored_memory(header, k):
    """Return the bytes that `stored_parts.partition_stored` takes at most."""
    return BASE + BLOCKS + VERTEX_BYTES * header.num_nodes + k * k


def refining_bytes(header, k):
    """Return the bytes that the refinement of `partition_stored` takes at most."""
    return BASE + BLOCKS + (NET_BYTES * num_words(k) + 24) * header.num_nodes


def level_room(header, memory):
    """Return the bytes for the matrices of clusters in `partition_stored`; None without a limit."""
    return None if memory is None else memory - BASE - BLOCKS - LEVEL_BYTES * header.num_nodes


def check_memory(header, k, methods, effort, memory, *, refine=True, stored=False):
    """Return whether `partition_stored` is to be used for lack of memory.

    That is so if a method needs more than `memory` bytes (None: no limit), and
    `partition_stored` does not.

    Parameters
    ----------
    header, k, effort, refine
        As of `needed_memory`.
    methods : list of str
        Methods that are run one after the other.
    memory : int or None
    stored : bool
        Other arguments allow `partition_stored`.

    Raises
    ------
    DataError
        A method needs more. The error names one that fits.
    """
    for method in [] if memory is None else filter(METHODS.get, methods):
        need = needed_memory(header, k, method, effort, refine=refine)
        if need <= memory:
            continue

        # passes over the file, if not even the pattern fits
        from_file = stored_memory(header, k)
        fast = needed_memory(header, k, "stream", FAST, refine=refine)
        if method in QUICK:
            fast = need
        if stored and (method in QUICK or METHODS[method].streams) and from_file <= memory < fast:
            return True

        # a method that fits
        block = needed_memory(header, k, "block", FAST)
        rivals = ("--effort fast", fast), ("--method block", block), ("--method stream", from_file)
        other = next((f"; {flag} needs {_text(less)}" for flag, less in rivals if less <= memory),
                     "")
        engines = METHODS[method].engines and effort != FAST
        kind = f"method {method}, effort {effort}," if engines else f"method {method}"
        raise DataError(f"{header.name}: {kind} needs about {_text(need)} of memory, but the "
                        f"limit is {_text(memory)}; {setting('memory')} sets it{other}")
    return False


def window_bytes(header, memory, *, stored=False):
    """Return the bytes of rows that may be gathered at once for writing; None: no limit.

    `stored` says that the structure is not in memory.
    """
    if memory is None:
        return None
    taken = BASE + BLOCKS + VERTEX_BYTES * header.num_nodes
    if not stored:
        taken += structure_bytes(header)
    return max(LEAST_WINDOW, memory - taken)


def _text(nbytes):
    return f"{nbytes / 2**20:,.0f}M"

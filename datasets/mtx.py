"""MatrixMarket coordinate files (.mtx, .mtx.gz): real, integer or pattern; general, symmetric or skew-symmetric."""
import numpy as np

from hpgcn.datasets.parse import U, V, W
from hpgcn.datasets.raw import Raw
from hpgcn.datasets.source import need
from hpgcn.datasets.text import Grammar, Table, words
from hpgcn.errors import DataError

FIELDS = {"real": False, "double": False, "integer": True, "unsigned-integer": True, "pattern": None}
SYMMETRIES = {"general": 0, "symmetric": 1, "skew-symmetric": -1}


def read(source, memory):
    """Read a MatrixMarket file; the entry `u v` is a[u - 1, v - 1].

    Parameters
    ----------
    source : Source
    memory : int
        Bytes that may be allocated.

    Returns
    -------
    Raw

    Raises
    ------
    DataError
        No banner, or one of another kind; not square; an entry out of range, malformed or not finite; more or fewer
        entries than the header says, or more than the file can hold.
    """
    with source.open() as stream:
        table = Table(stream, source)
        integral, sign = _banner(table)
        n, nnz, start = _sizes(table)
        roles = (U, V) if integral is None else (U, V, W)
        if nnz > source.text_room - start:
            raise DataError(f"{source}: line {table.line}: {nnz} entries declared, more than a file of {source.size} "
                            "bytes can hold")
        need(64 * n + 16 * len(roles) * nnz * (2 if sign else 1), memory,
             f"{source}: line {table.line}: {n} rows and {nnz} entries")
        grammar = Grammar(roles, low=1, high=n, names=("row", "column", "value"), integral=bool(integral),
                          comments=False)
        rows, columns, values = table.columns(grammar, limit=nnz)
    if rows.size < nnz:
        raise DataError(f"{source}: ends after line {table.line} with {rows.size} entries, the header says {nnz}")
    rows -= 1
    columns -= 1
    if sign:
        rows, columns, values = _mirrored(rows, columns, values, sign, source)
    return Raw(n, rows, columns, values, undirected=sign == 1)


def _banner(table):
    line = table.readline()
    found = [word.decode("latin1") for word in words((line or b"").lower())]
    if not found or found[0] != "%%matrixmarket":
        raise DataError(f"{table.where}: line 1: no %%MatrixMarket banner")
    if len(found) != 5 or found[1] != "matrix":
        raise DataError(f"{table.where}: line 1: banner {' '.join(found)[:80]!r}, "
                        "expected '%%MatrixMarket matrix coordinate FIELD SYMMETRY'")
    _, _, layout, field, symmetry = found
    for value, known in ((layout, ("coordinate",)), (field, FIELDS), (symmetry, SYMMETRIES)):
        if value not in known:
            raise DataError(f"{table.where}: line 1: {value[:40]!r} in the banner, expected {' or '.join(known)}")
    if field == "pattern" and symmetry == "skew-symmetric":
        raise DataError(f"{table.where}: line 1: a skew-symmetric matrix needs values, not pattern")
    return FIELDS[field], SYMMETRIES[symmetry]


def _sizes(table):
    """Rows, entries, and bytes read so far, from the line of sizes after the comments."""
    while (line := table.readline()) is not None and (not words(line) or line.startswith(b"%")):
        pass
    sizes = words(line or b"")
    if len(sizes) != 3 or not all(size.isdigit() and len(size) <= 19 for size in sizes):
        found = "the end of the file" if line is None else repr(line[:60].decode("latin1"))
        raise DataError(f"{table.where}: line {table.line}: {found}, expected the numbers of rows, columns and entries")
    n, num_columns, nnz = map(int, sizes)
    if n != num_columns:
        raise DataError(f"{table.where}: line {table.line}: {n} rows and {num_columns} columns, "
                        "expected a square matrix")
    return n, nnz, table.stream.tell()


def _mirrored(rows, columns, values, sign, where):
    """Entries and their images below or above the diagonal."""
    off = rows != columns
    if sign < 0 and not off.all():
        wrong = np.flatnonzero(~off & (values != 0))
        if wrong.size:
            u = rows[wrong[0]] + 1
            raise DataError(f"{where}: entry {wrong[0] + 1} is {values[wrong[0]]} at ({u}, {u}), expected 0 on the "
                            "diagonal of a skew-symmetric matrix")
    if values is not None:
        values = np.concatenate([values, sign * values[off]])
    return np.concatenate([rows, columns[off]]), np.concatenate([columns, rows[off]]), values

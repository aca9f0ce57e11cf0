"""The interface of all readers of input formats, and the choice of the reader of a file.

A reader is a function `read(source, memory[, options]) -> Raw`; a module with several
readers calls each read_FORMAT. `source` is a Source, and `memory` the number of bytes
that the reader may allocate. A reader refuses a file with a DataError of one line that
names the file, and the line, row or array in it. The readers of ASKING take the user's
ConvertOptions as a third argument.

A data set of several files has two more functions. `belongs(path)` returns whether a
file is part of one, by its name and the files beside it. `graph_name(path)` returns the
name of that set.

A reader whose edges come block by block may read more edges than memory holds. It also
has `stream(source, digest, threads, options)`, a context manager that gives a Stream.
It parses on `threads` threads. The bytes of the file go through `digest`, a hash object
or None.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from hpgcn.datasets import unsupported_formats
from hpgcn.datasets.collections import dglcsv, geomgcn, graphsaint, linqs, ogb, planetoid, reddit
from hpgcn.datasets.convert_options import READERS
from hpgcn.datasets.source import truncate
from hpgcn.errors import DataError, InputNotFoundError, UsageError

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.source import Source

WEIGHTED = ("npz", "pt", "graphml", "gexf", "gml", "json",
            "dglcsv")  # formats with a choice of weights
STREAMED = ("snap", "csv", "parquet")  # formats that can be read block by block
ARRAYS = ("npz", "pt", "mat")  # formats with named arrays
LISTS = (*STREAMED, *ARRAYS, "json")  # formats of files that may have only edges
TWO_KINDS = (*STREAMED, "adjlist")  # formats that may have vertices of two kinds
ASKING = (*LISTS, *TWO_KINDS, *WEIGHTED)  # formats whose readers take the user's options
SETS = {  # format of several files -> its module; the names of files identify it
    "planetoid": planetoid,
    "ogb": ogb,
    "graphsaint": graphsaint,
    "reddit": reddit,
    "geomgcn": geomgcn,
    "linqs": linqs,
    "dglcsv": dglcsv,
}
WITHIN = ("", "raw")  # subfolders in which the files may lie
PARQUET = b"PAR1"  # first bytes of a file
PARQUET_EDGE = 3  # fewest bytes of an edge in Parquet
PACKED_USUAL = 4  # usual size of text relative to its compressed size


def reader(fmt: str) -> Callable:
    """Return the reader of a format: read_FORMAT if its module has one, else `read`."""
    module = import_module(READERS[fmt])
    return getattr(module, f"read_{fmt}", None) or module.read


def stream(fmt: str) -> Callable:
    return import_module(READERS[fmt]).stream


def detect(source: Source) -> str:
    """Return the format of a file, by its name or else by its first bytes.

    Raise DataError if it is unknown.
    """
    if fmt := set_of(source.path):
        return fmt
    known = unsupported_formats.identify(source)
    if known is not None and known.reader:
        return known.reader
    unsupported_formats.refuse(source)

    if source.suffix in (".npz", ".mtx", ".csv", ".parquet"):
        return source.suffix[1:]
    if source.magic[:4] == PARQUET:
        return "parquet"
    if source.magic[:4] == b"PK\x03\x04":
        return "npz"
    head = source.head()
    if head[:14].lower() == b"%%matrixmarket":
        return "mtx"
    first = re.search(rb"^[^#%\r\n][^\r\n]*", head, re.MULTILINE)
    return "csv" if first and re.search(rb"[,;]", first[0]) else "snap"


def refuse_options(options: ConvertOptions, fmt: str) -> None:
    """Raise UsageError for flags that the format `fmt`, or a built-in graph, lacks."""
    if options.weights is not None and fmt not in (*STREAMED, *WEIGHTED):
        raise UsageError(f"--weights {options.weights}: only for formats whose edges have several "
                         f"attributes ({', '.join((*STREAMED, *WEIGHTED))}), not for {fmt}")
    for names, formats in ((("matrix",), ARRAYS), (("base", "num_nodes", "compact"), LISTS),
                           (("columns",), STREAMED), (("bipartite",), TWO_KINDS)):
        if fmt not in formats and (flags := options.flags(*names)):
            raise UsageError(f"{' and '.join(flags)}: only for edges in {', '.join(formats)}, not "
                             f"for {fmt}")


def graph_name(source: Source, fmt: str) -> str:
    """Return the name of the graph in a file, or of its data set."""
    return SETS[fmt].graph_name(source.path) if fmt in SETS else source.name


def expected_edges(source: Source) -> float:
    """Estimate the number of edges of an edge list by its size and its first lines."""
    if source.magic[:4] == PARQUET:
        return source.size // PARQUET_EDGE
    lines = [line for line in source.head().split(b"\n")[:-1] if line and line[:1] not in b"#%"]
    length = sum(map(len, lines)) / len(lines) + 1 if lines else 4
    return source.size * (PACKED_USUAL if source.packing else 1) / length


def set_of(path: Path) -> str | None:
    """Return the format of the data set that a file belongs to, or None."""
    return next((fmt for fmt, module in SETS.items() if module.belongs(path)), None)


def first_file(folder: Path | str, fmt: str = "auto") -> Path:
    """Return the Path of one file of the only data set in a folder.

    Raise DataError if the folder has no data set, or several.
    """
    folder = Path(folder)
    first = {}
    for path in (path for name in WITHIN for path in _files(folder / name)):
        known = set_of(path) if fmt == "auto" else fmt
        if known in SETS and SETS[known].belongs(path):
            first.setdefault((known, SETS[known].graph_name(path)), path)

    if len(first) == 1:
        return next(iter(first.values()))
    if not first:
        raise DataError(f"{folder}: is a directory without a known graph of several files "
                        f"({', '.join(SETS)}): give one file")
    names = truncate(", ".join(f"{name} ({known})" for known, name in first))
    raise DataError(f"{folder}: is a directory with several graphs: {names}; give the file of one "
                    "graph")


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise InputNotFoundError(f"{folder}: {error.strerror}") from error

"""Graphs of several files: find the format of a file's data set, or the data set in a
folder.

The module of each such format has two functions. `belongs(path)` returns whether a file
is part of a data set, by its name and the files beside it. `graph_name(path)` returns
the name of that set.
"""
from pathlib import Path

from hpgcn.datasets.collections import dglcsv, geomgcn, graphsaint, linqs, ogb, planetoid, reddit
from hpgcn.datasets.source import truncate
from hpgcn.errors import DataError, InputNotFoundError

SETS = {  # format: its module
    "planetoid": planetoid,
    "ogb": ogb,
    "graphsaint": graphsaint,
    "reddit": reddit,
    "geomgcn": geomgcn,
    "linqs": linqs,
    "dglcsv": dglcsv,
}
WITHIN = ("", "raw")  # subfolders of a folder in which the files may lie


def set_of(path):
    """Return the format of the data set that a file belongs to, or None."""
    return next((fmt for fmt, module in SETS.items() if module.belongs(path)), None)


def first_file(folder, fmt="auto"):
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


def _files(folder):
    if not folder.is_dir():
        return []
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise InputNotFoundError(f"{folder}: {error.strerror}") from error

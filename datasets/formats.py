"""Which reader an input is for."""
from __future__ import annotations

import re
from importlib import import_module

from hpgcn.datasets import foreign, ogb
from hpgcn.datasets.planetoid import FILE as PLANETOID_FILE

READERS = {  # format: module (imported when it is needed) and function
    "planetoid": ("hpgcn.datasets.planetoid", "read"),
    "ogb": ("hpgcn.datasets.ogb", "read"),
    "npz": ("hpgcn.datasets.npz", "read"),
    "mtx": ("hpgcn.datasets.mtx", "read"),
    "snap": ("hpgcn.datasets.edges", "read"),
    "csv": ("hpgcn.datasets.edges", "read"),
    "parquet": ("hpgcn.datasets.parquet", "read"),
}
STREAMS = {  # formats that are also read block by block: these may be larger than memory
    "snap": ("hpgcn.datasets.edges", "stream"),
    "csv": ("hpgcn.datasets.edges", "stream"),
    "parquet": ("hpgcn.datasets.parquet", "stream"),
}
FORMATS = ("auto", *READERS)
FOLDERS = ("planetoid", "ogb")  # formats of several files, told by their names
GZIP_USUAL = 4  # times that text is longer than its gzip
PARQUET, PARQUET_EDGE = b"PAR1", 3  # its first bytes; bytes of an edge in it, at least


def reader(fmt):
    """Return the function (source, memory) -> Raw of a format."""
    return _function(*READERS[fmt])


def stream(fmt):
    """Return the function (source, digest, threads, names, base) -> context of a Stream."""
    return _function(*STREAMS[fmt])


def _function(module, name):
    return getattr(import_module(module), name)


def detect(source):
    """Return the format of a file, by its name, then by its first bytes.

    Raises
    ------
    DataError
        It is of a format that is not read.
    """
    name = source.path.name.lower().removesuffix(".gz")
    if PLANETOID_FILE.fullmatch(source.path.name):
        return "planetoid"
    if ogb.belongs(source.path):
        return "ogb"
    foreign.refuse(source)
    for suffix, fmt in ((".npz", "npz"), (".mtx", "mtx"), (".csv", "csv"), (".parquet", "parquet")):
        if name.endswith(suffix):
            return fmt
    if source.magic[:4] in (b"PK\x03\x04", PARQUET):
        return "parquet" if source.magic[:4] == PARQUET else "npz"
    head = source.head().removeprefix(b"\xef\xbb\xbf")
    if head[:14].lower() == b"%%matrixmarket":
        return "mtx"
    first = re.search(rb"^[^#%\r\n][^\r\n]*", head, re.MULTILINE)
    return "csv" if first and re.search(rb"[,;]", first[0]) else "snap"


def graph_name(source, fmt):
    """Name of the graph in a file."""
    if fmt == "planetoid" and (found := PLANETOID_FILE.fullmatch(source.path.name)):
        return found[1]
    return ogb.graph_name(source.path) if fmt == "ogb" else source.name


def expected_edges(source):
    """About how many edges an edge list holds, by its size and its first lines."""
    if source.magic[:4] == PARQUET:
        return source.size // PARQUET_EDGE
    lines = [line for line in source.head().split(b"\n")[:-1] if line and line[:1] not in b"#%"]
    length = sum(map(len, lines)) / len(lines) + 1 if lines else 4
    return source.size * (GZIP_USUAL if source.is_gzip else 1) / length

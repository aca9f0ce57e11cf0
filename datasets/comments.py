"""What the comments above an edge list say of it: SNAP's header, KONECT's, and that of `hpgcn generate`."""
from __future__ import annotations

import re
from dataclasses import dataclass, field

from hpgcn.datasets import columns
from hpgcn.datasets.text import BLANKS
from hpgcn.errors import DataError

VERTICES = re.compile(rb"[#%] hpgcn .*\bvertices (\d{1,18})\b")  # as hpgcn.datasets.generate writes it
UNDIRECTED = re.compile(rb"[#%]\s*undirected (graph|network)\b", re.IGNORECASE)
COUNTED = re.compile(rb"[#%].*?\bnodes:?\s+(\d{1,18})\b", re.IGNORECASE)  # SNAP
WEIGHTS = b"unweighted|positive|posweighted|signed|multisigned|weighted|multiweighted|multiposweighted|dynamic"
KONECT = re.compile(rb"%\s*(sym|asym|bip)\s+(" + WEIGHTS + rb")\s*", re.IGNORECASE)
SIZES = re.compile(rb"%\s*\d+\s+(\d{1,18})\s+\d+\s*")  # KONECT's second line: edges, vertices twice
MOST_WORDS = 16  # of a comment that may be a header


@dataclass
class Comments:
    """What was found.

    Attributes
    ----------
    num_nodes : int or None
        Vertices, numbered from 0, isolated ones included.
    counted : int or None
        Vertices that the edges are said to have, whatever their ids.
    undirected : bool
        SNAP says that edges have no direction.
    konect : (str, str) or None
        KONECT's words for the graph (sym or asym) and for its weights.
    headers : dict
        Names of columns, by how many there are: the last of each.
    """

    num_nodes: int | None = None
    counted: int | None = None
    undirected: bool = False
    konect: tuple[str, str] | None = None
    headers: dict[int, list[str]] = field(default_factory=dict)


def read_comments(table):
    """Skip blank lines and comments.

    Parameters
    ----------
    table : Table

    Returns
    -------
    Comments, and the first other line (None at the end of the file).

    Raises
    ------
    DataError
        KONECT says that the graph is bipartite.
    """
    found = Comments()
    while (line := table.readline()) is not None:
        text = line.strip(BLANKS)
        if text and text[:1] not in b"#%":
            break
        if declared := VERTICES.match(line):
            found.num_nodes = int(declared[1])
        elif text:
            _take(text, found, table)
    return found, line


def _take(text, found, table):
    if konect := KONECT.fullmatch(text):
        found.konect = konect[1].decode().lower(), konect[2].decode().lower()
        if found.konect[0] == "bip":
            raise DataError(f"{table.where}: line {table.line}: a bipartite graph, whose two sides are both numbered "
                            "from 1: number one side after the other, and leave this line out")
    found.undirected |= UNDIRECTED.match(text) is not None
    if counted := COUNTED.match(text) or (found.konect and SIZES.fullmatch(text)):
        found.counted = int(counted[1])
    words = re.split(r"[\s,;]+", text.lstrip(b"#% \t").decode("utf-8", "replace"), maxsplit=MOST_WORDS)
    if len(words) <= MOST_WORDS and columns.is_header(words):
        found.headers[len(words)] = words

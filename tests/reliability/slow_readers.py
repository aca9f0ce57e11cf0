"""Slow, simple readers of edge lists and MatrixMarket files, without code of hpgcn."""
import gzip
import math
import re
import string
import zlib
from collections import namedtuple

import numpy as np

# weights: dict (row, column) -> float32, sorted
Graph = namedtuple("Graph", "num_nodes weights original_ids")
INTEGER = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
BLANKS = " \t\r"
DIRECTED = ("source", "fromnodeid", "target", "tonodeid")


class InvalidError(Exception):
    """The error of a slow reader for invalid text."""


def unpacked(raw):
    """Decompress a file's bytes if they are gzip, and decode them as Latin-1."""
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidError(error) from error
    return raw.removeprefix(b"\xef\xbb\xbf").decode("latin1")


def read_edges(raw):
    """Read an edge list; column names may be in the first line, in a comment, or missing."""
    lines = unpacked(raw).split("\n")
    at, declared, comments = 0, None, []
    while at < len(lines) and (not lines[at].strip(BLANKS) or lines[at].strip(BLANKS)[0] in "#%"):
        match = re.match(r"[#%] hpgcn .*\bvertices ([0-9]{1,18})\b", lines[at], re.ASCII)
        declared = int(match[1]) if match else declared
        comments.append(re.split(r"[\s,;]+", lines[at].strip(BLANKS).lstrip("#% \t")))
        at += 1
    if at == len(lines):
        raise InvalidError("no edges")
    delimiter = next((letter for letter in ",;" if letter in lines[at]), None)
    header = not any(re.match(r"[-+.]?[0-9]", field.strip("\"'"))
                     for field in fields(lines[at], delimiter))
    if header and "\t" in lines[at]:
        delimiter = "\t"
    first = fields(lines[at], delimiter)
    named = [words for words in comments if len(words) == len(first) and order(words)]
    places = (order(first) if header else order(named[-1]) if named
              else [0, 1, 2][:len(first)]) or []
    if len(first) not in (2, 3) or not places:
        raise InvalidError(f"fields {first}")
    directed = (plain(first[places[0]]) in DIRECTED if header
                else bool(named) and plain(named[-1][places[0]]) == DIRECTED[0])
    high = 2**63 if declared is None else declared
    edges = [edge(fields(line, delimiter), places, 0, high, NUMBER) for line in lines[at + header:]
             if line.strip(BLANKS) and line.strip(BLANKS)[0] not in "#%"]
    if not edges:
        raise InvalidError("no edges")
    if directed:
        edges = [(v, u, w) for u, v, w in edges]
    if declared is not None:
        return merged(declared, edges)
    ids = sorted({end for u, v, _ in edges for end in (u, v)})
    if ids[-1] < 2 * len(ids) + 1024:
        return merged(ids[-1] + 1, edges)
    number = {end: k for k, end in enumerate(ids)}
    edges = [(number[u], number[v], w) for u, v, w in edges]
    return merged(len(ids), edges)._replace(original_ids=ids)


def read_mtx(raw):
    """Read a MatrixMarket coordinate file."""
    lines = unpacked(raw).split("\n")
    words = fields(lines[0].lower(), None)
    if len(words) != 5 or words[:3] != ["%%matrixmarket", "matrix", "coordinate"]:
        raise InvalidError("banner")
    kind, symmetry = words[3:]
    values = {"real": NUMBER, "double": NUMBER, "integer": INTEGER, "unsigned-integer": INTEGER,
              "pattern": None}
    if kind not in values or symmetry not in ("general", "symmetric", "skew-symmetric"):
        raise InvalidError("banner")
    if kind == "pattern" and symmetry == "skew-symmetric":
        raise InvalidError("skew-symmetric pattern")
    at = 1
    while at < len(lines) and (not lines[at].strip(BLANKS) or lines[at][0] == "%"):
        at += 1
    sizes = fields(lines[at], None) if at < len(lines) else []
    if len(sizes) != 3 or not all(re.fullmatch("[0-9]{1,19}", size) for size in sizes):
        raise InvalidError("sizes")
    n, columns, nnz = map(int, sizes)
    if n != columns or n == 0:
        raise InvalidError("shape")
    edges = [edge(fields(line, None), [0, 1] if values[kind] is None else [0, 1, 2], 1, n + 1,
                  values[kind]) for line in lines[at + 1:] if line.strip(BLANKS)]
    if len(edges) != nnz:
        raise InvalidError("number of entries")
    edges = [(u - 1, v - 1, w) for u, v, w in edges]
    sign = {"general": 0, "symmetric": 1, "skew-symmetric": -1}[symmetry]
    if sign < 0 and any(u == v and w for u, v, w in edges):
        raise InvalidError("diagonal")
    mirrored = [(v, u, w if w is None else sign * w) for u, v, w in edges if sign and u != v]
    return merged(n, edges + mirrored)


def fields(line, delimiter):
    """Split a line at `delimiter`, or at runs of blanks if `delimiter` is None."""
    if delimiter is None:
        return re.findall(f"[^{BLANKS}]+", line)
    return [re.sub(r'\A"([^" \t\r]*)"\Z', r"\1", field.strip(BLANKS))
            for field in line.split(delimiter)]


def plain(name):
    """Return a column name in lower case, without blanks and punctuation."""
    return name.lower().translate(dict.fromkeys(map(ord, string.punctuation + string.whitespace)))


def order(names):
    """Return positions of the source, target and weight columns; None if the names are unclear."""
    names = [plain(name) for name in names]
    for ends in (DIRECTED[::2], DIRECTED[1::2], ("u", "v")):
        wanted = [*ends, *({"weight", "w"} & set(names))]
        if sorted(wanted) == sorted(names):
            return [names.index(name) for name in wanted]
    return None


def edge(words, places, low, high, pattern):
    """Return (u, v, weight or None) from the words of a line; ids must be in low..high - 1."""
    if len(words) != len(places):
        raise InvalidError(f"{len(words)} fields")
    words = [words[place] for place in places]
    ends = []
    for field in words[:2]:
        if not INTEGER.fullmatch(field) or not low <= int(field) < min(high, 2**63):
            raise InvalidError(f"id {field}")
        ends.append(int(field))
    if len(words) == 2:
        return (*ends, None)
    if not pattern.fullmatch(words[2]) or not math.isfinite(float(words[2])):
        raise InvalidError(f"weight {words[2]}")
    return (*ends, float(words[2]))


def merged(n, edges):
    """Return the graph of n vertices without zeros.

    Parallel weights are summed unless all are 1.
    """
    edges = [(u, v, w) for u, v, w in edges if w != 0]
    if all(w is None or w == 1 for _, _, w in edges):
        pairs = sorted((u, v) for u, v, _ in edges)
        return Graph(n, dict.fromkeys(pairs, np.float32(1)), None)
    sums = {}
    for u, v, w in edges:
        sums[u, v] = sums.get((u, v), 0.0) + w
    with np.errstate(over="ignore"):
        weights = {pair: np.float32(sums[pair]) for pair in sorted(sums) if sums[pair] != 0}
    if not all(np.isfinite(weight) for weight in weights.values()):
        raise InvalidError("weight too large")
    return Graph(n, weights, None)

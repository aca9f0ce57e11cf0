"""Names formats that are not read, by first bytes, file name and neighbours, and says the way in from each."""
from __future__ import annotations

import re
import zipfile
from typing import NamedTuple

from hpgcn.errors import DataError


class Format(NamedTuple):
    """A format that is not read.

    Attributes
    ----------
    name : str
    way : str
        How its content comes into a file that is read.
    start : bytes
        Regular expression of how it begins, after blank lines and comments where it is text; empty: nothing sure. It
        does not backtrack (++, *+): any bytes must be told in no time.
    suffixes : str
        Endings of file names, separated by blanks.
    by_suffix : bool
        Its lines look like edges: the name alone decides.
    """

    name: str
    way: str
    start: bytes = b""
    suffixes: str = ""
    by_suffix: bool = False


def _networkx(call):
    return (f"G = {call}; scipy.sparse.save_npz('graph.npz', networkx.to_scipy_sparse_array(G)), then convert "
            "graph.npz, whose vertex i is list(G)[i]")


HDF5 = rb"(?s)(?:.{512}|.{1024}|.{2048})?\x89HDF\r\n\x1a\n"  # behind a user block of that size
SAVE = "scipy.sparse.save_npz('graph.npz', A), then convert graph.npz"
EDGES = "write its edges as lines `u v`, ids from 0"
PYG = "numpy.savez('graph.npz', edge_index=data.edge_index, x=data.x, y=data.y, train_mask=data.train_mask, ...)"
TRUSTED = "nothing in it is executed here; where you trust it, load it in Python, then "

TEXTS = (
    Format("GraphML", _networkx("networkx.read_graphml(FILE)"), rb"(?s)<.*<graphml\b|<graphml\b", ".graphml"),
    Format("GEXF", _networkx("networkx.read_gexf(FILE)"), rb"(?s)<.*<gexf\b|<gexf\b", ".gexf"),
    Format("a web page (HTML)", "the download gave no data: look at it in a browser", rb"(?i)<!doctype html|<html",
           ".html .htm"),
    Format("RDF triples", EDGES, rb"(?i)<https?:|@prefix\b|<\?xml[^>]*+>\s*+<rdf:", ".nt .nq .ttl .rdf .owl"),
    Format("XML", EDGES, rb"<[?!a-zA-Z]", ".xml .dynetml .graphmlz"),
    Format("GML", _networkx("networkx.read_gml(FILE, label=None)"),
           rb"(?i)(?:(?:creator|version|comment)\b[^\n]*+\s++)*+graph\s*+\[", ".gml"),
    Format("Graphviz DOT", _networkx("networkx.nx_pydot.read_dot(FILE)"),
           rb"(?i)(?>(?>/\*(?s:.*?)\*/|//[^\n]*+\n)\s*+)*+(?:strict\s++)?(?:di)?graph\b[^\n{\[]*+\s*+\{", ".dot .gv"),
    Format("Pajek", _networkx("networkx.read_pajek(FILE)"), rb"(?i)\*(?:vertices|network|arcs|edges|matrix)\b",
           ".net .paj .clu"),
    Format("UCINET DL", EDGES, rb"(?i)dl\s++\w++\s*+=", ".dl"),
    Format("LEDA", _networkx("networkx.read_leda(FILE)"), rb"LEDA\.GRAPH", ".lgr .gw"),
    Format("DIMACS", "awk '$1 ~ /^[ae]$/ {print $2 - 1, $3 - 1, $4}' FILE > edges.txt, then convert edges.txt",
           rb"(?:c\b[^\n]*+\n|\s)*+p\s++[a-z]++\s++\d++\s++\d", ".gr .col .clq .dimacs"),
    Format("a Ligra AdjacencyGraph", EDGES, rb"(?:Weighted)?AdjacencyGraph\b", ".adj"),
    Format("graph6", _networkx("networkx.read_graph6(FILE)"), rb">>graph6<<", ".g6"),
    Format("sparse6", _networkx("networkx.read_sparse6(FILE)"), rb">>sparse6<<", ".s6"),
    Format("JSON", _networkx("networkx.node_link_graph(json.load(open(FILE))) or adjacency_graph"), rb"[{\[]",
           ".json .jsonl .ndjson"),
    Format("an edge list with networkx's dictionaries",
           "networkx.write_edgelist(G, FILE, data=False), or data=['weight']",
           rb"[^\s,;]++[ \t,;]++[^\s,;]++[ \t,;]++\{"),
    Format("a Git LFS pointer instead of the file", "git lfs pull", rb"version https://git-lfs\."),
    Format("a text pickle", TRUSTED + PYG, rb"\(dp?\d|\(lp?\d|\(dp0|c(?:__builtin__|copy_reg|numpy|networkx|scipy)\b",
           ".p .pck"),
    Format("METIS", "awk '!/^%/ && r++ {for (k = 1; k <= NF; k++) print r - 2, $k - 1}' FILE > edges.txt (without "
           "weights), then convert edges.txt; if it holds edges `u v`: --format snap", b"", ".graph .metis .chaco .grf",
           True),
    Format("an adjacency list", _networkx("networkx.read_adjlist(FILE)") + "; if it holds edges `u v`: --format snap",
           b"", ".adjlist", True),
    Format("a multi-line adjacency list", _networkx("networkx.read_multiline_adjlist(FILE)"), b"",
           ".multiline_adjlist", True),
    Format("a hypergraph", "one graph of pairs of vertices is trained on", b"", ".hgr .hmetis", True),
    Format("Harwell-Boeing or Rutherford-Boeing", f"A = scipy.io.hb_read(FILE); {SAVE}", b"",
           ".rb .hb .rua .rsa .pua .psa", True),
)
METIS = next(each for each in TEXTS if each.name == "METIS")

BINARIES = (
    Format("MATLAB 7.3", f"in MATLAB save('graph.mat', 'A', '-v7'); A = scipy.io.loadmat('graph.mat')['A']; {SAVE}",
           rb"MATLAB 7\.3"),
    Format("MATLAB", f"A = scipy.io.loadmat(FILE)[NAME]; {SAVE}", rb"MATLAB [^7]", ".mat"),
    Format("an HDF5 file", "a graph of hpgcn's own goes to hpgcn partition or hpgcn train as it is; another's "
           f"adjacency: {SAVE}", HDF5, ".h5 .hdf5"),
    Format("AnnData", f"A = anndata.read_h5ad(FILE).obsp['connectivities']; {SAVE}", HDF5, ".h5ad"),
    Format("a PyTorch file", "data = torch.load(FILE, weights_only=False) where you trust it; " + PYG,
           rb"\x80\x02\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", ".pt .pth"),
    Format("a pickle", TRUSTED + PYG, rb"\x80[\x02-\x05]", ".pkl .pickle .gpickle .joblib"),
    Format("graphs of DGL", "g = dgl.load_graphs(FILE)[0][0]; numpy.savez('graph.npz', "
           "edge_index=torch.stack(g.edges()), x=g.ndata['feat'], y=g.ndata['label'])",
           rb"\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd", ".dgl"),
    Format("a single NumPy array", "numpy.savez('graph.npz', edge_index=numpy.load(FILE)) for (2, e), source and "
           "target", rb"\x93NUMPY", ".npy"),
    Format("Arrow or Feather", "pyarrow.parquet.write_table(pyarrow.feather.read_table(FILE), 'edges.parquet')",
           rb"ARROW1|FEA1|\xff{4}", ".feather .arrow .ipc"),
    Format("ORC", "pyarrow.parquet.write_table(pyarrow.orc.read_table(FILE), 'edges.parquet')", rb"ORC", ".orc"),
    Format("an SQLite database", "sqlite3 -csv FILE 'SELECT source, target FROM edges' > edges.csv",
           rb"SQLite format 3", ".db .sqlite .sqlite3"),
    Format("an old Excel table", "save it as .csv", rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", ".xls"),
    Format("data of R", "Matrix::writeMM(A, 'graph.mtx'), then convert graph.mtx", rb"RD[AX][23]\n|X\n\0{3}",
           ".rds .rda .rdata"),
    Format("a tar archive", "tar xf FILE, then convert the file in it", rb"(?s).{257}ustar", ".tar .tgz"),
    Format("a 7z archive", "7z x FILE, then convert the file in it", rb"7z\xbc\xaf\x27\x1c", ".7z"),
    Format("a RAR archive", "unrar x FILE, then convert the file in it", rb"Rar!\x1a\x07", ".rar"),
    Format("bzip2 data", "bunzip2 FILE, then convert what comes out (.gz is read as it is)", rb"BZh[1-9]", ".bz2"),
    Format("xz data", "unxz FILE, then convert what comes out (.gz is read as it is)", rb"\xfd7zXZ\0", ".xz .lzma"),
    Format("zstd data", "unzstd FILE, then convert what comes out (.gz is read as it is)",
           rb"[\x22-\x28]\xb5\x2f\xfd", ".zst .zstd"),
    Format("lz4 data", "unlz4 FILE, then convert what comes out (.gz is read as it is)", rb"\x04\x22\x4d\x18", ".lz4"),
    Format("compress data", "uncompress FILE, then convert what comes out", rb"\x1f[\x9d\xa0]", ".z"),
    Format("a PDF", "its tables are to be written as lines `u v`", rb"%PDF-", ".pdf"),
    Format("UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE > edges.txt, then convert edges.txt", rb"\xff\xfe|\xfe\xff"),
)
BVGRAPH = Format("WebGraph (BVGraph)", "java it.unimi.dsi.webgraph.ArcListASCIIGraph BASENAME edges.txt, then convert "
                 "edges.txt")
UNKNOWN = Format("binary data of no known format", "write its edges as text lines `u v`, or as .npz")

ZIPS = (  # a pattern of the names in it
    (r"(^|.*/)data\.pkl$", next(each for each in BINARIES if each.name == "a PyTorch file")),
    (r"xl/", Format("an Excel table", "save it as .csv")),
    (r"content\.xml$", Format("an OpenDocument table", "save it as .csv")),
    (r"", Format("a zip archive", "unzip FILE, then convert the file in it")),
)
TU = Format("a TU dataset of many graphs (graph classification)", "one graph is trained on here")
TU_FILE = re.compile(r"(.+)_(A|(graph|node|edge)_(indicator|labels|attributes))\.txt")

COMMENTS = re.compile(rb"(?:[ \t]*(?:[#%][^\n]*)?\r?\n)*\s*(?:[#%][^\n]*\Z)?")
CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")


def refuse(source, by_name=True):
    """Refuse a file of a format that is not read.

    Parameters
    ----------
    source : Source
    by_name : bool
        Also go by the name of the file and of those beside it; otherwise by what is in it alone.

    Raises
    ------
    DataError
        Naming the format and the way in.
    """
    found = identify(source, by_name)
    if found is not None:
        raise DataError(f"{source}: is {found.name}, which is not read: {found.way}")


def refuse_array(source):
    """Refuse a file of features or labels that holds no array.

    Raises
    ------
    DataError
        Naming what it is.
    """
    known = identify(source)
    if known is not None or source.magic[:2] != b"PK":
        kind = known.name if known else "text" if source.size else "empty"
        raise DataError(f"{source}: not an array in .npy format but {kind}: numpy.save writes one")


def identify(source, by_name=True):
    """Return the Format of a file that is not read, or None where a reader may try."""
    head = source.head().removeprefix(b"\xef\xbb\xbf")
    body = head[COMMENTS.match(head).end():]
    suffix = "." + source.path.name.lower().removesuffix(".gz").rpartition(".")[2]
    named = [each for each in (*TEXTS, *BINARIES) if suffix in each.suffixes.split()]
    begun = [each for each in BINARIES if each.start and re.match(each.start, head)]
    begun += [each for each in TEXTS if each.start and re.match(each.start, body)]
    if begun:
        return next((each for each in begun if each in named), begun[0])
    if head[:2] == b"PK":
        return _in_zip(source, suffix)
    if not head or head[:4] == b"PAR1" or suffix in (".npz", ".parquet"):
        return None  # empty or broken: the reader says so
    if _is_binary(head, body):
        if source.path.with_suffix(".properties").is_file():
            return BVGRAPH
        return next((each for each in named if each in BINARIES), UNKNOWN)
    return _named(source, head, body, suffix, named) if by_name else None


def _named(source, head, body, suffix, named):
    """The Format of a text that its name, the files beside it or the shape of its lines tell."""
    if (tu := TU_FILE.fullmatch(source.path.name)) and source.path.with_name(f"{tu[1]}_graph_indicator.txt").is_file():
        return TU
    if suffix in (".properties", ".offsets") and source.path.with_suffix(".graph").is_file():
        return BVGRAPH
    for each in named:
        if each.by_suffix or (body and not body[:1].isdigit()):
            return each
    if suffix in (".csv", ".mtx") or head[:2] == b"%%":
        return None
    return METIS if _has_metis_shape(head, len(head) < source.text_room) else None


def _in_zip(source, suffix):
    try:
        with source.open() as stream, zipfile.ZipFile(stream) as archive:
            names = archive.namelist() or [""]
    except Exception:  # whatever broken bytes lead zipfile to: the reader of .npz says it
        return None
    if any(name.endswith(".npy") for name in names):
        return None
    kinds = ZIPS[:-1] if suffix == ".npz" else ZIPS
    return next((each for pattern, each in kinds if any(re.match(pattern, name) for name in names)), None)


def _is_binary(head, body):
    """Whether what comes before the first edge is no text."""
    line = body.partition(b"\n")[0]
    if CONTROL.search(head[:len(head) - len(body)] + line):
        return True
    high = sum(byte > 127 for byte in line)
    return not line[:1].isdigit() and (bool(CONTROL.search(head[:512])) or 10 * high > 3 * len(line) + 30)


def _has_metis_shape(head, cut):
    """Whether the first line counts vertices and edges, and a line for each vertex lists its neighbours.

    Parameters
    ----------
    head : bytes
        First lines of the file.
    cut : bool
        There are more: then lines of different lengths are asked for, which no edge list has.
    """
    lines = [line for line in head.split(b"\n") if line[:1] != b"%"]
    rows = [line.split() for line in (lines[:-1] if cut or not lines[-1] else lines)]
    if not rows or len(rows[0]) not in (2, 3, 4) or not all(word.isdigit() for row in rows for word in row):
        return False
    n, m, *weights = map(int, rows[0])
    pairs = [(u, int(word)) for u, row in enumerate(rows[1:], 1) for word in row]
    ragged = len({len(row) for row in rows[1:]}) > 1
    if n == 0 or (pairs and max(pairs)[0] > n) or (not weights and any(not 1 <= v <= n or u == v for u, v in pairs)):
        return False
    if cut or weights:
        return ragged and (cut or len(rows) == n + 1)
    return len(rows) == n + 1 and len(pairs) == 2 * m and set(pairs) == {(v, u) for u, v in pairs}

"""Recognition of file formats by first bytes and names, with advice to convert them."""
from __future__ import annotations

import codecs
import re
import zipfile
from typing import TYPE_CHECKING, NamedTuple

from hpgcn.datasets.source import CONTROL
from hpgcn.errors import DataError

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source


class Format(NamedTuple):
    """A file format: its reader, or advice on how to convert it.

    `start` is a regular expression for the first bytes, after blank lines and comments
    of a text. It is empty if these are not certain. It does not backtrack (++, *+), so
    that any bytes are matched fast.
    """

    name: str
    way: str  # how to convert it to a supported format
    start: bytes = b""
    suffixes: str = ""  # suffixes of file names, separated by blanks
    by_suffix: bool = False  # only the suffix identifies it, because its lines look like edges
    reader: str = ""  # key in convert_options.READERS, if it is supported


def _networkx(call: str) -> str:
    return f"networkx.write_graphml(networkx.{call}, 'graph.graphml'), then convert graph.graphml"


def _arrow(call: str) -> str:
    return f"pyarrow.parquet.write_table({call}, 'edges.parquet'), then convert edges.parquet"


def _unpacker(name: str, start: bytes, suffixes: str, command: str) -> Format:
    return Format(name, f"{command}, then convert the result", start, suffixes)


HDF5 = rb"(?s)(?:.{512}|.{1024}|.{2048})?\x89HDF\r\n\x1a\n"  # after an optional user block
SAVE = "scipy.sparse.save_npz('graph.npz', A), then convert graph.npz"
EDGES = "write its edges as lines `u v`, ids from 0"
TRUSTED = (
    "hpgcn never executes it; if you trust it, print(type(pickle.load(open(FILE, 'rb')))) in "
    "Python shows its type; for a SciPy matrix A use scipy.sparse.save_npz('graph.npz', A); for a "
    "NetworkX graph G networkx.write_graphml(G, 'graph.graphml'); for a PyG object data "
    "torch.save(data, 'graph.pt'); then convert the new file")

LGL = Format("LGL", "awk '/^#/ {u = $2; next} NF {print u, $1, (NF > 1 ? $2 : 1)}' FILE > "
                    "edges.txt, then convert edges.txt (with --columns u,v,w --symmetrize)", b"",
             ".lgl", True)
METIS = Format("METIS", "", b"", ".graph .metis .chaco .grf", True, reader="metis")
TEXTS = (
    Format("GraphML", "", rb"(?s)<.*<graphml\b|<graphml\b", ".graphml", reader="graphml"),
    Format("GEXF", "", rb"(?s)<.*<gexf\b|<gexf\b", ".gexf", reader="gexf"),
    Format("a web page (HTML)", "the download failed: open it in a browser",
           rb"(?i)<!doctype html|<html", ".html .htm"),
    Format("RDF triples", EDGES, rb"(?i)<https?:|@prefix\b|<\?xml[^>]*+>\s*+<rdf:",
           ".nt .nq .ttl .rdf .owl"),
    Format("XML", EDGES, rb"<[?!a-zA-Z]", ".xml .dynetml .graphmlz"),
    Format("GML", "", rb"(?i)(?:(?:creator|version|comment)\b[^\n]*+\s++)*+graph\s*+\[", ".gml",
           reader="gml"),
    Format("Graphviz DOT", _networkx("nx_pydot.read_dot(FILE)") + " (needs pydot: pip install "
                                                                  "pydot; --unweighted if its "
                                                                  "weights are text)",
           rb"(?i)(?>(?>/\*(?s:.*?)\*/|//[^\n]*+\n)\s*+)*+"
           rb"(?:strict\s++)?(?:di)?graph\b[^\n{\[]*+\s*+\{", ".dot .gv"),
    Format("Pajek", "", rb"(?i)\*(?:vertices|network|arcs|edges|matrix)\b", ".net .paj .clu",
           reader="pajek"),
    Format("VNA of NetDraw", "awk '/^[*]/ {t = tolower($1 $2) == \"*tiedata\"; next} t' FILE > "
           "edges.txt, then convert edges.txt",
           rb"(?i)\*(?:node|tie)\s++(?:data|properties)\b", ".vna"),
    Format("GDF of GUESS", "sed -n '/^edgedef>/,$p' FILE | sed '1s/^edgedef>//; "
           "1s/ [A-Za-z()0-9]*//g' > edges.csv, then convert edges.csv",
           rb"(?i)nodedef\s*+>", ".gdf"),
    Format("UCINET DL", EDGES, rb"(?i)dl\s++\w++\s*+=", ".dl"),
    Format("LEDA", _networkx("read_leda(FILE)"), rb"LEDA\.GRAPH", ".lgr .gw"),
    Format("DIMACS", "awk '$1 ~ /^[ae]$/ {print $2 - 1, $3 - 1, $4}' FILE > edges.txt, then "
           "convert edges.txt (lines e: with --symmetrize)",
           rb"(?:c\b[^\n]*+\n|\s)*+p\s++[a-z]++\s++\d++\s++\d", ".gr .col .clq .dimacs"),
    Format("a Ligra AdjacencyGraph", EDGES, rb"(?:Weighted)?AdjacencyGraph\b", ".adj"),
    Format("graph6", _networkx("read_graph6(FILE)"), rb">>graph6<<", ".g6"),
    Format("sparse6", _networkx("read_sparse6(FILE)"), rb">>sparse6<<", ".s6"),
    Format("lines of JSON", "pandas.read_json(FILE, lines=True).to_csv('edges.csv', index=False), "
           "then convert edges.csv", rb"\{[^\n]*\}[ \t\r]*\n\s*+\{",
           ".jsonl .ndjson .json"),
    Format("JSON", "", rb"[{\[]", ".json", reader="json"),
    Format("an edge list with networkx's dictionaries",
           _networkx("read_edgelist(FILE)") + " (if edges have a direction: read_edgelist(FILE, "
                                              "create_using=networkx.DiGraph))",
           rb"[^\s,;]++[ \t,;]++[^\s,;]++[ \t,;]++\{"),
    Format("a Git LFS pointer instead of the file", "git lfs pull", rb"version https://git-lfs\."),
    Format("a text pickle", TRUSTED,
           rb"\(dp?\d|\(lp?\d|\(dp0|c(?:__builtin__|copy_reg|numpy|networkx|scipy)\b", ".p .pck"),
    METIS,
    LGL,
    Format("an adjacency list", "", b"", ".adjlist", True, reader="adjlist"),
    Format("SIF of Cytoscape", "awk '{for (k = 3; k <= NF; k++) print $1, $k}' FILE > edges.txt, "
           "then convert edges.txt", b"", ".sif", True),
    Format("a multi-line adjacency list", _networkx("read_multiline_adjlist(FILE)"), b"",
           ".multiline_adjlist", True),
    Format("a hypergraph", "hpgcn trains on graphs whose edges have two ends", b"", ".hgr .hmetis",
           True),
    Format("Harwell-Boeing or Rutherford-Boeing", "use the same matrix in MatrixMarket format "
                                                  "(.mtx); or, for real unsymmetric ones (RUA), A "
                                                  f"= scipy.io.hb_read(FILE); {SAVE}", b"",
           ".rb .hb .rua .rsa .pua .psa", True),
)

PYTORCH = Format("a PyTorch file", "", suffixes=".pt .pth", reader="pt")
OLD_PYTORCH = Format(
    "a file of PyTorch before 1.6", "torch.save(torch.load(FILE, weights_only=False), 'graph.pt'), "
                                    "then convert graph.pt (this executes code in FILE: only if "
                                    "you trust it)",
    rb"\x80\x02\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")
BINARIES = (
    Format("MATLAB 7.3", "in MATLAB save('graph.mat', 'A', '-v7'), then convert graph.mat; or, for "
                         "a sparse A, in Python f = h5py.File(FILE)['A']; A = "
                         "scipy.sparse.csc_array((f['data'], f['ir'], f['jc']), 2 * "
                         f"[f.attrs['MATLAB_sparse']]); {SAVE}", rb"MATLAB 7\.3"),
    Format("MATLAB", "", rb"MATLAB [^7]", ".mat", reader="mat"),
    Format("an HDF5 file", "give a graph file of hpgcn directly to hpgcn partition or hpgcn train; "
                           f"for the adjacency A of another file, {SAVE}", HDF5, ".h5 .hdf5"),
    Format("AnnData", f"A = anndata.read_h5ad(FILE).obsp['connectivities']; {SAVE}", HDF5, ".h5ad"),
    PYTORCH,
    OLD_PYTORCH,
    Format("a pickle", TRUSTED, rb"\x80[\x02-\x05]", ".pkl .pickle .gpickle .joblib"),
    Format("graphs of DGL", "in Python hpgcn.save(hpgcn.from_dgl(dgl.load_graphs(FILE)[0][0]), "
                            "'graph.h5') to convert the first graph",
           rb"\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd", ".dgl"),
    Format("a single NumPy array", "for sources and targets (2, e), numpy.savez('graph.npz', "
                                   "edge_index=numpy.load(FILE)), then convert graph.npz; for a "
                                   "matrix (n, n), A = scipy.sparse.csr_array(numpy.load(FILE)); "
                                   f"{SAVE}", rb"\x93NUMPY", ".npy"),
    Format("Arrow or Feather", _arrow("pyarrow.feather.read_table(FILE)"), rb"ARROW1|FEA1",
           ".feather .arrow .ipc"),
    Format("an Arrow stream", _arrow("pyarrow.ipc.open_stream(FILE).read_all()"), rb"\xff{4}",
           ".arrow .arrows .ipc"),
    Format("ORC", _arrow("pyarrow.orc.read_table(FILE)"), rb"ORC", ".orc"),
    Format("an SQLite database", "sqlite3 -csv -header FILE 'SELECT source, target FROM edges' > "
           "edges.csv, then convert edges.csv", rb"SQLite format 3", ".db .sqlite .sqlite3"),
    Format("an old Excel table", "save it as .csv, then convert that",
           rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", ".xls"),
    Format("data of R", "in R A <- readRDS(FILE), or load(FILE) of an .rda, then Matrix::writeMM("
           "as(A, 'CsparseMatrix'), 'graph.mtx'), then convert graph.mtx",
           rb"RD[AX][23]\n|X\n\0{3}", ".rds .rda .rdata"),
    _unpacker("a tar archive", rb"(?s).{257}ustar", ".tar .tgz", "tar xf FILE"),
    _unpacker("a 7z archive", rb"7z\xbc\xaf\x27\x1c", ".7z", "7z x FILE"),
    _unpacker("a RAR archive", rb"Rar!\x1a\x07", ".rar", "unrar x FILE"),
    _unpacker("lzma data", rb"\x5d\0\0", ".lzma", "unlzma FILE"),
    _unpacker("zstd data", rb"[\x22-\x28]\xb5\x2f\xfd", ".zst .zstd", "unzstd FILE"),
    _unpacker("lz4 data", rb"\x04\x22\x4d\x18", ".lz4", "unlz4 FILE"),
    _unpacker("compress data", rb"\x1f[\x9d\xa0]", ".z", "uncompress FILE"),
    Format("a PDF", "write its edges as lines `u v`", rb"%PDF-", ".pdf"),
    Format("UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE > edges.txt, then convert edges.txt",
           rb"\xff\xfe|\xfe\xff"),
)
UTF16 = BINARIES[-1]
BVGRAPH = Format("WebGraph (BVGraph)", "java it.unimi.dsi.webgraph.ArcListASCIIGraph BASENAME "
                 "edges.txt, then convert edges.txt")
UNKNOWN = Format("binary data of no known format",
                 "write its edges as text lines `u v`, or as .npz")

ZIPS = (  # with a pattern of the names of members
    (r"(^|.*/)data\.pkl$", PYTORCH),
    (r"xl/", Format("an Excel table", "save it as .csv, then convert that")),
    (r"content\.xml$", Format("an OpenDocument table", "save it as .csv, then convert that")),
    (r"", Format("a zip archive", "unzip FILE, then convert the file in it")),
)
TU = Format("a TU dataset of many graphs (graph classification)", "hpgcn trains on one graph")
TU_FILE = re.compile(r"(.+)_(A|(graph|node|edge)_(indicator|labels|attributes))\.txt")

COMMENTS = re.compile(rb"(?:[ \t]*(?:[#%][^\n]*)?\r?\n)*\s*(?:[#%][^\n]*\Z)?")


def refuse(source: Source, by_name: bool = True, fmt: str | None = None) -> None:
    """Raise DataError if the format of a Source has no reader, or is not `fmt`, if given.

    Without `by_name` only the content decides.
    """
    known = identify(source, by_name)
    if known is None and fmt == "adjlist" and _has_lgl_shape(source.head()):
        known = LGL
    if known is None or (known.reader and known.reader == fmt):
        return
    if known.reader:
        raise DataError(f"{source}: is {known.name}, not {fmt}: use --format {known.reader}")
    raise DataError(f"{source}: is {known.name}, which is not supported: {known.way}")


def refuse_array(source: Source) -> None:
    """Raise DataError for features or labels that are no NumPy array; it names their format."""
    known = identify(source, by_name=False)
    if known is None and source.magic[:2] == b"PK":
        return
    way = "write it with numpy.save"
    kind = known.name if known else "empty"
    if source.size and (known is None or known in TEXTS):
        kind, way = "text", "rename it to end in .csv to read it as a table"
    raise DataError(f"{source}: not an array in .npy format but {kind}: {way}")


def identify(source: Source, by_name: bool = True) -> Format | None:
    """Return the Format of a file; None for edge lists, .npz and .mtx."""
    head = source.head()
    body = head[COMMENTS.match(head).end():]
    suffix = source.suffix
    named = [known for known in (*TEXTS, *BINARIES) if suffix in known.suffixes.split()]

    # compare the first bytes
    begun = [known for known in BINARIES if known.start and re.match(known.start, head)]
    begun += [known for known in TEXTS if known.start and re.match(known.start, body)]
    if begun:
        return next((known for known in begun if known in named), begun[0])

    if head[:2] == b"PK":
        return _in_zip(source, suffix)
    if not head or head[:4] == b"PAR1" or suffix in (".npz", ".parquet"):
        return None  # empty or damaged, which the reader reports

    if _is_binary(head, body):
        if source.path.with_suffix(".properties").is_file():
            return BVGRAPH
        return next((known for known in named if known in BINARIES), UNKNOWN)

    return _text_format(source, head, body, suffix, named) if by_name else None


def _text_format(source: Source, head: bytes, body: bytes, suffix: str,
                 named: list) -> Format | None:
    """Return the Format of a text by its name, the files beside it, or its lines."""
    path = source.path
    match = TU_FILE.fullmatch(path.name)
    if match and path.with_name(f"{match[1]}_graph_indicator.txt").is_file():
        return TU
    if suffix in (".properties", ".offsets") and path.with_suffix(".graph").is_file():
        return BVGRAPH
    for known in named:
        if known.by_suffix or (body and not body[:1].isdigit()):
            return known
    if suffix in (".csv", ".mtx") or head[:2] == b"%%":
        return None
    if _has_lgl_shape(head):
        return LGL
    return METIS if _has_metis_shape(head, len(head) < source.text_room) else None


def _has_lgl_shape(head: bytes) -> bool:
    """Return whether lines `# vertex` stand above lines of neighbors, maybe with weights."""
    rows = [line.split() for line in head.split(b"\n") if line.strip()]
    marked = [row for row in rows if row[0] == b"#"]
    plain = [row for row in rows if row[0] != b"#"]
    if len(marked) < 2 or not plain or rows[0][0] != b"#" or any(len(row) != 2 for row in marked):
        return False
    names = {row[0] for row in plain}
    return all(len(row) < 3 for row in plain) and (
        all(len(row) == 1 for row in plain) or any(row[1] in names for row in marked))


def _in_zip(source: Source, suffix: str) -> Format | None:
    try:
        with source.open() as stream, zipfile.ZipFile(stream) as archive:
            names = archive.namelist() or [""]
    except Exception:  # errors of any type, which the reader of .npz reports
        return None
    if any(name.endswith(".npy") for name in names):
        return None
    kinds = ZIPS[:-1] if suffix == ".npz" else ZIPS
    return next((known for pattern, known in kinds
                 if any(re.match(pattern, name) for name in names)), None)


def _is_binary(head: bytes, body: bytes) -> bool:
    """Return whether the bytes up to the first edge are not text."""
    line = body.partition(b"\n")[0]
    if CONTROL.search(head[:len(head) - len(body)] + line):
        return True
    if line[:1].isdigit():
        return False
    high = sum(byte > 127 for byte in line)
    words = _is_utf8(head) or re.search(rb"[ \t,;\n]", head)  # refused later if not UTF-8
    return bool(CONTROL.search(head[:512])) or (10 * high > 3 * len(line) + 30 and not words)


def _is_utf8(head: bytes) -> bool:
    """Return whether the first bytes of a file are UTF-8; the last letter may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _has_metis_shape(head: bytes, cut: bool) -> bool:
    """Return whether a text has METIS's form.

    Line 1 counts vertices and edges, and each other line lists neighbors. If `head` is
    `cut`, lines must have different lengths, which those of edge lists do not.
    """
    lines = [line for line in head.split(b"\n") if line[:1] != b"%"]
    if lines and (cut or not lines[-1]):
        lines.pop()

    # expect whole numbers in each line, two to four in the first
    rows = [line.split() for line in lines]
    if not rows or not 2 <= len(rows[0]) <= 4:
        return False
    if not all(word.isdigit() for row in rows for word in row):
        return False

    # expect a line for each vertex, with neighbors in range
    n, m, *weights = map(int, rows[0])
    if weights and set(rows[0][2].decode()) - {"0", "1"}:
        return False
    pairs = [(u, int(word)) for u, row in enumerate(rows[1:], 1) for word in row]
    ragged = len({len(row) for row in rows[1:]}) > 1

    if n == 0 or (pairs and max(pairs)[0] > n):
        return False
    if not weights and any(not 1 <= v <= n or u == v for u, v in pairs):
        return False
    if cut or weights:
        return ragged and (cut or len(rows) == n + 1)

    undirected = set(pairs) == {(v, u) for u, v in pairs}
    return len(rows) == n + 1 and len(pairs) == 2 * m and undirected

"""Names of columns: ends of edges, weights, ids, labels and splits.

Names are compared by `plain`: without case, blanks and punctuation.
"""
import re
from collections.abc import Iterable, Iterator, Sequence

from hpgcn.graphs.edge_weights import is_weight, plain

# names of columns of edges
THING = ("(edge|link|node|vertex|vert|id|name|user|person|author|page|paper|entity|member|tx|"
         "protein|gene)?")
NUMBER = "(id|idx|index|no|number)?"
SOURCE = "(source|src|from|sender|start|origin)"
TARGET = "(target|tgt|trg|dst|dest|destination|to|receiver|recipient|end)"
DIRECTED = ("source", "target")
ENDS = {  # word of --columns -> other names of the two ends of an edge
    DIRECTED: (f"{THING}{SOURCE}{THING}{NUMBER}", f"{THING}{TARGET}{THING}{NUMBER}"),
    ("u", "v"): (f"{THING}u{NUMBER}", f"{THING}v{NUMBER}"),
    ("i", "j"): (f"{THING}i", f"{THING}j"),
    ("row", "col"): ("rows?", "cols?|columns?"),
    ("node1", "node2"): (f"{THING}{NUMBER}(?<=.)1{NUMBER}", f"{THING}{NUMBER}(?<=.)2{NUMBER}"),
    ("node_a", "node_b"): (f"{THING}{NUMBER}(?<=.)a", f"{THING}{NUMBER}(?<=.)b"),
}
IGNORED = "|".join((
    "unnamed[0-9]*|indexlevel[0-9]*|",  # an index of pandas, without or with a name
    "(edge|link|row|rel|relation)?(id|idx|index|no|number)",
    "(start|end|unix|edge|created|updated|utc)?"
    "(times?|timestamps?|ts|at|dates?|datetime|timeset|interval)",
    "years?|months?|days?|hours?",
    "(edge|link|rel|relation)?"
    "(type|label|kind|class|name|colou?r|description|comment|title|directed)"))
GRAPH = "(graph|subgraph|network|component)(id|idx|index|no|number|name)?"  # a graph among several
TRIPLE = (  # the head, relation and tail of a knowledge graph
    "(h|head|s|subj|subject)(entity)?(id|name)?",
    "(r|rel|relation|relationship|p|pred|predicate|property|verb)(type)?(id|name)?",
    "(t|tail|o|obj|object)(entity)?(id|name)?")
NEO4J = re.compile(r"([^:]*):([A-Za-z_-]+)(?:\[\])?(?:\(([^()]*)\))?(?:\{[^{}]*\})?")
NEO4J_ROLES = ("id", "start_id", "end_id", "type", "label", "ignore")
SNAP = {"fromnodeid", "tonodeid"}

# names of columns of vertices
VERTEX = "(node|vertex|user|person|author|page|paper|entity)?(id|idx|index|name)?|unnamed[0-9]*"
LABEL = ("(node|vertex|true)?"
         "(labels?|class|classes|target|y|gt|groundtruth|community|group|category)(id)?")
MUSAE = "pagetype|mltarget"
ID = "(new|node|vertex|vert|user|paper)?(id|idx|index|node|vertex)"
INDEX = "(unnamed[0-9]*)?"  # an index of pandas without a name
WEAK_ID = ".*(id|ids|idx|index|key)"
CLASS = "(node|vertex|true)?(labels?|class|classes|target|gt|groundtruth)(id)?|" + MUSAE
SPLIT_NAME = "(data)?(splits?|sets?|subset|fold|role|partition)"
PARTS = {  # name in files -> part of a split
    "train": "train", "training": "train", "tr": "train", "val": "val", "valid": "val",
    "validation": "val", "va": "val", "dev": "val", "test": "test", "testing": "test",
    "te": "test"}
PART_NAMES = dict.fromkeys(PARTS.values())  # train, val, test
MASK = "(is|in)?(train|training|val|valid|validation|test)(mask|idx)?"


def plain_column(name: str) -> str:
    """Return a column name without case, punctuation and Neo4j's type, for comparisons."""
    if (typed := NEO4J.fullmatch(name)):
        name = typed[2] if typed[2].lower() in NEO4J_ROLES or not typed[1] else typed[1]
    return plain(name)


def kind_of(name: str) -> tuple:
    """Return the kind of a column name, a pair.

    It is (pair of ENDS, 0 or 1) for the name of an end. Otherwise it is (kind, 0), with
    a kind such as "weight" or "unknown".
    """
    name = plain_column(name)
    for ends, patterns in ENDS.items():
        for end, pattern in enumerate(patterns):
            if re.fullmatch(pattern, name):
                return ends, end
    if is_weight(name):
        return "weight", 0
    if re.fullmatch(GRAPH, name):
        return "graph", 0
    return "ignored" if re.fullmatch(IGNORED, name) else "unknown", 0


def end_pairs(kinds: Iterator | list[tuple]) -> list[tuple]:
    """Return the pairs of ENDS whose two ends are both in `kinds`."""
    kinds = set(kinds)
    return [ends for ends in ENDS if {(ends, 0), (ends, 1)} <= kinds]


def end_names(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the pair of ENDS that two names mean, or None."""
    (ends,) = end_pairs(map(kind_of, names)) or (None,)
    return ends


def find_ends(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the only two of `names` that are both ends of an edge, in this order, or None."""
    kinds = [kind_of(name) for name in names]
    pairs = end_pairs(kinds)
    found = [[name for name, kind in zip(names, kinds) if kind == (pairs[0], end)]
             for end in range(2)] if len(pairs) == 1 else []
    return (found[0][0], found[1][0]) if list(map(len, found)) == [1, 1] else None


def are_labels(names: list[str]) -> bool:
    """Return whether two column names mean a vertex and its label, and no ends of an edge."""
    if len(names) != 2:
        return False
    first, second = map(plain, names)
    return any(re.fullmatch(VERTEX, vertex) and re.fullmatch(LABEL, label)
               for vertex, label in ((first, second), (second, first)))


def find_triple(names: list[str]) -> list[int] | None:
    """Return the indices of head, relation and tail in a header of triples, or None."""
    words = list(map(plain_column, names))
    places = [[k for k, word in enumerate(words) if re.fullmatch(pattern, word)]
              for pattern in TRIPLE]
    return [each[0] for each in places] if all(len(each) == 1 for each in places) else None


def is_known(name: str) -> bool:
    """Return whether `name` is a usual name for a column of ids, labels or a split."""
    return re.fullmatch(f"{ID}|{LABEL}|{MUSAE}|{SPLIT_NAME}|{MASK}", plain(name)) is not None


def is_header(words: list[str]) -> bool:
    """Return whether `words` name columns: ends of an edge, a triple, or vertex labels."""
    pairs = end_pairs(map(kind_of, words))
    return bool(pairs) or are_labels(words) or find_triple(words) is not None

"""The roles of an edge list's columns, by their names in a header or in --columns.

Names are compared without case, blanks and punctuation. Unknown names raise an error.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hpgcn.datasets.raw_graph import ROW_FIRST, TARGET_FIRST
from hpgcn.datasets.source import truncate
from hpgcn.datasets.text.column_names import (
    DIRECTED,
    NEO4J,
    SNAP,
    are_labels,
    end_pairs,
    find_triple,
    kind_of,
    plain_column,
)
from hpgcn.datasets.text.parse import PASSED, U, V, W
from hpgcn.errors import DataError, UsageError
from hpgcn.graphs.edge_weights import plain

if TYPE_CHECKING:
    from hpgcn.datasets.convert_options import ConvertOptions
    from hpgcn.datasets.source import Source

MOST_SHOWN = 16  # words in a message


class UnclearError(Exception):
    """Error for column names whose meaning is not clear."""


@dataclass(frozen=True)
class EdgeColumns:
    """The role of each column of an edge list: an end, the weight, or not read."""

    roles: tuple[int, ...]  # each U (first end), V (second end), W (weight) or PASSED
    ends: tuple[str, str] = ROW_FIRST  # names of the first and the second end
    reads: tuple[str, str] = ROW_FIRST  # ends that are row and column, or TARGET_FIRST
    notes: tuple[str, ...] = ()  # notes for the user
    guessed: bool = False  # the third column holds weights only by its position

    @staticmethod
    def of_ends(ends: tuple[str, str], weighted: bool) -> EdgeColumns:
        """Return the EdgeColumns of two ends called `ends`, one of ENDS, and maybe a weight."""
        reads = TARGET_FIRST if ends == DIRECTED else ROW_FIRST
        return EdgeColumns((U, V, W) if weighted else (U, V), ends, reads)

    @property
    def sides(self) -> tuple[str, str]:
        """The names of the two kinds of ids in a bipartite edge list."""
        return self.ends if len(set(self.ends)) == 2 else ROW_FIRST


def from_position(count: int) -> EdgeColumns:
    """Return the EdgeColumns of lines `u v` or `u v weight` without column names."""
    if count < 3:
        return EdgeColumns((U, V))
    note = "no header: the third column is read as weights; use --columns u,v,- to skip it"
    return EdgeColumns((U, V, W), notes=(note,), guessed=True)


def third_column_error(where: str, kind: str, *, text: bool = False,
                       whole: bool = True) -> DataError:
    """Return the DataError for an unnamed third column that may have no weights.

    With `text` it has text. Otherwise it has numbers, maybe `whole`, that do not look
    like weights.
    """
    ways = ["--columns u,v,- to skip it"]
    if whole:
        ways.insert(0 if text else 1, "--columns source,-,target to read triples")
    if not text:
        ways.insert(1, "--columns u,v,w to read it as weights")
    return DataError(f"{where}: no header, and the third column {kind}: use {', '.join(ways)}")


def from_header(names: list[str], where: Source | str, *, comment: bool = False,
                textual: Sequence = (), fitting: list[int] | None = None,
                numeric: list[int] | None = None,
                options: ConvertOptions | None = None) -> EdgeColumns:
    """Return the EdgeColumns for the column names of a header at `where`.

    Raise DataError if their meaning is unclear.

    FromNodeId and ToNodeId in a `comment`, as SNAP writes it, are read like a list
    without header. `textual` are the columns without numbers; they are skipped if their
    names are unknown. Only columns in `fitting` have ids, and only those in `numeric`
    numbers (None: all may). The user's `options` may name the column of weights
    (`weights`) and those of features, and allow two kinds of ids (`bipartite`).
    """
    weights = None if options is None else options.weights
    features = [] if options is None else [
        k for k, name in enumerate(names)
        if any(fnmatchcase(name, pattern) for pattern in options.edge_feature_names)]
    if features:
        textual = range(len(names))  # unknown columns are then not read
    try:
        bipartite = options is not None and options.bipartite
        if not bipartite:
            _refuse_two_kinds(names)
        roles, ends = _assign(names, textual, weights, fitting, numeric, bipartite=bipartite)
    except UnclearError as error:
        raise DataError(f"{where}: columns {truncate(', '.join(names))}: {error}") from None
    directed = ends == DIRECTED and not (comment and set(map(plain_column, names)) >= SNAP)
    return _columns(roles, names, directed, _notes(names, roles, directed, features))


def from_flag(text: str, names: list[str], where: str) -> EdgeColumns:
    """Return the EdgeColumns for `text`, the value of --columns.

    `names` are those of the header, or empty. Errors are those of `check_flag`, and a
    DataError if the numbers of columns differ.
    """
    words = check_flag(text)
    if len(words) != len(names):
        raise DataError(f"{where}: {len(names)} column(s), but --columns {text} names {len(words)}")
    roles, ends = _assign(words)
    directed = ends == DIRECTED
    notes = _notes(names, roles, directed) if any(names) else ()
    return _columns(roles, names if any(names) else words, directed, notes)


def _columns(roles: tuple[int, ...], names: list[str], directed: bool,
             notes: tuple[str, ...]) -> EdgeColumns:
    ends = names[roles.index(U)], names[roles.index(V)]
    return EdgeColumns(roles, ends, TARGET_FIRST if directed else ROW_FIRST, notes)


def check_flag(text: str) -> list[str]:
    """Return the list of words in `text`, the value of --columns.

    Raise UsageError if they do not define the columns.
    """
    words = [word.strip() for word in text.split(",")]
    try:
        _assign(words)
    except UnclearError:
        raise UsageError(f"--columns {truncate(text)}: expected a word for each column: source and "
                         "target, or u and v, once each; w (weights) at most once; - for a column "
                         "to skip") from None
    return words


def spelled(words: list[str]) -> str:
    """Return the --columns flag for `words` as a user types it.

    Words after the first MOST_SHOWN become `...`.
    """
    text = ",".join(words[:MOST_SHOWN]) + ("" if len(words) <= MOST_SHOWN else ",...")
    return f"--columns={text}" if text.startswith("-") else f"--columns {text}"


def _refuse_two_kinds(names: list[str]) -> None:
    """Raise UnclearError if a Neo4j header has ends in two id spaces.

    Vertices of two kinds may then have equal ids.
    """
    typed = [found for name in names if (found := NEO4J.fullmatch(name))]
    spaces = {found[2].lower(): found[3] for found in typed
              if found[2].lower() in ("start_id", "end_id")}
    if len(set(spaces.values())) > 1:
        raise UnclearError("ids of two kinds: --bipartite numbers them separately")


def _index_of(name: str, names: list[str]) -> int:
    """Return the index in `names` of the column called `name`.

    Names are compared exactly, or else without case and blanks.
    """
    same = [k for k, other in enumerate(names) if other == name]
    same = same or [k for k, other in enumerate(names) if plain_column(other) == plain_column(name)]
    if len(same) != 1:
        raise UnclearError(f"expected one column called {truncate(name)} (--weights)")
    return same[0]


def _assign(names: list[str], textual: Sequence = (), weights: str | None = None,
            fitting: Sequence[int] | None = None, numeric: Sequence[int] | None = None, *,
            bipartite: bool = False) -> tuple[tuple, tuple]:
    """Return the role of each column and the pair of ENDS.

    Raise UnclearError if the names are not clear.
    """
    if are_labels(names):
        raise UnclearError("looks like labels of vertices, not edges: give the edges as the source "
                           "and this file as --labels; if these are edges, use --columns "
                           "source,target")

    # find the meaning of each name; flags take precedence
    kinds = [kind_of(name) for name in names]
    if weights is not None:
        kinds = [("ignored", 0) if kind == ("weight", 0) else kind for kind in kinds]
        kinds[_index_of(weights, names)] = "weight", 0
    if bipartite:
        _find_two_kinds(names, kinds)

    # exactly one pair of names must be the ends of an edge
    pairs = end_pairs(kinds)
    if len(pairs) != 1:
        two = not bipartite and sum(plain_column(name).endswith("id") for name in names) > 1
        words = _ends_of(names, kinds, range(len(names)) if fitting is None else fitting)
        raise UnclearError("which two columns are the ends of an edge? "
                           + "Use --bipartite for ids of two kinds. " * two
                           + _naming(words, numeric or ()))

    # read weights, and pass the other columns
    [ends] = pairs
    role_of = {(ends, 0): U, (ends, 1): V, ("weight", 0): W, ("ignored", 0): PASSED}
    roles = [role_of.get(kind, PASSED if kind[0] != "graph" and (weights or k in textual)
                         else None) for k, kind in enumerate(kinds)]

    # where names are unclear, propose flags
    word_of = {U: ends[0], V: ends[1], W: "w"}
    words = [word_of[role] if role in word_of and role not in roles[:k] else "-"
             for k, role in enumerate(roles)]
    for role in word_of:
        if roles.count(role) > 1:
            several = [truncate(name) for name, other in zip(names, roles) if other == role]
            raise UnclearError(f"{' and '.join(several)} mean the same: name only one, as in "
                               f"{spelled(words)}")
    if None in roles:
        k = roles.index(None)
        weighted = W in roles or (numeric is not None and k not in numeric)
        raise UnclearError(_unknown(truncate(names[k]), kinds[k], k, words, weighted))
    return tuple(roles), ends


def _unknown(name: str, kind: tuple, k: int, words: list[str], weighted: bool) -> str:
    """Return an error message with advice on column `k`, whose `name` has no role."""
    if kind[0] == "graph":
        return (f"{name} numbers several graphs, but hpgcn trains on one: keep only the rows of "
                f"one graph; if all rows belong to one graph, use {spelled(words)} to skip the "
                "column")
    also = ""
    if not weighted:
        also = f", {spelled([*words[:k], 'w', *words[k + 1:]])} or --weights to read it as weights"
    return (f"{name} is not a known name: use {spelled(words)} to skip the column{also}; "
            f"--edge-features {name} reads it as a feature")


def _two_kinds(names: list[str], kinds: list[tuple]) -> list[int]:
    """Return the indices of unknown columns that may be two kinds of ids."""
    unknown = [k for k, kind in enumerate(kinds) if kind[0] == "unknown"]
    ids = [k for k in unknown if plain_column(names[k]).endswith("id")]
    return ids if len(ids) == 2 else unknown


def _find_two_kinds(names: list[str], kinds: list[tuple]) -> None:
    """Take two unknown columns that look like ids as ends if no names are ends."""
    places = _two_kinds(names, kinds)
    if not end_pairs(kinds) and len(places) == 2:
        kinds[places[0]], kinds[places[1]] = (("u", "v"), 0), (("u", "v"), 1)


def _naming(words: list[str] | None, numeric: Sequence) -> str:
    """Return advice to name each column by `words`, from `_ends_of`; `numeric` may be weights."""
    if words is None:
        return "No two of them have ids"
    key = " (w: weights, -: skip)" if any(words[k] == "-" for k in numeric) else ""
    return f"Name each column, as in {spelled(words)}{key}"


def _ends_of(names: list[str], kinds: list[tuple], fitting: Sequence[int]) -> list[str] | None:
    """Return a likely --columns word for each column, or None without two columns of ids.

    The ends are head and tail of a triple, or else the first two columns in `fitting`
    that are no weights.
    """
    ends = [k for k in fitting if kinds[k][0] not in ("weight", "ignored")]
    ends = ends if len(ends) > 1 else [k for k in fitting if kinds[k][0] != "weight"]
    if (triple := find_triple(names)) is not None:
        ends = [triple[0], triple[2]]
    if len(ends) < 2:
        return None
    words = ["w" if kind[0] == "weight" else "-" for kind in kinds]
    words[ends[0]], words[ends[1]] = "source", "target"
    if words.count("w") > 1:
        words = ["-" if word == "w" else word for word in words]
    return words


def _notes(names: list[str], roles: tuple[int, ...], directed: bool,
           features: Sequence = ()) -> tuple[str, ...]:
    """Return a note on how a header was read, in a tuple; () for standard names."""
    word_of = {U: "source" if directed else "u", V: "target" if directed else "v", W: "weight"}
    unread = [truncate(name) or "one without a name"
              for k, (name, role) in enumerate(zip(names, roles))
              if role == PASSED and k not in features]
    if not unread and all(role == PASSED or plain(name) == word_of[role]
                          for name, role in zip(names, roles)):
        return ()
    parts = [f"{truncate(names[roles.index(role)])} is {word}"
             for role, word in word_of.items() if role in roles]
    rest = f"; not read: {', '.join(unread)}" if unread else ""
    return (f"columns: {', '.join(parts)}{rest}",)

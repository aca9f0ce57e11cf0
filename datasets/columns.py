"""What the columns of an edge list are, by their names: those of a header, or those that --columns gives.

Names are compared without case, blanks and punctuation. What is not known is refused rather than guessed.
"""
from __future__ import annotations

import re
import string
from dataclasses import dataclass

from hpgcn.datasets.parse import PASSED, U, V, W
from hpgcn.datasets.raw import ROW_FIRST, TARGET_FIRST
from hpgcn.datasets.source import shown
from hpgcn.errors import DataError, UsageError

THING = "(node|vertex|vert|id|user|person|author|page|paper|entity|member|tx)?"
NUMBER = "(id|idx|index|no|number)?"
DIRECTED = ("source", "target")
ENDS = {  # both ends of an edge, as --columns spells them: how else they are called
    DIRECTED: (f"{THING}(source|src|from|sender|start|origin){THING}{NUMBER}",
               f"{THING}(target|tgt|trg|dst|dest|destination|to|receiver|recipient|end){THING}{NUMBER}"),
    ("u", "v"): (f"{THING}u{NUMBER}", f"{THING}v{NUMBER}"),
    ("i", "j"): (f"{THING}i", f"{THING}j"),
    ("row", "col"): ("rows?", "cols?|columns?"),
    ("node1", "node2"): (f"{THING}{NUMBER}(?<=.)1{NUMBER}", f"{THING}{NUMBER}(?<=.)2{NUMBER}"),
    ("node_a", "node_b"): (f"{THING}{NUMBER}(?<=.)a", f"{THING}{NUMBER}(?<=.)b"),
}
WEIGHT = "(edge|link)?(weights?|wt|w|values?|val|capacity|strength|multiplicity|count|similarity)"
IGNORED = "|".join((
    "unnamed[0-9]*|indexlevel[0-9]*|",  # an index that pandas wrote, without a name or with one of its own
    "(edge|link|row|rel|relation)?(id|idx|index|no|number)",
    "(start|end|unix|edge|created|updated|utc)?(times?|timestamps?|ts|at|dates?|datetime|timeset|interval)",
    "years?|months?|days?|hours?",
    "(edge|link|rel|relation)?(type|label|kind|class|name|colou?r|description|comment|title|directed)"))
VERTEX = "(node|vertex|user|person|author|page|paper|entity)?(id|idx|index|name)?|unnamed[0-9]*"
LABEL = "(node|vertex|true)?(labels?|class|classes|target|y|gt|groundtruth|community|group|category)(id)?"
MOST_SHOWN = 16  # words
SNAP = {"fromnodeid", "tonodeid"}
DROPPED = str.maketrans("", "", string.punctuation + string.whitespace)


class UnclearError(Exception):
    """The names do not say what the columns are."""


@dataclass(frozen=True)
class Columns:
    """What each column of an edge list is.

    Attributes
    ----------
    roles : tuple of int
        For each column U (the edge's first end), V (its second), W (its weight) or PASSED.
    reads : (str, str)
        Which end is the row of the adjacency, and which its column: ROW_FIRST or TARGET_FIRST.
    notes : tuple of str
        What a user should know of it.
    guessed : bool
        Nothing but its place says that the third column holds weights.
    """

    roles: tuple[int, ...]
    reads: tuple[str, str] = ROW_FIRST
    notes: tuple[str, ...] = ()
    guessed: bool = False


def of_place(count):
    """Columns of a list that names none: `u v` or `u v weight`."""
    notes = ("no header: the third column is read as weights; --columns u,v,- leaves it out",) if count == 3 else ()
    return Columns((U, V, W)[:count], notes=notes, guessed=count == 3)


def of_header(names, where, *, comment=False, textual=()):
    """Columns by the names of a header.

    Parameters
    ----------
    names : list of str
    where : str
        File and line, for errors.
    comment : bool
        The header is a comment: FromNodeId and ToNodeId, as SNAP writes there, are then read as a list without header.
    textual : container of int
        Columns that hold no numbers: these are no weights, whatever they are called.

    Raises
    ------
    DataError
        The names do not say what the columns are.
    """
    try:
        roles, ends = _assign(names, textual)
    except UnclearError as error:
        raise DataError(f"{where}: columns {shown(', '.join(names))}: {error}") from None
    directed = ends == DIRECTED and not (comment and set(map(_plain, names)) >= SNAP)
    return Columns(roles, TARGET_FIRST if directed else ROW_FIRST, _said(names, roles, directed))


def of_flag(text, names, where):
    """Columns by --columns; `names` are those of the list's header, or one empty word for each column.

    Raises
    ------
    UsageError
        As `check_flag`.
    DataError
        More or fewer columns than words.
    """
    words = check_flag(text)
    if len(words) != len(names):
        raise DataError(f"{where}: {len(names)} column(s), but --columns {text} names {len(words)}")
    roles, ends = _assign(words)
    notes = _said(names, roles, ends == DIRECTED) if any(names) else ()
    return Columns(roles, TARGET_FIRST if ends == DIRECTED else ROW_FIRST, notes)


def spelled(words):
    """Words as --columns takes them; no more than fit a line."""
    return ",".join(words[:MOST_SHOWN]) + ("" if len(words) <= MOST_SHOWN else ",...")


def check_flag(text):
    """Words of --columns; UsageError where they do not say what the columns are."""
    words = [word.strip() for word in text.split(",")]
    try:
        _assign(words)
    except UnclearError:
        raise UsageError(f"--columns {shown(text)}: expected a word for each column: source and target, or u and v, "
                         "once each; w (weights) at most once; - for what is not read") from None
    return words


def is_header(words):
    """Whether the words of a comment are names of columns."""
    found = [_kind(word) for word in words]
    return any((ends, 0) in found and (ends, 1) in found for ends in ENDS) or _are_labels(words)


def _plain(name):
    return name.lower().translate(DROPPED)


def _kind(name):
    """(ends, 0 or 1), or ("weight" or "ignored" or "unknown", 0)."""
    name = _plain(name)
    for ends, patterns in ENDS.items():
        for end, pattern in enumerate(patterns):
            if re.fullmatch(pattern, name):
                return ends, end
    return "weight" if re.fullmatch(WEIGHT, name) else "ignored" if re.fullmatch(IGNORED, name) else "unknown", 0


def _are_labels(names):
    """Whether these are a vertex and its label rather than both ends of an edge."""
    if len(names) != 2:
        return False
    first, second = (_plain(name) for name in names)
    return any(re.fullmatch(VERTEX, vertex) and re.fullmatch(LABEL, label)
               for vertex, label in ((first, second), (second, first)))


def _assign(names, textual=()):
    """Roles and which of ENDS they are, or UnclearError."""
    if _are_labels(names):
        raise UnclearError("looks like labels of vertices, not edges: give labels as --labels FILE.npy; if these are "
                           "edges, --columns source,target says so")
    found = [_kind(name) for name in names]
    pairs = [ends for ends in ENDS if (ends, 0) in found and (ends, 1) in found]
    if len(pairs) != 1:
        words = ["source", "target", *"-" * (len(names) - 2)]
        raise UnclearError(f"which are the ends of an edge? Name each column, as in --columns {spelled(words)}")
    [ends] = pairs
    roles = []
    for k, (kind, end) in enumerate(found):
        roles.append((U, V)[end] if kind == ends else W if kind == "weight" else
                     PASSED if kind == "ignored" or k in textual else None)
    words = [{U: ends[0], V: ends[1], W: "w"}.get(role, "-") if role not in roles[:k] else "-"
             for k, role in enumerate(roles)]
    for role in (U, V, W):
        if roles.count(role) > 1:
            several = " and ".join(shown(name) for name, each in zip(names, roles) if each == role)
            raise UnclearError(f"{several} mean the same: name one, as in --columns {spelled(words)}")
    if None in roles:
        k = roles.index(None)
        also = ""
        if W not in roles:
            also = f", --columns {spelled([*words[:k], 'w', *words[k + 1:]])} reads it as weights"
        raise UnclearError(f"{shown(names[k])} is not known: --columns {spelled(words)} leaves it out{also}")
    return tuple(roles), ends


def _said(names, roles, directed):
    """What was made of a header, in words, unless its own words say so."""
    words = (*(DIRECTED if directed else ("u", "v")), "weight")
    parts = [f"{shown(names[roles.index(role)])} is {words[role]}" for role in (U, V, W) if role in roles]
    unread = [shown(name) or "one without a name" for name, role in zip(names, roles) if role == PASSED]
    if not unread and all(_plain(name) == words[role] for name, role in zip(names, roles)):
        return ()
    return (f"columns: {', '.join(parts)}" + (f"; not read: {', '.join(unread)}" if unread else ""),)

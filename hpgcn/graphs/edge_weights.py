"""Find the attribute of edges that is their weight, and convert weights to float32."""
from __future__ import annotations

import numbers
import re
import string
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import DataError, printable, setting
from hpgcn.graphs.classes import NUMBER

if TYPE_CHECKING:
    pass

WEIGHT = "(edge|link)?(weights?|wt?|values?|vals?|capacity|strength|multiplicity|count|similarity)"
PUNCTUATION = str.maketrans("", "", string.punctuation + string.whitespace)
EXACT = 1 << 24  # float32 holds all whole numbers up to this one
MOST_NAMED = 16  # attributes in a message


def plain(name: str) -> str:
    """Return a name in lower case, without blanks and punctuation, for comparisons."""
    return str(name).lower().translate(PUNCTUATION)


def is_weight(name: str) -> bool:
    """Return whether an attribute with this name is read as edge weights by default."""
    return re.fullmatch(WEIGHT, plain(name)) is not None


def join_names(names: Iterable) -> str:
    """Return names joined by commas for a message; a long list is shortened."""
    names = [printable(str(name))[:80] or "one without a name" for name in names]
    rest = f", ... ({len(names)} in all)" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + rest


def choose_weight(names: list[str], choice: Any, where: object, option: Callable) -> str | None:
    """Return the name of the edge attribute to read as weights, or None.

    Parameters
    ----------
    names : sequence of str
        The attributes that edges have.
    choice : str, None or False
        The attribute that the user names. None selects the one that `is_weight`, False none.
    where : str
        The input, for errors.
    option : callable
        Returns how a user names an attribute, such as "--weights NAME".

    Raises
    ------
    DataError
        There is no such attribute, or several are called a weight.
    """
    # the user names an attribute, or refuses all
    if choice is False:
        return None
    if choice is not None:
        same = [name for name in names if name == choice]
        same = same or [name for name in names if plain(name) == plain(choice)]
        if len(same) == 1:
            return same[0]
        raise DataError(f"{where}: edges have {len(same) or 'no'} attribute{'s' * (len(same) > 1)} "
                        f"{printable(choice)}, expected one of: {join_names(names) or '(none)'}")

    # otherwise take the only one that is called a weight
    weights = [name for name in names if is_weight(name)]
    if len(weights) > 1:
        raise DataError(f"{where}: {join_names(weights)} all look like edge weights, expected one: "
                        f"{option(weights[0])} selects the first")
    return weights[0] if weights else None


def choose_array(shapes: dict[str, tuple], num_edges: int, num_nodes: int,
                 choice: str | bool | None, where: str,
                 option: Callable) -> tuple[str | None, dict[str, str]]:
    """Return the array to read as edge weights, or None, and notes on ignored arrays.

    Parameters
    ----------
    shapes : dict of str: tuple
        Shapes of the arrays that have no other use, by name.
    num_edges, num_nodes : int
        An array of weights is (num_edges,) or (num_edges, 1).
    choice, where, option
        See `choose_weight`.

    Returns
    -------
    (str or None, dict of str: str)
        The name, and a note on each other array of edges.

    Raises
    ------
    DataError
        As `choose_weight`; or an array called edge_weight or weight has another shape.
    """
    # find the weights among arrays of a fitting shape
    single = ((num_edges,), (num_edges, 1))
    fitting = [name for name, shape in shapes.items()
               if shape in single or plain(name) in ("edgeweight", "weight")]
    name = choose_weight(list(shapes) if choice else fitting, choice, where, option)
    if name is not None and shapes[name] not in single:
        raise DataError(f"{where} {printable(name)}: shape {shapes[name]}, expected ({num_edges},):"
                        " one weight for each edge")

    # list arrays of edges that are not read
    left = {}
    for other, shape in shapes.items():
        of_edges = plain(other).startswith(("edge", "link"))
        of_edges = of_edges or (shape[:1] == (num_edges,) and num_edges != num_nodes)
        if other == name or not of_edges:
            continue
        left[other] = (f"{other} of shape {shape} is not read: an edge has one weight "
                       f"({setting('edge_features', other)} reads it as features)")
        if shape in single and choice is None:
            left[other] = f"{other} is not read as weights: {option(other)} reads it"
        if "edge_label_index" in shapes and other.startswith("edge_label"):
            left[other] = (f"{other} is not read: links are read of all three parts of "
                           "RandomLinkSplit, (train, val, test)")
    return name, left


def weights_of(edges: list[tuple], choice: str | bool | None, where: object,
               option: Callable) -> tuple:
    """Read the weight of each edge from its attributes.

    Return weights, (e,) float64, the name of their attribute or None, and notes.

    Parameters
    ----------
    edges : list of (start, end, dict)
        Ends, for errors, and attributes by name.
    choice, where, option
        See `choose_weight`.
    """
    # read the weight of each edge, 1 where it is missing
    names = attribute_names((None, attributes) for _, _, attributes in edges)
    weight = choose_weight(names, choice, where, option)
    missing = object()
    values = []
    texts = 0
    for start, end, attributes in edges:
        value = missing if weight is None else attributes.get(weight, missing)
        if isinstance(value, str) and NUMBER.fullmatch(value.strip()):
            value = float(value)
            texts += 1
        values.append(1 if value is missing else value)
        if not isinstance(values[-1], (numbers.Real, np.bool_)):
            raise DataError(f"{where}: edge {str(start)[:40]!r} - {str(end)[:40]!r}: {weight} is "
                            f"{str(value)[:40]!r}, expected a number")

    try:
        values = np.array(values, np.float64)
    except OverflowError:
        raise DataError(f"{where}: {weight} of an edge does not fit in float64") from None

    # note missing weights, text, and attributes that were not read
    notes = [f"{weight} is text in {texts} edges: read as numbers"] * bool(texts)
    lacking = sum(weight not in attributes for _, _, attributes in edges)
    if weight is not None and lacking:
        notes.append(f"{lacking} of {len(edges)} edges have no {join_names([weight])}: their "
                     "weight is 1")
    if unread := [other for other in names if other not in (weight, "id")]:
        numeric = [name for name in unread if weight is choice is None and all(
            isinstance(attributes.get(name, 0), numbers.Real) for *_, attributes in edges)]
        hint = f" ({option(numeric[0])} reads it as weights)" if numeric else ""
        notes.append(f"attributes of edges are not read: {join_names(unread)}{hint}")
    return values, weight, notes


def numbers_of_texts(texts: list[str], place: Callable) -> np.ndarray:
    """Return texts that spell numbers as (e,) float64; `place(k)` names text k for errors."""
    for k, text in enumerate(texts):
        if not NUMBER.fullmatch(text.strip()):
            raise DataError(f"{place(k)} is {printable(text[:40])!r}, expected a number")
    return np.array([float(text) for text in texts], np.float64)


def attribute_names(items: Iterable) -> list[str]:
    """Return the names of attributes of all items, in the order of their first use."""
    return list(dict.fromkeys(name for _, attributes in items for name in attributes))


def count_rounded(values: np.ndarray) -> int:
    """Count the numbers beyond 2^24 whose float32 value differs."""
    if not values.size or -EXACT <= values.min() <= values.max() <= EXACT:
        return 0
    large = values[(values > EXACT) | (values < -EXACT)]
    with np.errstate(over="ignore"):
        return int(np.count_nonzero(large.astype(np.float32) != large))


def stored_as_zero(values: np.ndarray) -> np.ndarray:
    """Return for each value whether float32 stores it as 0, (e,) bool."""
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(np.float32, copy=False) == 0


def rounded_note(count: int) -> str:
    """Return a note for the user: `count` weights were rounded to float32."""
    return (f"{count} weights are beyond 2^24 and not kept exactly, for float32 rounds them: are "
            "they times or ids?")

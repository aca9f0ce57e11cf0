"""Links in the forms of PyTorch Geometric's RandomLinkSplit and of OGB's link sets."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hpgcn.errors import DataError
from hpgcn.graphs.links import Links, LinkSet
from hpgcn.graphs.validation import SPLIT

INDEX = "edge_label_index"
LABELED = (INDEX, "edge_label", f"pos_{INDEX}", f"neg_{INDEX}", "pos_edge_label", "neg_edge_label")
OF_OGB = "edge", "edge_neg", "source_node", "target_node", "target_node_neg"
RELATIONS = ("relation", "edge_type", "head", "tail")


def is_link_split(parts: Any, has: Callable[[Any, str], bool]) -> bool:
    """Return whether an object has three parts, each with pairs to predict.

    `has(part, name)` returns whether a part has an attribute.
    """
    return isinstance(parts, (list, tuple)) and len(parts) == len(SPLIT) and all(
        has(part, INDEX) or has(part, f"pos_{INDEX}") for part in parts)


def links_of_split(parts: Sequence[dict[str, Any]], where: str) -> Links:
    """Return the links of the three parts that RandomLinkSplit returns.

    Parameters
    ----------
    parts : three dicts
        Each has `edge_label_index` (2, k), rows source and target, and maybe `edge_label` (k,):
        1 for a link and 0 for another pair. Or `pos_edge_label_index` and
        `neg_edge_label_index`.
    where : str
        The input, for errors.

    Raises
    ------
    DataError
        Edges of several types, other labels than 0 and 1, other shapes.
    """
    return {key: _one_part(part, f"{where}: {key}") for key, part in zip(SPLIT, parts)}


def _one_part(part: dict[str, Any], where: str) -> LinkSet:
    _refuse_relations(part, where)
    if part.get(INDEX) is None:
        negative = part.get(f"neg_{INDEX}")
        positive = _pairs(part[f"pos_{INDEX}"], where)
        return LinkSet(positive, None if negative is None else _pairs(negative, where))
    pairs, label = _pairs(part[INDEX], where), part.get("edge_label")
    if label is None:
        return LinkSet(pairs)
    label = np.asarray(label)
    if label.shape != pairs.shape[:1]:
        raise DataError(f"{where}: edge_label has shape {label.shape}, expected ({len(pairs)},)")
    wrong = np.flatnonzero(~np.isin(label, (0, 1)))
    if wrong.size:
        raise DataError(f"{where}: edge_label[{wrong[0]}] is {label[wrong[0]]:g}, expected 1 for "
                        "links and 0 for other pairs; ratings and types of edges are not read")
    negative = pairs[label == 0]
    return LinkSet(pairs[label == 1], negative if len(negative) else None)


def _pairs(index: Any, where: str) -> np.ndarray:
    index = np.asarray(index)
    if index.ndim != 2 or len(index) != 2:
        raise DataError(f"{where}: {INDEX} has shape {index.shape}, expected (2, k)")
    return np.ascontiguousarray(index.T)


def links_of_ogb(part: dict[str, Any], where: str) -> LinkSet:
    """Return the links of one set of an OGB link property.

    Parameters
    ----------
    part : dict
        `edge` (k, 2) and maybe `edge_neg` (m, 2); or `source_node` and `target_node`, (k,), and
        maybe `target_node_neg` (k, q).
    where : str
        The file, for errors.

    Raises
    ------
    DataError
        Relations of a knowledge graph, or other arrays.

    Examples
    --------
    >>> from hpgcn.interop.link_splits import links_of_ogb
    >>> links_of_ogb({"source_node": [0], "target_node": [1], "target_node_neg": [[2, 3]]}, "x")
    LinkSet(1 links, 2 negative targets of each)
    """
    _refuse_relations(part, where)
    if "edge" in part:
        return LinkSet(np.asarray(part["edge"]), part.get("edge_neg"))
    if not {"source_node", "target_node"} <= part.keys():
        raise DataError(f"{where}: has {', '.join(part) or 'nothing'}, expected edge, or "
                        "source_node and target_node")
    pairs = np.stack([np.asarray(part[name]) for name in ("source_node", "target_node")], axis=1)
    negative = part.get("target_node_neg")
    return LinkSet(pairs, negative_targets=None if negative is None else np.asarray(negative))


def _refuse_relations(part: dict[str, Any], where: str) -> None:
    found = [name for name in RELATIONS if part.get(name) is not None]
    if found:
        raise DataError(f"{where}: {', '.join(found)}: links of several types, as in a knowledge "
                        "graph, are not read: expected links of one type")

"""The node of each rank: as MPI finds it, or as given for experiments and for ranks in one process.

HPGCN_NODES=2 divides the ranks evenly between two nodes, in rank order; HPGCN_NODES=0,0,1
lists the node of each rank. Only the choice of messages depends on it.
"""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from hpgcn.errors import UsageError, setting

VARIABLE = "HPGCN_NODES"


def layout_of(nodes: Any, ranks: int, named: str) -> np.ndarray:
    """Return the node of each rank, (P,) int32, numbered from 0 in order of first ranks.

    Parameters
    ----------
    nodes : int or sequence of int
        Number of nodes, each with consecutive ranks and about as many as another; or
        the node of each rank.
    ranks : int
        Number of ranks (P).
    named : str
        Name of the setting in a UsageError, which an invalid value raises.
    """
    if isinstance(nodes, int) and not isinstance(nodes, bool):
        if not 1 <= nodes <= ranks:
            raise UsageError(f"{setting(named, nodes)}: expected 1 to {ranks}, the number of ranks")
        return (np.arange(ranks) * nodes // ranks).astype(np.int32)
    given = np.asarray(nodes)
    if given.shape != (ranks,) or given.dtype.kind not in "iu":
        raise UsageError(f"{setting(named, nodes)}: expected a number of nodes, or the node of "
                         f"each of {ranks} ranks")
    return numbered(given)


def parsed(text: str, named: str) -> int | list[int]:
    """Return the number of nodes in a text such as 2, or the list in a text such as 0,0,1."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{named} {text!r:.80}: expected a number of nodes such as 2, or the node "
                         "of each rank such as 0,0,1") from None
    return numbers if "," in text else numbers[0]


def numbered(nodes: Any) -> np.ndarray:
    """Return nodes, (P,), renumbered from 0 in order of their first ranks; int32."""
    _, first, place = np.unique(nodes, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[place].astype(np.int32)


def requested_layout(ranks: int) -> np.ndarray | None:
    """Return the node of each rank by HPGCN_NODES, (P,) int32; None if it is not set."""
    text = os.environ.get(VARIABLE, "")
    return layout_of(parsed(text, VARIABLE), ranks, VARIABLE) if text else None

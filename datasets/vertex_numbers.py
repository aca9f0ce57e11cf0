"""Numbering of vertices that a file identifies by ids, and the ids to store."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpgcn.datasets.source import first_repeated, truncate
from hpgcn.datasets.text.lines import WHOLE
from hpgcn.errors import DataError
from hpgcn.graphs.validation import check_ids

if TYPE_CHECKING:
    from hpgcn.datasets.source import Source


class Nodes:
    """The vertices 0..n-1 of a file and their ids: sorted whole numbers, or names in order.

    Attributes
    ----------
    order : (n,) int64
        Position of each vertex in the file.
    number : dict of str to int
        Id -> vertex.
    where : Source
        File of the ids.
    original_ids : (n,) int64 or text, or None
        Id of each vertex; None if the ids are 0..n-1, or begin at `base`.
    base : int
        Id of vertex 0, without `original_ids`.
    """

    def __init__(self, ids: list[str], where: Source, base: int = 0) -> None:
        ids = [name.strip() for name in ids]  # like cells of tables
        n = len(ids)
        self.where = where
        self.order = np.arange(n)
        self.original_ids = None
        self.base = 0
        if ids and all(map(WHOLE.fullmatch, ids)):
            numbers = np.array(ids, np.int64)
            self.order = np.argsort(numbers, kind="stable")
            numbers = numbers[self.order]
            self.base = next((first for first in (0, base)
                              if np.array_equal(numbers, np.arange(first, first + n))), None)
            if self.base is None:
                self.base = 0
                self.original_ids = numbers
        elif ids:
            self.original_ids = check_ids(ids, n, str(where))

        self.number = {ids[place]: vertex for vertex, place in enumerate(self.order.tolist())}
        if len(self.number) < n:
            raise DataError(f"{where}: id {truncate(first_repeated(ids), 40)!r} occurs twice")

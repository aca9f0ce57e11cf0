"""Pairs to predict in a graph file, read slab by slab."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.graphs.links import ARRAYS, Links, LinkSet, find_wrong
from hpgcn.graphs.validation import SPLIT
from hpgcn.store.schema import link_name

if TYPE_CHECKING:
    from hpgcn.store.reader import Reader


class StoredLinks:
    """An array of a LinkSet in an open file: a slice reads its rows and checks them.

    `key` is the set, `field` one of ARRAYS, and `n` the number of vertices.
    """

    def __init__(self, reader: Reader, key: str, field: str, n: int) -> None:
        self.reader = reader
        self.name = link_name(key, field)
        self.field = field
        self.n = n
        entry = reader.entries[self.name]
        self.shape = entry.shape
        self.dtype = entry.dtype

    def __getitem__(self, pairs: slice) -> np.ndarray:
        start, stop, _ = pairs.indices(self.shape[0])
        array = self.reader.read(self.name, start, max(start, stop))
        if wrong := find_wrong(self.field, array, self.n):
            row, problem = wrong
            raise self.reader.error(f"{self.name}[{start + row}] {problem}: {array[row].tolist()}")
        return array


def stored_links(reader: Reader, n: int) -> Links | None:
    """Return the links of an open file with n vertices, read where they are sliced, or None."""
    links = {}
    for key in SPLIT:
        arrays: dict[str, Any] = {field: StoredLinks(reader, key, field, n) for field in ARRAYS
                  if link_name(key, field) in reader.entries}
        if arrays:
            links[key] = LinkSet(**arrays)
    return links or None

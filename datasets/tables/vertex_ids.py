"""Lookup of vertices by their ids in the user's files."""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.datasets.edges.vertex_names import NAME_BYTES
from hpgcn.datasets.source import need, truncate
from hpgcn.errors import DataError
from hpgcn.graphs.classes import FEW

if TYPE_CHECKING:
    from hpgcn.datasets.raw_graph import Raw
    from hpgcn.datasets.sorting.external import Entries
    from hpgcn.datasets.text.data_table import NumberColumn, TextColumn

NEARLY_ALL = 0.9  # share of numbers in edges that makes a column one of ids
HALF = 0.5  # the same for names, which are rarely equal by accident
ENOUGH = 100  # cells of a large table that decide whether a column has ids
ROUND = re.compile(r"(\d{1,18})\.0+", re.ASCII)  # a whole number that pandas writes as a float


class VertexIds:
    """The ids of the vertices of `raw`: numbers from its base on, other numbers, or names.

    Attributes
    ----------
    has_names : bool
        Whether ids are text.
    is_open : bool
        Whether only edges determine the vertices, so that tables may add some.
    """

    def __init__(self, raw: Raw, where: str, memory: int) -> None:
        self.raw = raw
        self.where = where
        self.memory = memory
        ids = raw.original_ids
        self.has_names = ids is not None and ids.dtype.kind == "U"
        self.is_open = raw.in_edge is not None
        self.refresh()

    def refresh(self) -> None:
        """Rebuild the tables of ids after the vertices of `raw` have changed."""
        self.num_nodes = self.raw.num_nodes
        self.numbers = self.order = None
        ids = self.raw.original_ids
        if self.has_names:
            need((NAME_BYTES + ids.itemsize) * ids.size, self.memory, f"{self.where}: names")
            self.numbers = {name: k for k, name in enumerate(ids.tolist())}
            distinct = len(self.numbers)
            self.sides = {name.partition(":")[0] + ":" for name in ids[[0, -1]].tolist()}
        elif ids is not None:
            self.order = np.argsort(ids, kind="stable")
            distinct = np.unique(ids).size
        self.repeated = 0 if ids is None else ids.size - distinct

    @property
    def rows_are_known(self) -> bool:
        """Whether row i of an array without ids is vertex i."""
        return self.raw.original_ids is None or self.raw.input_order

    @property
    def num_in_edge(self) -> int:
        return self._count_in_edge([])[1]

    @property
    def last(self) -> int | None:
        """The largest numeric id, if vertices were renumbered; otherwise None."""
        ids = self.raw.original_ids
        return None if ids is None or self.has_names else int(ids.max())

    def side(self, column: int) -> str:
        """Return the name of the side of column 0 or 1 of a bipartite list, such as "u"."""
        return self.raw.original_ids[[0, -1][column]].partition(":")[0]

    def describe(self) -> str:
        """Return a description of the ids, for errors."""
        if self.has_names:
            return "names, such as " + ", ".join(
                repr(truncate(name, 30)) for name in self.raw.original_ids[:3].tolist())
        if self.raw.original_ids is None:
            return f"{self.raw.base}..{self.raw.base + self.num_nodes - 1}"
        return f"{self.raw.original_ids.min()}..{self.last}"

    def keys(self, column: Any) -> list[str] | np.ndarray | None:
        """Return a column as ids, list of str or (k,) int64, or None.

        None if a cell is not an id of the graph's kind.
        """
        if not self.has_names:
            return column.whole_numbers()
        texts = column.texts()
        whole = column.whole_numbers() if hasattr(column, "array") else None
        if whole is not None:
            texts = list(map(str, whole.tolist()))
        if self.raw.bipartite and f"{column.name}:" in self.sides:
            texts = [f"{column.name}:{text}" if text else "" for text in texts]
        texts = [self._name(text) for text in texts]
        if self.raw.bipartite:
            texts = self._with_sides(texts)
        return texts if all(texts) else None

    def _with_sides(self, texts: list[str]) -> list[str]:
        """Return ids of a bipartite list with the name of their side, as `u:5`.

        An id without a side must occur on one side only.
        """
        if not any(text and text not in self.numbers for text in texts):
            return texts
        sides = {}  # names of the vertices with this id
        for name in self.numbers:
            sides.setdefault(name.partition(":")[2], []).append(name)
        twice = next((sides[text] for text in texts if len(sides.get(text, ())) > 1), None)
        if twice and all(text in self.numbers or text in sides for text in texts):
            raise DataError(f"{self.where}: ids of tables are without the side of the bipartite "
                            f"list, but {twice[0]} and {twice[1]} are two vertices: write the ids "
                            f"so, or call the column of one side {twice[0].partition(':')[0]}")
        return [text if text in self.numbers or text not in sides else sides[text][0]
                for text in texts]

    def _name(self, text: str) -> str:
        if text not in self.numbers and (match := ROUND.fullmatch(text)):
            return match[1] if match[1] in self.numbers else text
        return text

    def find(self, keys: Any) -> np.ndarray:
        """Return the vertex of each id, (k,) int64; -1 for an id that no vertex has."""
        if self.repeated:
            raise DataError(f"{self.where}: {self.repeated} original_ids occur twice, expected one "
                            "vertex per id")
        if self.has_names:
            return np.array([self.numbers.get(key, -1) for key in keys], np.int64)
        keys = np.asarray(keys, np.int64)
        if self.order is None:
            vertices = keys - self.raw.base
            return np.where((vertices >= 0) & (vertices < self.num_nodes), vertices, -1)
        ids = self.raw.original_ids[self.order]
        places = np.minimum(np.searchsorted(ids, keys), ids.size - 1)
        return np.where(ids[places] == keys, self.order[places], -1)

    def fit(self, column: TextColumn | NumberColumn, count: int, share: float = NEARLY_ALL) -> bool:
        """Return whether the `count` cells of a column differ, and a `share` are ids in edges.

        For names, half of them is enough. If the table has more rows than the edges
        have ids, this share of the ids must be in the column.
        """
        head = column.head()
        if (not self.has_names and head and not _is_whole(head[0])) or len(set(head)) < len(head):
            return False
        if self.has_names and len(head) >= ENOUGH and not self.raw.bipartite \
                and not any(self._name(cell) in self.numbers for cell in head):
            return False
        keys = self.keys(column)
        if keys is None or len(set(keys if self.has_names else keys.tolist())) < count:
            return False
        vertices = self.find(keys)
        vertices = vertices[vertices >= 0]
        share = HALF if self.has_names else share
        matched, known = self._count_in_edge(vertices)
        return 0 < matched >= share * min(count, known)

    def repeat(self, column: TextColumn | NumberColumn, count: int) -> bool:
        """Return whether a column has ids of vertices, some of them twice.

        Nearly all of its distinct cells must be ids.
        """
        head = column.head()
        if len(head) >= ENOUGH and len(set(head)) <= FEW:
            return False  # values repeat, so they are categories
        keys = self.keys(column)
        if keys is None:
            return False
        distinct = list(dict.fromkeys(keys if self.has_names else keys.tolist()))
        vertices = self.find(distinct)
        matched, known = self._count_in_edge(vertices[vertices >= 0])
        return len(distinct) < count and matched >= NEARLY_ALL * max(known, len(distinct))

    def _count_in_edge(self, vertices: Any) -> tuple:
        """Return how many of `vertices` have an edge, and how many do in all."""
        in_edge = np.ones(self.num_nodes, bool) if self.raw.in_edge is None else self.raw.in_edge
        return np.count_nonzero(in_edge[vertices]), np.count_nonzero(in_edge)

    def add(self, keys: list) -> tuple[np.ndarray, int, np.ndarray | None]:
        """Return (image, number of vertices, original ids) after vertices with `keys` are added.

        Vertex v becomes image[v]. New names follow the old ones; numeric ids are in
        increasing order.
        """
        raw = self.raw
        same = np.arange(raw.num_nodes)
        if self.has_names:
            names = list(dict.fromkeys(keys))
            return same, raw.num_nodes + len(names), np.concatenate([raw.original_ids, names])

        new = np.unique(keys)
        if raw.original_ids is not None:
            ids = np.union1d(raw.original_ids, new)
            return np.searchsorted(ids, raw.original_ids), ids.size, ids

        stop = int(new[-1]) - raw.base + 1
        if stop <= 2 * (raw.num_nodes + new.size) + 1024:
            return same, stop, None
        ids = np.concatenate([same + raw.base, new])
        return same, ids.size, ids

    def move(self, entries: Entries | None, image: np.ndarray, num_nodes: int,
             original_ids: np.ndarray | None) -> None:
        """Renumber the vertices of `raw`: v becomes image[v], or is dropped for -1.

        Dropped vertices must have no edges. `entries` are those of an edge list on
        disk, or None.
        """
        raw = self.raw
        if entries is not None:
            entries.renumber(image, num_nodes, original_ids)
        raw.rows = image[raw.rows]
        raw.columns = image[raw.columns]
        in_edge = np.zeros(num_nodes, bool)
        in_edge[image[raw.in_edge]] = True
        raw.in_edge = in_edge
        raw.num_nodes = num_nodes
        raw.original_ids = original_ids
        self.refresh()


def _is_whole(text: str) -> bool:
    return ROUND.fullmatch(text) is not None or text.lstrip("+-").isdigit()

"""The user's options for reading an edge list: columns, header, ids and vertices."""
from dataclasses import dataclass, fields

from hpgcn.datasets.edges.columns import check_flag
from hpgcn.errors import UsageError

MOST_VERTICES = 2**62


@dataclass(frozen=True)
class Layout:
    """The flags of `hpgcn convert` on how edges are stored; a default leaves the choice to
    the file.
    """

    columns: str | None = None  # a word for each column: see hpgcn.datasets.edges.columns
    weights: str | None = None  # the name of the column of weights
    header: bool | None = None  # whether the first line has the names of the columns
    base: int | None = None  # the id of vertex 0
    num_nodes: int | None = None  # ids are base..base + num_nodes - 1
    bipartite: bool = False  # the ids of the two columns are of two kinds
    compact: bool = False  # only ids that are in an edge are vertices
    matrix: str | None = None  # the name of the adjacency among several matrices
    edge_features: tuple[str, ...] = ()  # names or patterns of columns with features of edges

    def flags(self, *names):
        """Return the flags that the user gave, of these fields or of all, as typed in a shell."""
        given = [each for each in fields(self) if getattr(self, each.name) != each.default]
        return [f"--no-{each.name}" if getattr(self, each.name) is False else
                "--" + each.name.replace("_", "-")
                for each in given if not names or each.name in names]

    def check(self):
        """Raise UsageError if a value is out of range, or if two flags exclude each
        other.
        """
        if self.columns is not None:
            check_flag(self.columns)
        if self.base not in (None, 0, 1):
            raise UsageError(f"--base {self.base}: expected 0 or 1")
        n = self.num_nodes
        if n is not None and not (isinstance(n, int) and 1 <= n < MOST_VERTICES):
            raise UsageError(f"--num-nodes {n}: expected a number of vertices, 1 or more")
        for one, other in (("columns", "weights"), ("num_nodes", "bipartite"),
                           ("num_nodes", "compact")):
            if getattr(self, one) and getattr(self, other):
                one, other = (f"--{name.replace('_', '-')}" for name in (one, other))
                raise UsageError(f"{one} and {other}: expected only one of them")

    def refuse_for_names(self, where):
        """Raise UsageError for flags on numeric ids, because the ids of `where` are
        names.
        """
        if self.base:
            raise UsageError(f"--base {self.base}: the ids of {where} are names, not numbers")
        if self.num_nodes is not None:
            raise UsageError(f"--num-nodes {self.num_nodes}: the ids of {where} are names, so "
                             "vertices without edges cannot be added")

"""Attributes of vertices in the graph's own file, in place of a table's file."""
from fnmatch import fnmatchcase

from hpgcn.datasets.readers.network_graph import OverTime
from hpgcn.datasets.source import truncate
from hpgcn.datasets.text.json_table import records_table
from hpgcn.errors import DataError


class VertexAttributes:
    """A table with a row for each vertex of a Raw, in order; `asked` are names or patterns.

    It has those members of a Source that readers of tables use.
    """

    suffix = ""

    def __init__(self, raw, where, asked):
        self.path = where
        if not raw.attributes:
            raise DataError(f"{where}: vertices have no attributes, of which {', '.join(asked)} "
                            "should be one")
        names = dict.fromkeys(name for node in raw.attributes for name in node)
        self.names = {name for name in names
                      if any(fnmatchcase(name, pattern) for pattern in asked)}
        for node in raw.attributes:
            for name in self.names & node.keys():
                if isinstance(node[name], OverTime):
                    raise DataError(f"{where}: attribute {truncate(name, 40)} of a vertex has "
                                    f"{node[name]}, expected one")
        self.table = records_table(raw.attributes, where)
        self.table.in_order = True

    def __str__(self):
        return str(self.path)

    def head(self):
        return b""

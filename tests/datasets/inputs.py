"""Input files of these tests: written in one line, and refused in one line."""
import pytest

from hpgcn.datasets.convert import read
from hpgcn.errors import DataError


def put(path, content):
    """Write str or bytes; return the path."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(graph):
    """Return the adjacency of a graph as nested lists."""
    return graph.adjacency.toarray().tolist()


def refused(message, source, *args, **options):
    """Expect that `read` refuses this in one line; return the line."""
    with pytest.raises(DataError, match=message) as error:
        read(source, *args, **options)
    assert str(error.value).isprintable()
    return str(error.value)

"""Functions that write an input file in one line, or expect that it is refused."""
import pytest

from hpgcn.datasets.convert import read
from hpgcn.errors import DataError


def put(path, content):
    """Write str or bytes to `path`; return the path."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(graph):
    """Return the dense adjacency matrix of a graph as nested lists."""
    return graph.adjacency.toarray().tolist()


def refused(message, source, *args, **options):
    """Expect that `read` refuses `source` with a one-line error; return its text."""
    with pytest.raises(DataError, match=message) as error:
        read(source, *args, **options)
    assert str(error.value).isprintable()
    return str(error.value)

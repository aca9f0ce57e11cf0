"""Fixtures of the partition tests: a real graph, and a fake partitioner."""
import gzip

import numpy as np
import pytest
from small_graphs import edges

FAKE_METIS = """
import ctypes, os, signal, sys, time

class Options:
    def __init__(self, **options):
        pass

class CSRAdjacency:
    def __init__(self, starts, adjacent):
        self.n = len(starts) - 1

class Cut:
    def __init__(self, part):
        self.vertex_part = part

def part_graph(k, graph, vweights, eweights, options):
    n = graph.n
{body}
"""


@pytest.fixture
def fake_metis(tmp_path, monkeypatch):
    """Return a function that installs a fake pymetis; its argument is the body of part_graph."""

    def install(body):
        indented = "\n".join(f"    {line}" for line in body.splitlines())
        (tmp_path / "pymetis.py").write_text(FAKE_METIS.replace("{body}", indented))
        monkeypatch.syspath_prepend(tmp_path)

    return install


@pytest.fixture(scope="session")
def enron(data_dir):
    """Return the graph email-Enron: 36,692 vertices, 183,831 undirected edges."""
    with gzip.open(data_dir / "snap" / "email-Enron.txt.gz", "rt") as file:
        pairs = np.loadtxt(file, np.int64, comments="#")
    return edges(int(pairs.max()) + 1, pairs, symmetrize=False)

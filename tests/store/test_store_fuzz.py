"""A few hundred damaged files in a child process: refused or read right, never a crash, never a hang."""
import subprocess
import sys

import pytest
from stored_graphs import make_graph, make_partition

from hpgcn import store

CHILD = """
import sys
import numpy as np
from hpgcn import store
from hpgcn.errors import DataError, StorageError

good, bad, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def content(path):
    with store.load(path, memory=10**8) as stored:
        graph, made = stored.read(), stored.partition
        features = graph.features if graph.header.sparse_features is False else graph.features.toarray()
        arrays = [graph.indptr, graph.indices, graph.data, features, graph.labels, *graph.masks.values(),
                  graph.degree_row, graph.degree_column, graph.degree_loop, graph.vertex, graph.original_ids,
                  stored.offsets, *([made.part, made.perm, made.iperm, made.edge_part] if made else [])]
        return repr((stored.format, graph.header, made and (made.method, made.seed, made.statistics))), arrays

expected = content(good)
raw = open(good, "rb").read()
rng = np.random.default_rng(seed)
outcomes = {}
for number in range(count):
    data = bytearray(raw)
    kind = number % 4
    place = int(rng.integers(len(data)))
    if kind == 0:
        data[place] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        data[place:place + 8] = rng.bytes(8)
    elif kind == 2:
        data[place:place + int(rng.integers(1, 2000))] = b""
    else:
        data[place:place + 64] = bytes(64)
    print(number, kind, place, end=" ", flush=True)
    with open(bad, "wb") as file:
        file.write(data)
    try:
        text, arrays = content(bad)
    except (DataError, StorageError) as error:
        outcome = type(error).__name__
        assert str(error).startswith(bad) and "\\n" not in str(error), str(error)
    else:
        outcome = "read"
        assert text == expected[0]
        for found, wanted in zip(arrays, expected[1], strict=True):
            assert wanted is None and found is None or found.dtype == wanted.dtype and np.array_equal(found, wanted)
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(outcome, flush=True)
print(outcomes)
"""


@pytest.mark.parametrize(("seed", "compress", "features"), [(0, "none", "dense"), (1, "none", "sparse"),
                                                            (2, "gzip", "sparse")])
def test_random_damage(tmp_path, seed, compress, features):
    graph = make_graph(features=features, ids=True)
    store.write_partitioned(tmp_path / "good.h5", graph, make_partition(edges=graph.indices.size), compress=compress)
    child = subprocess.run([sys.executable, "-c", CHILD, tmp_path / "good.h5", tmp_path / "bad.h5", str(seed), "200"],
                           capture_output=True, text=True, timeout=100, check=False)
    assert child.returncode == 0, child.stdout[-300:] + child.stderr[-1000:]
    assert "StorageError" in child.stdout.splitlines()[-1]

"""Parts of a graph file that are made in passes over its blocks."""
import subprocess
import sys

import numpy as np
import pytest
from arrays import assert_some
from checkout import ROOT
from commands import clean_environment, peak_of_group, succeed
from small_graphs import edges
from test_partition_stream import communities

from hpgcn import load, save, store
from hpgcn.errors import DataError, StorageError
from hpgcn.graphs.reordering import rcm_within_parts
from hpgcn.partition import make_partition, partition_stored
from hpgcn.partition.partition_memory import check_memory, needed_memory, stored_memory
from hpgcn.partition.quality import count
from hpgcn.partition.rows.net_bits import count_blocks, lower_volume
from hpgcn.partition.rows.partition_model import pattern
from hpgcn.partition.rows.streaming import memory_level, stored_level, stream_parts

LIMIT = ROOT / "scripts" / "limit_memory.sh"


@pytest.fixture(scope="module")
def ordered(tmp_path_factory):
    """Return a graph, and its file, whose rows are in RCM order."""
    graph = communities()
    path = tmp_path_factory.mktemp("graphs") / "g.h5"
    store.write_graph(path, graph, order=rcm_within_parts(graph, np.zeros(1200, int), 1))
    return graph, path


@pytest.mark.parametrize("symmetrize", [True, False])
@pytest.mark.parametrize("k", [3, 70])
def test_counts_are_those_of_the_pattern(symmetrize, k):
    graph = communities(300, symmetrize=symmetrize)
    rows = pattern(graph)
    part = np.random.default_rng(k).integers(0, k, 300).astype(np.int32)
    train = np.arange(300) < 100
    counted = count_blocks(stored_level(graph, 5, block=100)[0], part, k, 5, train)
    expected = count(rows, part, k, train=train)
    assert counted == {key: expected[key] for key in counted}


@pytest.mark.parametrize("symmetrize", [True, False])
@pytest.mark.parametrize("w0", [0, 3])
def test_isolated_vertices_of_a_file_are_dealt_out(tmp_path, symmetrize, w0):
    pairs = np.random.default_rng(1).choice(700, (6000, 2))
    pairs[:, 0] = np.maximum(pairs[:, 0], 50)  # others are only read
    store.write_graph(tmp_path / "g.h5", edges(1200, pairs, symmetrize=symmetrize))
    with load(tmp_path / "g.h5") as stored:
        made = partition_stored(stored, 4, method="best", w0=w0)
    assert np.bincount(made.part).max() <= 1.05 * 300
    assert w0 or made.statistics["imbalance_nnz"] <= 0.011


def test_bits_of_loops_and_of_two_rows():
    graph = edges(4, [(0, 0), (0, 1), (1, 0), (2, 1), (1, 2), (3, 1)], symmetrize=False)
    level, _ = stored_level(graph)
    part = np.array([0, 0, 1, 1], np.int32)
    assert count_blocks(level, part, 2)["volume"] == 2  # rows 1 and 2
    assert lower_volume(level, part, 2, 1.0).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("k", [4, 70])
def test_moves_lower_the_volume_and_keep_the_limit(k):
    graph = communities()
    rows = pattern(graph)
    weights = np.diff(rows.indptr)
    level = memory_level(rows, weights)
    part = stream_parts(level, k, 0.05)
    lowered = [lower_volume(memory_level(rows, weights, block), part.copy(), k, 0.05, 4)
               for block in (1 << 20, 100)]
    np.testing.assert_array_equal(*lowered)
    assert count(rows, lowered[0], k)["volume"] < count(rows, part, k)["volume"]
    load = np.bincount(lowered[0], weights, k)
    assert load.max() <= max(1.05 * weights.sum() / k, np.bincount(part, weights, k).max())


def test_the_order_of_the_file_changes_little(ordered):
    graph, path = ordered
    with load(path) as stored:
        made = partition_stored(stored, 4, method="best", baseline=True)
        again = partition_stored(stored, 4, method="best")
        assert (made.title, made.effort, made.epsilon) == ("best (stream)", "fast", 0.01)
        np.testing.assert_array_equal(made.part, again.part)
        vertices = stored.vertices(0, 1200)
    own = make_partition(graph, 4, effort="fast")
    assert made.statistics["volume"] < 1.1 * own.statistics["volume"]
    assert made.statistics["random_volume"] > 1.5 * made.statistics["volume"]
    assert made.statistics["volume"] == count(pattern(graph), made.part, 4)["volume"]
    rows = np.argsort(vertices)[made.perm]  # vertices of a part increase
    assert np.count_nonzero(np.diff(rows) < 0) == 3


@pytest.mark.parametrize("method", ["block", "random"])
def test_parts_without_a_pattern_are_the_same(ordered, method):
    graph, path = ordered
    with load(path) as stored:
        made = partition_stored(stored, 5, method=method, seed=2)
    np.testing.assert_array_equal(made.part, make_partition(graph, 5, method=method, seed=2).part)


def test_little_memory_for_clusters():
    graph = communities()
    rows = pattern(graph)
    level = memory_level(rows, np.diff(rows.indptr))
    whole = stream_parts(level, 2, 0.01)
    np.testing.assert_array_equal(stream_parts(level, 2, 0.01, room=1 << 30), whole)
    for room in (50_000, 0):
        part = stream_parts(level, 2, 0.01, room=room)
        assert_some(part != whole)
        assert np.bincount(part, level.weights).max() <= 1.02 * level.weights.sum() / 2


def test_the_memory_decides(ordered):
    header = load(ordered[1]).header
    fast, least = needed_memory(header, 4, "stream", "fast"), stored_memory(header, 4)
    assert least < fast
    assert not check_memory(header, 4, ["stream"], "default", fast, stored=True)
    assert check_memory(header, 4, ["best"], "default", fast - 1, stored=True)
    assert not check_memory(header, 4, ["best"], "default", None, stored=True)
    with pytest.raises(DataError, match="--method stream needs"):
        check_memory(header, 4, ["cover"], "fast", least, stored=True)
    with pytest.raises(DataError, match="--effort fast needs"):
        check_memory(header, 4, ["best"], "default", fast, stored=True)
    with pytest.raises(DataError, match="but the limit is"):
        check_memory(header, 4, ["best"], "default", least - 1, stored=True)


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "g.h5"
    save(communities(100), path)
    content = bytearray(path.read_bytes())
    with load(path) as stored:
        place = stored.reader.entries["adjacency/indices_1"].offset
    content[place] ^= 1
    path.write_bytes(content)
    with load(path) as stored, pytest.raises(StorageError, match="checksum"):
        partition_stored(stored, 2)


@pytest.mark.long
def test_in_a_control_group(tmp_path):
    """Parts and the file are made within the forecast memory if the page cache counts."""
    graph = tmp_path / "g.h5"
    succeed("generate", "sbm", graph, "--scale", 17, "--edge-factor", 16, "--features", 16)
    memory = stored_memory(load(graph).header, 8)
    assert memory < needed_memory(load(graph).header, 8, "stream", "fast")
    made = subprocess.run(list(map(str, [
        LIMIT, memory, sys.executable, "-m", "hpgcn", "partition", graph, "-k", 8, "--memory",
        memory, "-o", tmp_path / "p.h5"])), capture_output=True, text=True, check=False,
        env=clean_environment(), timeout=600)
    if made.returncode == 77:
        pytest.skip("no rights to make control groups")
    assert made.returncode == 0 and "killed 0" in made.stderr, made.stderr
    assert peak_of_group(made.stderr) < memory
    assert "passes over the file" in made.stderr
    assert load(tmp_path / "p.h5").partition.winner == "stream"

"""The setting --batch: valid values and refusals."""
import re

import numpy as np
import pytest
from graphs import make

from hpgcn import store, train
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.partition import Partition
from hpgcn.partition.rows.stochastic import parse_sampling
from hpgcn.sampling import BatchRequest, parse, smallest


@pytest.mark.parametrize("text, expected", [
    ("full", None), ("vertices:20000", BatchRequest("vertices", 20000)),
    ("parts:8", BatchRequest("parts", 8)), ("parts:8:100", BatchRequest("parts", 8, "100")),
    ("parts:8:0100", BatchRequest("parts", 8, "100")),
    ("parts:2:a:b/c.h5", BatchRequest("parts", 2, "a:b/c.h5")),
    ("neighbors:15,10,5:1024", BatchRequest("neighbors", 1024, fan_outs=(15, 10, 5))),
    ("neighbors:-1:7", BatchRequest("neighbors", 7, fan_outs=(-1,))),
    ("links:7", BatchRequest("links", 7, fan_outs=(-1,))),
    ("links:5,3:7", BatchRequest("links", 7, fan_outs=(5, 3)))])
def test_what_is_taken(text, expected):
    assert parse(text) == expected


def test_the_spelling_of_earlier_versions_is_taken():
    assert Config(batch="neighbours:3:25").batch == "neighbors:3:25"
    assert parse_sampling(90, "neighbours:3:9") == parse_sampling(90, "neighbors:3:9")


@pytest.mark.parametrize("text", [
    "", "ful", "vertices", "vertices:", "vertices:0", "vertices:-3", "vertices:3:4", "vertices:x",
    "vertices:1e3", "vertices:99999999999", "parts", "parts:0", "parts:8:", "parts:8:0", "parts::4",
    "neighbors:5", "neighbors:5:", "neighbors::5", "neighbors:5,:3", "neighbors:-2:3",
    "neighbors:0:3", "neighbors:3:4:5", "vertices:\u0663", "links:", "links:0", "links:1:2:3"])
def test_what_is_refused(text):
    with pytest.raises(UsageError, match=r"batch = .*: expected full, vertices:B"):
        parse(text)
    with pytest.raises(UsageError, match="batch = "):
        train(make(n=30), Config(batch=text))


def test_the_smallest_run_the_same_code():
    for text in ("full", "vertices:100", "parts:2:50", "neighbors:4,4:100", "links:9"):
        request = parse(smallest(text))
        assert (request is None) == (text == "full")
        assert bool(request and request.fan_outs) == text.startswith(("neighbors", "links"))


@pytest.mark.parametrize("batch, changes, words", [
    ("vertices:10", {"strategy": "1d"}, "1d supports only full batches, expected one of p2p"),
    ("vertices:10", {"strategy": "vertex-cut", "delay": "2"}, "cd-2 supports only full batches"),
    ("vertices:10", {"memory": "2G"}, "needs batch='full' or scratch="),
    ("neighbors:3,3,3:10", {}, "3 numbers of neighbors, expected one, or one for each of 2"),
    ("neighbors:3,3:10", {"model": "appnp", "hops": 3}, "one for each of 3 products with A"),
    ("parts:2", {}, "made: the graph is not partitioned; give a number of parts"),
    ("parts:8:5", {}, "8 parts of 5, expected 5 at most"),
    ("parts:2:500", {}, "500 parts of 203 vertices"),
    ("links:9", {}, "batch = 'links:9': only for task='links'")])
def test_what_does_not_fit_a_run(batch, changes, words):
    if batch == "parts:8:5":
        pytest.importorskip("mtkahypar", reason="needs pip install '.[partition]'")
    with pytest.raises(UsageError, match=words):
        train(make(), Config(batch=batch, epochs=2, dtype="float64", **changes))


def test_files_of_parts(tmp_path):
    graph = make()
    part = np.random.default_rng(0).integers(0, 7, graph.num_rows)
    path, plain, other = (tmp_path / name for name in ("parts.h5", "plain.h5", "other.h5"))
    store.write_partitioned(path, graph, Partition.from_parts(part, 7))
    store.write_graph(plain, graph)
    smaller = make(n=100)
    store.write_partitioned(other, smaller, Partition.from_parts(part[:100], 7))
    config = Config(epochs=2, dtype="float64")
    found = train(graph, config.replace(batch=f"parts:2:{path}"))
    assert found.history[0]["steps"] == 4
    assert train(graph, config.replace(batch=f"parts:2:{path}")).history[-1]["loss"] == (
        found.history[-1]["loss"])
    for file, words in ((plain, "not partitioned"), (other, "100 vertices, expected the 203 of")):
        with pytest.raises(DataError, match=f"{re.escape(str(file))}: {words}"):
            train(graph, config.replace(batch=f"parts:2:{file}"))

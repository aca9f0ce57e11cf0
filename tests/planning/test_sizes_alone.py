"""`hpgcn plan --vertices N --edges N`: forecasts of a graph that is not there."""
import json

import numpy as np
import pytest
import scipy.sparse as sp
from commands import refused, succeed

from hpgcn import Graph, store
from hpgcn.planning.counts.sized_input import count, parse_sizes

N, EDGES = 3000, 12_000


@pytest.fixture(scope="module")
def random_graph(tmp_path_factory):
    """Return the path of a graph with random edges, each in both directions."""
    path = tmp_path_factory.mktemp("random") / "g.h5"
    draws = np.random.default_rng(0)
    pairs = draws.choice(N * (N - 1) // 2, EDGES, replace=False)
    rows, columns = np.triu_indices(N, 1)
    half = sp.coo_array((np.ones(EDGES), (rows[pairs], columns[pairs])), shape=(N, N))
    store.write_graph(path, Graph.from_scipy(half + half.T, np.ones((N, 16)), draws.integers(
        0, 7, N)))
    return path


@pytest.mark.parametrize("model", [(), ("--model", "sage")])
def test_sizes_forecast_what_a_random_graph_costs(random_graph, model):
    asked = ("-k", "1,2,8", "--method", "random,block", "--json")
    counted = json.loads(succeed("plan", random_graph, *asked, *model))
    sizes = ("--vertices", "3K", "--edges", EDGES, "--features", 16, "--classes", 7)
    found = json.loads(succeed("plan", *sizes, *asked[:2], "--json", *model))
    rows = {(row["strategy"], row["parts"], row["ranks"]): row for row in counted["rows"]}
    assert found["step"]["widths"] == counted["step"]["widths"]
    assert {row["strategy"] for row in found["rows"]} >= {"p2p", "1d", "1.5d", "2d", "3d", "mop"}
    for row in found["rows"]:
        other = rows[row["strategy"], row["parts"], row["ranks"]]
        # degrees of a random graph vary, which makes its rows a little less scattered
        assert row["bytes"]["total"] == pytest.approx(other["bytes"]["total"], rel=0.06)
        assert row["memory"]["max_bytes"] == pytest.approx(other["memory"]["max_bytes"], rel=0.15)
        assert row["messages"]["total"] == other["messages"]["total"]
        assert row["seconds"]["epoch"] == pytest.approx(other["seconds"]["epoch"], rel=0.2)


def test_a_large_graph_takes_no_memory():
    """111 M vertices would take 900 MB for each array."""
    text = succeed("plan", "--vertices", "111M", "--edges", "1.6G", "--features", 128,
                   "--classes", 172, "-k", 64, "--epochs", 100)
    assert "3,311,000,000 nonzeros with loops, widths 128,16,172" in text
    assert "training: 100 epochs" in text and "sizes alone" in text


def test_counts():
    assert [count("-", text) for text in ("7", "1.6G", "2.3M", "10k", ".5b")] == [
        7, 1_600_000_000, 2_300_000, 10_000, 500_000_000]
    assert parse_sizes("5", "3").num_edges == 6
    assert parse_sizes("5", "3", directed=True).num_edges == 3


@pytest.mark.parametrize("asked, said", [
    (("--vertices", 5), "--vertices and --edges are given together"),
    (("--vertices", 0, "--edges", 1), "--vertices 0: expected at least 1"),
    (("--vertices", "x", "--edges", 1), "--vertices 'x': expected a count"),
    (("--vertices", 5, "--edges", "-1"), "--edges '-1': expected a count"),
    (("--vertices", 5, "--edges", "9" * 20), "expected a count"),
    (("--features", 5), "--vertices and --edges are given together"),
    (("g.h5", "--vertices", 5, "--edges", 5), "--vertices: only without a graph"),
    (("--vertices", 5, "--edges", 5, "--method", "cover"), "--method: needs a graph"),
    (("--vertices", 5, "--edges", 5, "--batch", "vertices:2"), "--batch: needs a graph"),
    ((), "give GRAPH.h5, --from RUN, or --vertices N --edges N")])
def test_refusals(asked, said):
    assert said in refused(2, "plan", *asked)

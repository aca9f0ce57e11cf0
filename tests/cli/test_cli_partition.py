"""`hpgcn partition`: its output, files and refusals."""
import json
import re

import numpy as np
import pytest
from commands import refused, run, succeed

from hpgcn import store
from hpgcn.partition import dense_weight, read_parts, statistics
from hpgcn.partition.partition_memory import stored_memory


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    pytest.importorskip("mtkahypar", reason="needs pip install '.[partition]'")
    path = tmp_path_factory.mktemp("graphs") / "g.h5"
    succeed("generate", "rmat", path, "--scale", 10, "--edge-factor", 4, "--features", 4)
    return path


def found(*args, **options):
    return json.loads(succeed("partition", *args, "--json", **options))


def test_table_json_and_file_agree(graph, tmp_path):
    told = found(graph, "-k", 6, "-o", tmp_path / "a.h5")
    assert told["volume"] <= told["engine_volume"]
    kept = store.load(tmp_path / "a.h5").partition
    counted = statistics(store.load(graph).read(), kept.part, 6)
    assert kept.statistics["volume"] == counted["volume"] == told["volume"]
    share = told["volume_max"] / kept.statistics["random_volume_max"]
    assert told["relative"]["volume_max"] == pytest.approx(share)
    text = succeed("partition", graph, "-k", 6, "-o", tmp_path / "b.h5")
    assert len(text.splitlines()) == 6 and "replication factor" not in text
    assert "replication factor" in succeed(
        "partition", graph, "-k", 6, "-o", tmp_path / "b.h5", "--overwrite", "--verbose")
    line = next(line for line in text.splitlines() if line.startswith("rows sent, total")).split()
    assert line[3:] == [f"{told['volume']:,}", f"{told['relative']['volume']:.3f}"]
    assert f"{told['volume']}" in succeed("inspect", tmp_path / "b.h5").replace(",", "")


@pytest.mark.long
def test_without_refinement_the_volume_is_the_engines(graph, tmp_path):
    told = found(graph, "-k", 6, "--no-refine", "-o", tmp_path / "a.h5")
    assert told["volume"] == told["engine_volume"]


@pytest.mark.long
def test_compare(graph, tmp_path):
    given = (graph, "-k", 4, "--compare")
    told = found(*given, "hypergraph,graph,block,random", cwd=tmp_path)
    assert list(told) == ["hypergraph", "graph", "block", "random"]
    assert told["hypergraph"]["volume"] < told["random"]["volume"]
    raw = found(*given, "hypergraph,graph", "--no-refine", cwd=tmp_path)
    for method, figures in raw.items():
        assert told[method]["unrefined_volume"] == figures["volume"]
        assert told[method]["unrefined_volume_max"] == figures["volume_max"]
    text = succeed("partition", *given, "block,random", cwd=tmp_path)
    heading = text.splitlines()[0].split("  ")
    assert [name.strip() for name in heading if name] == [
        "block", "block / random", "random", "random / random"]
    assert not list(graph.parent.glob("g.p4*"))
    assert "--compare" in refused(2, "partition", *given, "block", "-o", tmp_path / "x.h5")
    assert "did you mean block" in refused(2, "partition", *given, "blok")


@pytest.mark.parametrize("flags", [(), ("--no-refine",)])
def test_compare_shows_what_ran(graph, flags):
    pytest.importorskip("pymetis")
    given = ("partition", graph, "-k", 4, "--compare", "hypergraph,graph,block", *flags)
    told = json.loads(succeed(*given, "--json"))
    assert [each["engine"] for each in told.values()] == ["mtkahypar", "metis", ""]
    assert [each["divided"] for each in told.values()] == ["vertices", "vertices", ""]
    assert [each["start"] for each in told.values()] == ["scratch", "scratch", ""]
    assert all(each["seconds"] > 0 for each in told.values())
    lines = dict(re.split("  +", line, maxsplit=1) for line in succeed(*given).splitlines()
                 if re.match("engine|divided|began with|seconds", line.strip()))
    assert lines["engine"].split() == ["mtkahypar", "metis", "-"]
    assert lines["seconds"].replace(".", "").split()[0].isdigit()


def test_compare_gives_the_engine_to_methods_that_take_it(graph):
    pytest.importorskip("kaminpar")
    told = found(graph, "-k", 4, "--compare", "hypergraph,graph", "--engine", "kaminpar")
    assert [each["engine"] for each in told.values()] == ["mtkahypar", "kaminpar"]
    line = refused(2, "partition", graph, "-k", 4, "--compare", "graph,block", "--engine",
                   "mtkahypar")
    assert "engine = 'mtkahypar': no method of --compare graph,block takes it" in line
    assert "effort fast runs no engine" in refused(
        2, "partition", graph, "-k", 4, "--effort", "fast", "--engine", "mtkahypar", "--compare",
        "hypergraph,graph")


@pytest.mark.long
@pytest.mark.parametrize("name", ["p.npy", "p.txt", "g.part.5"])
def test_a_part_vector_goes_out_and_comes_back(graph, tmp_path, name):
    out = tmp_path / name
    given = ("partition", graph, "-k", 5)
    succeed(*given, "--method", "random", "-o", out)
    part = read_parts(out, 1024, 5)
    assert sorted(np.bincount(part)) == [204, 205, 205, 205, 205]
    succeed(*given, "--parts", out, "-o", tmp_path / "back.h5")
    np.testing.assert_array_equal(store.load(tmp_path / "back.h5").partition.part, part)
    assert "exists" in refused(73, *given, "--method", "random", "-o", out)


@pytest.mark.long
def test_weights_from_widths(graph, tmp_path):
    # per row 2 x 128 x 128 + 3 x 128 x 40 dense; per nonzero 128 + 40 forward and as much backward
    assert dense_weight([128, 128, 40]) == round(48128 / (4 * 336))
    # other methods even out rows by vertices without edges as well
    heavy = found(graph, "-k", 4, "--method", "block", "--widths", "128,128,40", "-o",
                  tmp_path / "a.h5")
    plain = found(graph, "-k", 4, "--method", "block", "-o", tmp_path / "b.h5")
    assert heavy["imbalance_rows"] < plain["imbalance_rows"]
    assert run("partition", graph, "-k", 4, "--widths", "4,4", "--w0", 3).returncode == 2


@pytest.mark.parametrize(("args", "code", "message"), [
    (("-k", 0), 2, "k = 0"), (("-k", -1), 2, "k = -1"),
    (("-k", 1025), 65, "cannot make 1025 parts of 1024 vertices"),
    (("-k", 4, "--epsilon", -1), 2, "epsilon = -1"),
    (("-k", 4, "--epsilon", "nan"), 2, "epsilon = nan"),
    (("-k", 4, "--method", "metis"), 2, "method = 'metis'"),
    (("-k", 4, "--engine", "metis"), 2, "engine = 'metis'"),
    (("-k", 4, "--widths", "128,x"), 2, "--widths 128,x"),
    (("-k", 4, "--widths", "16"), 2, "--widths 16"),
    (("-k", 4, "--w0", -1), 2, "w0 = -1"), (("-k", 4, "--seed", -1), 2, "seed = -1")])
def test_refusals(graph, tmp_path, args, code, message):
    assert message in refused(code, "partition", graph, *args, "-o", tmp_path / "no.h5")
    assert not list(tmp_path.iterdir())


def test_memory_is_refused_before_the_work(graph, tmp_path):
    line = refused(65, "partition", graph, "-k", 4, "--memory", "200M", "-o", tmp_path / "no.h5")
    assert "method best, effort default, needs about" in line
    assert "but the limit is 200M; --memory sets it" in line
    assert not list(tmp_path.iterdir())


def test_memory_that_is_enough_changes_nothing(graph, tmp_path):
    fast = ("partition", graph, "-k", 4, "--effort", "fast")
    succeed(*fast, "--memory", "2G", "-o", tmp_path / "a.npy")
    succeed(*fast, "-o", tmp_path / "b.npy")
    np.testing.assert_array_equal(*(read_parts(tmp_path / name, 1024, 4)
                                    for name in ("a.npy", "b.npy")))


def test_memory_below_that_of_the_pattern(graph, tmp_path):
    memory = stored_memory(store.load(graph).header, 4)
    told = found(graph, "-k", 4, "--memory", memory, "-o", tmp_path / "a.h5")
    assert (told["winner"], told["effort"], told["method"]) == ("stream", "fast", "best")
    assert told["volume"] < 0.9 * told["random_volume"]
    kept = store.load(tmp_path / "a.h5")
    assert kept.partition.statistics["volume"] == told["volume"]
    kept.read()
    assert refused(65, "partition", graph, "-k", 4, "--memory", memory, "--nested", "-o",
                   tmp_path / "b.h5")

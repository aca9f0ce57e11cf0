"""Parquet edge lists, read in memory and sorted on disk."""
import numpy as np
import pytest
from inputs import put, rows

from hpgcn.datasets import convert
from hpgcn.datasets.formats import detect
from hpgcn.datasets.sorting import external
from hpgcn.datasets.source import Source
from hpgcn.errors import DataError, MissingError


def table(path, columns, **options):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path, **options)
    return path


@pytest.mark.parametrize("columns", [
    {"target": [0, 1], "source": [1, 2], "weight": [1.0, 2.0]},
    {"weight": np.array([1, 2], np.float32), "source": np.array([1, 2], np.uint8),
     "target": np.array([0, 1], "i2")},
    {"target": [0.0, 1.0], "source": [1.0, 2.0], "weight": [1, 2]},
    {"who says so": ["a", "b"], "u": [0, 1], "v": [1, 2], "time": [9, 9], "Weight": [1, 2]}])
def test_columns(tmp_path, columns):
    path = table(tmp_path / "g.parquet", columns)
    graph, _ = convert.read(path)
    assert graph.header.name == "g"
    assert rows(graph) == [[0, 1, 0], [0, 0, 2], [0, 0, 0]]


def test_found_by_its_first_bytes(tmp_path):
    assert detect(Source(table(tmp_path / "edges", {"u": [0], "v": [1]}))) == "parquet"


@pytest.mark.long
@pytest.mark.parametrize("options",
                         [{}, {"symmetrize": True}, {"reverse": True}, {"unweighted": True}])
@pytest.mark.parametrize("weighted", [False, True])
def test_same_bits_on_disk(tmp_path, monkeypatch, options, weighted):
    rng = np.random.default_rng(0)
    u, v = rng.integers(0, 300, (2, 5000)) * 7919
    columns = {"source": u, "target": v, **({"weight": rng.random(5000)} if weighted else {})}
    path = table(tmp_path / "g.parquet", columns, row_group_size=700)
    whole = convert.read(path, **options)
    convert.convert(path, tmp_path / "a.h5", **options)
    monkeypatch.setattr(convert, "EDGE_BYTES", 1 << 60)
    monkeypatch.setattr(external, "room", lambda memory: 4000)
    notes = convert.convert(path, tmp_path / "b.h5", **options)
    assert notes == whole[1]
    from hpgcn import store

    first, second = (store.load(tmp_path / name).read() for name in ("a.h5", "b.h5"))
    assert first.header == second.header
    for name in ("indptr", "indices", "data", "degree_row", "degree_column", "degree_loop",
                 "original_ids"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize("columns, message", [
    ({"source": [0, 5, -7], "target": [1, 2, 3]}, r"row 2: source is -7, expected 0\.\."),
    ({"source": np.array([0, 2**63], np.uint64), "target": [1, 2]},
     r"row 1: source is 9223372036854775808"),
    ({"source": [0, None], "target": [1, 2]}, r"row 1: source is empty"),
    ({"source": [0.5, 1.5], "target": [1, 2]}, "row 0: source is 0.5, expected an integer"),
    ({"source": [0.0, 2.0**53], "target": [1, 2]}, "row 1: source is 9007199254740992"),
    ({"source": [0.0, None], "target": [1, 2]}, "row 1: source is empty"),
    ({"source": ["0", "1"], "target": [1, 2]}, r"column source is .*string,"),
    ({"source": ["a", None], "target": ["b", "c"]}, "row 1: source is empty"),
    ({"source": ["a", "c"], "target": ["b", ""]}, "row 1: target is '', expected"),
    ({"u": [0, 1], "name": ["a", "b"]},
     r"columns u, name: which two columns are the ends of an edge\?"),
    ({"a": [0, 1], "b": [1, 2]},
     r"columns a, b: which two columns are the ends of an edge\? Name each column, as in"),
    ({"u": [0, 1], "v": [1, 2], "size": [1, 2]},
     r"size is not a known name: use --columns u,v,- to skip the column, --columns u,v,w"),
    ({"u": [0, 1], "v": [1, 2], "weight": [1.0, float("nan")]}, r"row 1: weight is nan"),
    ({"u": [0, 1], "v": [1, 2], "weight": [1.0, None]}, r"row 1: weight is empty"),
    ({"u": [0, 1], "v": [1, 2], "weight": ["1", "b"]}, r"row 1: weight is 'b', expected a number"),
    ({"u": np.empty(0, int), "v": np.empty(0, int)}, r"no edges")])
@pytest.mark.parametrize("memory", [None, 200])
def test_refused(tmp_path, columns, message, memory):
    path = table(tmp_path / "g.parquet", columns)
    with pytest.raises(DataError, match=message) as error:
        convert.convert(path, tmp_path / "g.h5", memory=memory)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["g.parquet"]


def test_weights_that_are_text(tmp_path):
    path = table(tmp_path / "g.parquet", {"u": [0, 1], "v": [1, 2], "weight": ["0.5", "2"]})
    graph, notes = convert.read(path)
    assert graph.data.tolist() == [0.5, 2] and "weight is text: read as numbers" in notes


def test_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    put(tmp_path / "g.parquet", b"PAR1")
    with pytest.raises(MissingError,
                       match=r"reading Parquet needs pyarrow \(extra io\): pip install 'pyarrow>="):
        convert.read(tmp_path / "g.parquet")

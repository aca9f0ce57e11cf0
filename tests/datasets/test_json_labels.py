"""Labels that are lists of names in JSON: a column of 0 and 1 for each name, sorted."""
import json

import numpy as np
import pytest
from inputs import put, refused

from hpgcn.datasets.convert import read

TAGS = {"a": ["x", "y"], "c": ["y"], "b": [], "d": ["z", "z"]}


def by_hand(rows):
    names = sorted({name for row in rows for name in row})
    return [[float(name in row) for name in names] for row in rows], tuple(names)


@pytest.mark.parametrize("edges, order", [("source,target\na,b\nb,c\nc,d\n", "abcd"),
                                          ("0,1\n1,2\n2,3\n", None)])
def test_lists_of_names(tmp_path, edges, order):
    tags = TAGS if order else list(TAGS.values())
    path = put(tmp_path / "y.json", json.dumps(tags))
    graph, notes = read(put(tmp_path / "g.csv", edges), labels=path)
    rows, names = by_hand([TAGS[name] for name in order or TAGS])
    assert graph.labels.tolist() == rows and graph.class_names == names
    assert graph.header.multilabel and f"{path}: 3 labels: x, y, z" in notes


@pytest.mark.parametrize("tags, message", [
    ({**TAGS, "c": ["y", 3]}, r"row c: \['y', 3\], expected a list of names of labels"),
    ({**TAGS, "c": "y"}, "row c: y, expected a list of names"),
    ({key: TAGS[key] for key in "abc"}, "1 vertices have no row of labels, the first is id d"),
    ({name: [] for name in TAGS}, "row a: expected a list of names"),
    ([["x"]], "labels have 1 rows without ids")])
def test_refused(tmp_path, tags, message):
    put(tmp_path / "g.csv", "source,target\na,b\nb,c\nc,d\n")
    refused(rf"y\.json: .*({message})", tmp_path / "g.csv",
            labels=put(tmp_path / "y.json", json.dumps(tags)))


def test_the_advice_for_text_called_npy(tmp_path):
    edges = put(tmp_path / "g.txt", "0 1\n1 2\n")
    path = put(tmp_path / "y.npy", "0.5 2.5\n2.5 1\n0 0\n")
    assert "under a name that ends in .csv" in refused("y.npy: not an array", edges, features=path)
    path = path.rename(tmp_path / "y.csv")
    assert read(edges, features=path)[0].features.tolist() == [[0.5, 2.5], [2.5, 1], [0, 0]]
    np.save(tmp_path / "y.npy", np.eye(3))
    assert read(edges, features=tmp_path / "y.npy")[0].header.num_features == 3

"""A folder as input: its data set is read, or the error lists the data sets in it."""
import os

import numpy as np
import pytest
from inputs import put, refused, rows
from test_planetoid import write_set

from hpgcn.datasets.convert import read
from hpgcn.errors import InputNotFoundError


@pytest.mark.parametrize("within", ["", "raw"])
@pytest.mark.parametrize("fmt", ["auto", "planetoid"])
def test_a_folder_is_read_as_its_files(tmp_path, within, fmt):
    folder = tmp_path / "set"
    (folder / within).mkdir(parents=True)
    path = write_set(folder / within)
    put(folder / "README", "about")
    expected, _ = read(path)
    graph, _ = read(folder, fmt)
    assert rows(graph) == rows(expected)
    assert (graph.header.name, graph.header.source_sha256) == (
        "tiny", expected.header.source_sha256)


def test_a_folder_of_no_set_or_of_several(tmp_path):
    put(tmp_path / "g.txt", "0 1\n")
    refused("is a directory without a known graph of several files .planetoid, ogb", tmp_path)
    refused("is a directory without a known graph", tmp_path, "csv")
    write_set(tmp_path)
    put(tmp_path / "ind.other.graph", "")
    refused(r"several graphs: other \(planetoid\), tiny \(planetoid\); give the file", tmp_path)


def test_missing_files_are_named_at_once(tmp_path):
    path = write_set(tmp_path)
    for part in ("tx", "allx"):
        (tmp_path / f"ind.tiny.{part}").unlink()
    with pytest.raises(InputNotFoundError, match=r"tiny\.allx, .*tiny\.tx: No such file"):
        read(path)
    with pytest.raises(InputNotFoundError, match=r"g\.txt, .*x\.npy, .*y\.npy: No such file"):
        read(tmp_path / "g.txt", features=tmp_path / "x.npy", labels=tmp_path / "y.npy")
    np.save(tmp_path / "x.npy", np.eye(34))
    with pytest.raises(InputNotFoundError, match=r"^[^,]*y\.npy: No such file"):
        read("karate", features=tmp_path / "x.npy", labels=tmp_path / "y.npy")


@pytest.mark.parametrize("name", ["ind.tiny.tx", "ind.tiny.graph"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, name):
    write_set(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    refused(rf"{name}: is not a regular file", tmp_path)

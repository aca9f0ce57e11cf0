"""Arrays are written while their input is read; unfinished files are in a separate folder."""
import dataclasses
import os

import numpy as np
import pytest
from stored_graphs import assert_same, make_graph

from hpgcn import store
from hpgcn.errors import OutputError, StorageError
from hpgcn.store.writer import create


class Slices:
    """An array that supports only slices of `most` rows."""

    def __init__(self, array, most):
        self.array, self.most = array, most
        self.shape, self.size, self.dtype = array.shape, array.size, array.dtype

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        assert rows.stop - rows.start <= self.most
        return self.array[rows]


def streamed(graph, most=1 << 24):
    names = ["indptr", "indices", "degree_row", "degree_column", "degree_loop", "original_ids"]
    names += ["data"] * (graph.data is not None)
    slices = {name: Slices(getattr(graph, name), most) for name in names}
    return dataclasses.replace(graph, **slices, vertex=None)


@pytest.mark.parametrize("compress", ["none", "gzip"])
@pytest.mark.parametrize("weighted", [True, False])
def test_arrays_that_are_slices(tmp_path, weighted, compress):
    graph = make_graph(weighted=weighted, ids=True)
    store.write_graph(tmp_path / "g.h5", streamed(graph), compress=compress)
    assert_same(store.load(tmp_path / "g.h5").read(), graph)


def test_unfinished_file_in_its_own_folder(tmp_path):
    scratch, out = tmp_path / "scratch", tmp_path / "out"
    scratch.mkdir()
    out.mkdir()
    (out / "link.h5").symlink_to("g.h5")
    before = os.umask(0o027)
    for path, graph in ((out / "g.h5", make_graph()), (out / "link.h5", make_graph(seed=1))):
        store.write_graph(path, graph, overwrite=True, scratch=scratch)
        assert_same(store.load(out / "g.h5").read(), graph)
    os.umask(before)
    assert (out / "g.h5").stat().st_mode & 0o777 == 0o640 and (out / "link.h5").is_symlink()
    with pytest.raises(OutputError, match=r"g\.h5: exists already"):
        store.write_graph(out / "g.h5", make_graph(), scratch=scratch)

    class Broken(Slices):
        def __getitem__(self, rows):
            assert len(list(scratch.iterdir())) == 1 and len(list(out.iterdir())) == 2
            raise StorageError("mine")

    graph = make_graph()
    with pytest.raises(StorageError, match="mine"):
        broken = dataclasses.replace(graph, data=Broken(graph.data, 0))
        store.write_graph(out / "g.h5", broken, overwrite=True, scratch=scratch)
    assert not list(scratch.iterdir()) and sorted(os.listdir(out)) == ["g.h5", "link.h5"]


def test_slices_are_short(tmp_path):
    with create(tmp_path / "x.h5", "hpgcn-model") as writer:
        writer.dataset("big", Slices(np.arange(5_000_000.0), 1 << 21))

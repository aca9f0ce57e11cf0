"""Functions that open a graph file by path close it when they return or raise."""
import gc

import h5py
import numpy as np
import pytest
from arrays import assert_some
from commands import succeed
from graphs import make

import hpgcn
from hpgcn import store
from hpgcn.errors import ConfigError, DataError
from hpgcn.partition import make_partition

CONFIG = hpgcn.Config(epochs=1, hidden=4)


@pytest.fixture(autouse=True)
def no_collector():
    """Disable the garbage collector, which would close forgotten files."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def path(tmp_path):
    """Return the path of a graph without parts; two ranks partition it beside the file."""
    store.write_graph(tmp_path / "g.h5", make())
    return tmp_path / "g.h5"


@pytest.fixture
def parts(tmp_path):
    """Return the path of a graph in four nested parts, which merge for one or two ranks."""
    graph = make()
    made = make_partition(graph, 4, method="block", nested=True)
    store.write_partitioned(tmp_path / "parts.h5", graph, made)
    return tmp_path / "parts.h5"


def assert_closed(folder):
    """Check that all graph files of a folder are closed, by opening them for writing."""
    for path in folder.glob("*.h5"):
        with h5py.File(path, "r+"):
            pass


def test_train(path, parts):
    hpgcn.train(path, CONFIG)
    for each in (path, parts):
        hpgcn.train(each, CONFIG.replace(strategy="p2p"), ranks=2)
    assert_closed(path.parent)


def test_predict(path, parts):
    result = hpgcn.train(make(), CONFIG)
    for each in (path, parts):
        assert hpgcn.predict(each, result)
        assert hpgcn.predict(each, result, ranks=2)
    assert_closed(path.parent)


def test_propagation(path, parts):
    with hpgcn.propagation(path) as product:
        assert_closed(path.parent)  # the product no longer needs the file
        assert_some(product.forward(np.ones((product.num_rows, 1), np.float32)))

    def multiply(comm):
        for each in (path, parts):
            hpgcn.propagation(each, comm).close()

    hpgcn.run_on_ranks(multiply, 2)
    assert_closed(path.parent)


@pytest.mark.long
def test_predict_pyg(path, parts):
    pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
    from hpgcn.interop.torch import export_pyg, predict_pyg

    state, _ = export_pyg(hpgcn.train(make(), CONFIG))
    for each in (path, parts):
        assert predict_pyg(each, state)
    assert_closed(path.parent)


@pytest.mark.long
def test_commands(path):
    run = path.parent / "run"
    succeed("partition", path, "-k", 2)
    succeed("train", path, "--epochs", 1, "--out", run)
    succeed("predict", run)
    succeed("train", path, "--dry-run", "--ranks", 2)
    assert_closed(path.parent)


def test_errors(path, parts):
    other = hpgcn.train(make(f=5), CONFIG)
    for each in (path, parts):
        with pytest.raises(DataError):
            hpgcn.predict(each, other)
    with pytest.raises(ConfigError):
        hpgcn.train(parts, CONFIG, ranks=3)
    assert_closed(path.parent)


def test_a_graph_given_open_stays_open(path, parts):
    result = hpgcn.train(make(), CONFIG)
    for each in (path, parts):
        with hpgcn.load(each) as graph:
            hpgcn.train(graph, CONFIG.replace(strategy="1d"), ranks=2)  # needs no partition
            assert hpgcn.predict(graph, result)
            assert graph.degrees()
    assert_closed(path.parent)

"""Invalid graphs, paths and arrays as arguments raise the right class of error, in one line."""
import resource
import subprocess
import sys
import warnings
from functools import partial
from types import SimpleNamespace

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import hpgcn
from hpgcn import __main__ as command_line
from hpgcn.datasets import convert
from hpgcn.errors import ConfigError, DataError, InputNotFoundError, StorageError, UsageError
from hpgcn.interop.tensors import weights_of


@pytest.mark.parametrize("path", [None, 3, {}, ["run"]])
def test_what_is_no_path_is_refused(path):
    graph = graphs.make(20, 3, 2)
    for use in (hpgcn.load, hpgcn.read_run, partial(hpgcn.save, graph), convert.read):
        with pytest.raises(UsageError, match=rf"^path is of type {type(path).__name__}, expected"):
            use(path)


@pytest.mark.parametrize("name", ["save", "to_pyg", "to_dgl", "to_networkx"])
def test_what_is_no_graph_is_refused(name, monkeypatch, tmp_path):
    for module in ("torch", "torch_geometric.data", "dgl", "networkx"):
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(Data=None))
    path = [tmp_path / "g.h5"] * (name == "save")
    with pytest.raises(UsageError, match="graph is of type str, expected"):
        getattr(hpgcn, name)("graph.h5", *path)


def test_a_run_that_is_not_there_is_named_once(tmp_path):
    for name, reason in (("nope", "no such run directory"), ("x" * 300, "File name too long")):
        with pytest.raises(InputNotFoundError) as caught:
            hpgcn.read_run(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: {reason}"


def test_a_closed_file_is_called_closed(tmp_path):
    hpgcn.save(graphs.make(20, 3, 2), tmp_path / "g.h5")
    stored = hpgcn.load(tmp_path / "g.h5")
    stored.close()
    for use in (hpgcn.train, hpgcn.propagation, lambda graph: graph.labels):
        with pytest.raises(UsageError, match=r"g\.h5: was closed; hpgcn\.load opens it again"):
            use(stored)


@pytest.mark.parametrize("H", ["text", np.ones((20, 2), complex), sp.csr_array((20, 2)),
                               np.ones((20, 2), object)])
def test_only_dense_real_numbers_are_propagated(H):
    with hpgcn.propagation(graphs.make(20, 3, 2)) as A:
        with pytest.raises(UsageError, match=r"H has dtype .*, expected a dense array of real"):
            A.forward(H)
        assert A.forward(np.ones((20, 2), bool)).shape == (20, 2)


def masked(values):
    """Return a masked array whose last value is masked."""
    values = np.ma.array(values)
    values[-1] = np.ma.masked
    return values


@pytest.mark.parametrize("field, arrays", [
    ("adjacency", {"A": masked(np.eye(3))}),
    ("features", {"X": masked(np.eye(3))}),
    ("labels", {"y": masked([0, 1, 7])}),
    ("labels", {"y": masked(["a", "b", "c"])}),
    ("train mask", {"y": [0, 1, 0], "masks": (masked([True, False, True]), [], [])}),
    ("original_ids", {"original_ids": masked([5, 6, 7])})])
def test_masked_values_are_not_read(field, arrays):
    with pytest.raises(DataError, match=f"graph: {field}: a masked array with .*filled"):
        hpgcn.Graph.from_scipy(**{"A": np.eye(3), **arrays})
    assert hpgcn.Graph.from_scipy(np.eye(3), y=np.ma.array([0, 1, 1])).labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize("value, message", [
    (2.0, r"edge_weight: shape \(\), expected \(3,\)"),
    ([1.0, 2.0], r"edge_weight: shape \(2,\), expected \(3,\)"),
    ([[1], [1, 2], [3]], None), ([1.0, 2.0, 3.0], None)])
def test_weights_of_edges_may_be_lists(value, message):
    options = {"name": "graph"}
    arrays = {"edge_weight": value, "tags": [[1], [1, 2]], "count": 3}
    if message:
        with pytest.raises(DataError, match=message):
            weights_of(arrays, options, 3, 3)
        return
    with pytest.warns(UserWarning, match="not used: tags$"):
        weights_of(arrays, options, 3, 3)
    assert options["edge_weight"] is value


def test_training_on_several_labels_warns_of_none_of_its_own():
    graph = graphs.several_labels(graphs.make(20, 3, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hpgcn.train(graph, hpgcn.Config(epochs=1, dtype="float64"))  # with kernels of other tests


def test_the_parser_imports_nothing_heavy_and_an_interrupt_in_it_is_one_line(monkeypatch, capsys):
    code = ("import sys; from hpgcn.cli.parser import parser; parser(); "
            "sys.exit(len({'numpy', 'scipy', 'numba', 'h5py'} & sys.modules.keys()))")
    subprocess.run([sys.executable, "-c", code], check=True)

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "parser", interrupted)
    assert command_line.main(["plan", "g.h5"]) == 130
    assert capsys.readouterr().err == "hpgcn: interrupted\n"


def test_a_run_that_cannot_be_begun_leaves_nothing(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)  # files that cannot grow, as on a full disk
    (tmp_path / "old").mkdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        for name in ("new", "old"):
            with pytest.raises(StorageError, match=r"config\.toml: writing failed: File too large"):
                hpgcn.train(graphs.make(20, 3, 2), hpgcn.Config(out=str(tmp_path / name)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.rglob("*")] == ["old"]


def test_going_on_with_other_settings_names_those_of_the_run(tmp_path):
    graph, out = graphs.make(20, 3, 2), str(tmp_path / "run")
    hpgcn.train(graph, hpgcn.Config(epochs=2, hidden=3, lr=0.5, out=out, checkpoint_every=1))
    given = {"epochs": 3}
    for field, value in (("hidden", 3), ("lr", 0.5)):
        with pytest.raises(ConfigError, match=rf"{field} is .*; continue with {field}={value}, or"):
            hpgcn.train(graph, hpgcn.Config(**given), resume=out)
        given[field] = value
    assert len(hpgcn.train(graph, hpgcn.Config(**given), resume=out).history) == 3


@pytest.mark.parametrize("field", ["name", "split", "source_sha256"])
def test_fields_of_text_are_text(field):
    with pytest.raises(UsageError, match=f"{field} is of type int, expected str"):
        hpgcn.Graph.from_scipy(np.eye(3), **{field: 3})

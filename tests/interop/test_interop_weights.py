"""Models of hpgcn in PyG, and of PyG in hpgcn: equal logits, and refusals."""
import re
import resource

import numpy as np
import pytest
from commands import refused, succeed
from graphs import make

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
pytest.importorskip("torch_geometric", reason="needs PyG: pip install torch-geometric")
import torch
import torch_geometric.nn as pyg
from torch.nn import BatchNorm1d, Linear, ReLU
from torch_geometric.data import Data

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import DataError, InputNotFoundError, StorageError, UsageError
from hpgcn.interop.torch import export_pyg, load_pyg, predict_pyg, save_state_dict

GRAPH = make(n=80, f=7, c=4)
GRAPHS = {4: GRAPH, 5: make(n=80, f=7, c=5)}  # by classes; other tests compile for the same heads
STACKS = {
    "gcn": {}, "gcn_three_layers_dropout": {"layers": 3, "dropout": 0.3, "input_dropout": 0.2},
    "gcn_batch": {"norm": "batch", "layers": 3}, "gcn_layer": {"norm": "layer"},
    "gcn_in": {"norm_adj": "in", "directed": True}, "gcn_gelu": {"activation": "gelu"},
    "gcn_linear_residual_jump": {"input_layer": True, "output_layer": True, "residual": True,
                                 "jump": "cat", "layers": 3},
    "gcn_residual_matrix": {"residual": True}, "gcn_max": {"output_layer": True, "jump": "max",
                                                           "layers": 3},
    "gcn_blocks": {"input_layer": True, "output_layer": True, "ffn": True, "residual": True,
                   "norm": "layer", "activation": "gelu"},
    "sage": {"model": "sage"}, "sage_directed": {"model": "sage", "directed": True},
    "gin": {"model": "gin", "layers": 3}, "gin_one": {"model": "gin", "layers": 1},
    "gat": {"model": "gat", "heads": 4, "hidden": 12, "classes": 5},
    "gat_one": pytest.param({"model": "gat", "heads": 4, "output_heads": 1, "layers": 3},
                            marks=pytest.mark.long),
    "sgc": {"model": "sgc", "hops": 3, "layers": 1}, "appnp": {"model": "appnp", "hops": 4},
}


def data_of(graph):
    A = graph.adjacency.tocoo()
    edges = torch.from_numpy(np.stack([A.col, A.row]).astype(np.int64))
    return Data(x=torch.from_numpy(graph.features), edge_index=edges, num_nodes=graph.num_rows)


def trained(settings, folder=None):
    settings = {"layers": 2, "hidden": 8, "epochs": 1, "dtype": "float64", **settings}
    graph = GRAPHS[settings.pop("classes", 4)]
    graph = make(n=80, f=7, c=4, directed=True) if settings.pop("directed", False) else graph
    out = str(folder / "run") if folder else ""
    return graph, hpgcn.train(graph, Config(out=out, **settings))


@pytest.mark.parametrize("settings", STACKS.values(), ids=STACKS)
def test_a_model_trained_here_gives_the_same_logits_in_pyg(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph, result = trained(settings)
    state, code = export_pyg(result)
    save_state_dict("model.pt", state)
    found = {}
    exec(code, found)
    data = data_of(graph)
    expected = hpgcn.predict(graph, result)["logits"]
    logits = found["model"](data.x, data.edge_index).detach().numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-6, rtol=1e-5)
    if not settings.keys() - {"model", "heads", "output_heads", "layers", "norm_adj", "directed",
                              "dropout", "input_dropout", "hidden", "classes"}:
        again = predict_pyg(graph, "model.pt")["logits"]
        np.testing.assert_allclose(again, expected, atol=1e-6, rtol=1e-5)


class Named(torch.nn.Module):
    """A PyG model with attributes conv1 and conv2, as in PyG's examples."""

    def __init__(self, first, second, norm=None, act=torch.relu):
        super().__init__()
        self.conv1, self.conv2 = first, second
        if norm is not None:
            self.bn = norm
        self.act = act

    def forward(self, x, edge_index):
        x = self.conv1(x, edge_index)
        x = self.bn(x) if hasattr(self, "bn") else x
        return self.conv2(self.act(x), edge_index)


def perceptron(*sizes, norm=False):
    first, inner, last = sizes
    between = [BatchNorm1d(inner)] if norm else []
    return torch.nn.Sequential(Linear(first, inner), *between, ReLU(), Linear(inner, last))


PYG = {
    "gcn": lambda: pyg.GCN(7, 8, 3, 4), "sage": lambda: pyg.GraphSAGE(7, 8, 2, 4),
    "gcn_batch": lambda: pyg.GCN(7, 8, 3, 4, norm="batch_norm"),
    "gin": lambda: pyg.GIN(7, 8, 3, 4), "gin_batch": lambda: pyg.GIN(7, 8, 2, 4, norm="batch_norm",
                                                                   train_eps=True),
    "gat": lambda: pyg.GAT(7, 12, 3, 5, heads=4, act="elu"),
    "gat_batch": lambda: pyg.GAT(7, 12, 2, 5, heads=4, act="elu", norm="batch_norm"),
    "named_gat": pytest.param(
        lambda: Named(pyg.GATConv(7, 4, heads=2), pyg.GATConv(8, 4, heads=1),
                      act=torch.nn.functional.elu), marks=pytest.mark.long),
    "named_without_bias": lambda: Named(pyg.GCNConv(7, 8, bias=False), pyg.GCNConv(8, 4)),
    "named_gin": lambda: Named(pyg.GINConv(perceptron(7, 8, 8, norm=True), eps=0.5),
                               pyg.GINConv(perceptron(8, 6, 4))),
    "named_sage": lambda: Named(pyg.SAGEConv(7, 8), pyg.SAGEConv(8, 4), BatchNorm1d(8)),
    "sgc": lambda: pyg.SGConv(7, 4, K=2),
    "float32": lambda: Single(7, 8, 2, 4),
}


class Single(pyg.GCN):
    """A PyG GCN that stays in float32 when the model is converted to float64."""

    def double(self):
        return self



def of_pyg(make_model):
    """Return a PyG model with running statistics, in evaluation mode, and its logits."""
    torch.manual_seed(1)
    model = make_model().double()
    data = data_of(GRAPH)
    x = data.x.to(next(model.parameters()).dtype)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(torch.randn_like(each) * 0.1)
        model.train()
        for _ in range(3):
            model(x + torch.randn_like(x), data.edge_index)
        model.eval()
        return model, model(x, data.edge_index).numpy()


@pytest.mark.parametrize("make_model", PYG.values(), ids=PYG)
def test_a_model_of_pyg_gives_the_same_logits_here(make_model, tmp_path):
    model, expected = of_pyg(make_model)
    torch.save({"state_dict": model.state_dict()}, tmp_path / "model.pt")
    found = predict_pyg(GRAPHS[expected.shape[1]], tmp_path / "model.pt")
    exact = expected.dtype == np.float64
    np.testing.assert_allclose(found["logits"], expected, atol=1e-12 if exact else 2e-6, rtol=1e-5)
    np.testing.assert_array_equal(found["label"], expected.argmax(1))


def test_gcn_of_pyg_on_a_directed_graph():
    graph = make(n=80, f=7, c=4, directed=True, weighted=True)
    torch.manual_seed(0)
    model = pyg.GCN(7, 8, 2, 4).eval()
    data = data_of(graph)
    weights = torch.from_numpy(graph.adjacency.tocoo().data)
    expected = model(data.x, data.edge_index, edge_weight=weights).detach().numpy()
    np.testing.assert_allclose(predict_pyg(graph, model.state_dict())["logits"], expected,
                               atol=1e-6)


def test_weights_go_into_models_with_other_names():
    graph, result = trained({"model": "gin"})
    state, _ = export_pyg(result)
    model = Named(pyg.GINConv(perceptron(7, 8, 8), train_eps=True),
                  pyg.GINConv(perceptron(8, 8, 4), train_eps=True)).eval()
    assert load_pyg(model, state) is model
    data = data_of(graph)
    np.testing.assert_allclose(model(data.x, data.edge_index).detach().numpy(),
                               hpgcn.predict(graph, result)["logits"], atol=1e-5)
    other = Named(pyg.GINConv(perceptron(7, 9, 8), train_eps=True),
                  pyg.GINConv(perceptron(8, 8, 4), train_eps=True))
    with pytest.raises(UsageError, match=r"conv0.nn.0.weight has shape \(8, 7\), "
                                         r"but conv1.nn.0.weight of the model has \(9, 7\)"):
        load_pyg(other, state)
    with pytest.raises(UsageError, match=r"GINConv 1 has .* only in the state_dict: the"):
        load_pyg(torch.nn.ModuleList([pyg.GINConv(perceptron(7, 8, 8), train_eps=True)]), state)


def state(**changed):
    found = {**pyg.GCN(7, 8, 2, 4).state_dict(), **changed}
    return {key: tensor for key, tensor in found.items() if tensor is not None}


@pytest.mark.parametrize("given, said", [
    ({}, "is of type dict"),
    ({"a.weight": 3}, "a.weight is not a dense tensor"),
    (pyg.GATv2Conv(7, 4).state_dict(), "att belongs to an unsupported layer, expected GCNConv"),
    (pyg.ChebConv(7, 4, 2).state_dict(), r"(bias|lins.0.weight) belongs to an unsupported layer"),
    (torch.nn.Linear(7, 4).state_dict(), "weight belongs to an unsupported layer"),
    ({**pyg.GCN(7, 8, 2, 4).state_dict(), "lin.weight": torch.ones(4, 4), "lin.bias":
      torch.ones(4)}, "layers of kinds: GCNConv and SGConv; expected one kind"),
    (pyg.GCN(7, 8, 2, 4, norm="layer_norm").state_dict(), "weight belongs to an unsupported layer"),
    (state(**{"convs.0.bias": torch.ones(3)}), "convs.0.bias has 3 numbers, expected 8"),
    (state(**{"convs.1.lin.weight": torch.ones(4, 9)}), r"weights/W0 has shape \(7, 8\), "),
    (state(**{"convs.1.lin.weight": torch.full((4, 8), torch.nan)}),
     r"convs.1.lin.weight\[0, 0\] is nan, expected a finite number"),
    (state(**{"convs.1.lin.weight": torch.ones(4)}), "has shape .*, expected 2 dimensions"),
    (pyg.SAGEConv(7, 4, project=True).state_dict(), "lin.bias is not expected in a SAGEConv"),
    (pyg.GATConv(7, 4, heads=2).state_dict(), "expected heads that are averaged in the last layer"),
    (pyg.GIN(7, 8, 2, 9).state_dict(), "has 9 inner units, expected at most 8"),
    (pyg.GINConv(Linear(7, 4)).state_dict(), "has no nn.1.weight, expected two linear maps"),
], ids=lambda value: re.sub(r"\W+", "_", value) if isinstance(value, str) else "given")
def test_state_dicts_that_are_refused(given, said):
    with pytest.raises(DataError, match=said) as caught:
        predict_pyg(GRAPH, given)
    assert "\n" not in str(caught.value)


def test_files_that_are_refused(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"nothing.pt: no such file"):
        predict_pyg(GRAPH, tmp_path / "nothing.pt")
    path = tmp_path / "model.pt"
    torch.save(pyg.GCN(7, 8, 2, 4), path)  # a pickled object: loading it would run code
    with pytest.raises(DataError, match=r"not a file with only tensors .* save it with torch.save"):
        predict_pyg(GRAPH, path)
    for content in (b"", b"PK\x03\x04 nonsense", path.read_bytes()[:200]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="not a file with only tensors"):
            predict_pyg(GRAPH, path)
    with pytest.raises(DataError, match="has edge weights, which the layers of"):
        predict_pyg(make(n=80, f=7, weighted=True), pyg.GraphSAGE(7, 8, 2, 4).state_dict())
    with pytest.raises(DataError, match="7 features, but the model was trained on 9"):
        predict_pyg(GRAPH, pyg.GCN(9, 8, 2, 4).state_dict())


@pytest.mark.parametrize("settings, said", [
    ({"norm_adj": "none"}, "PyG's layer normalizes by in-degrees"),
    ({"model": "sage", "aggregator": "gcn"}, "model sage-gcn: PyG has no equivalent layer")])
def test_models_that_pyg_lacks_are_refused(settings, said):
    with pytest.raises(UsageError, match=said):
        export_pyg(trained(settings)[1])


@pytest.mark.long
def test_by_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    graph, _ = trained({}, tmp_path)
    hpgcn.save(graph, "g.h5")
    shown = succeed("export", "run", "model.pt", "--to", "pyg")
    assert 'torch.load("model.pt", weights_only=True)' in shown
    assert len(list(filter(None, shown.split("\n")))) <= 16
    found = {}
    exec(shown, found)
    data = data_of(graph)
    expected = found["model"](data.x, data.edge_index).detach().numpy()
    assert "exists already" in refused(73, "export", "run", "model.pt", "--to", "pyg")
    succeed("predict", "model.pt", "g.h5", "--from", "pyg", "-o", "p.h5")
    logits = hpgcn.store.read_predictions("p.h5")[0]["logits"]
    np.testing.assert_allclose(logits, expected, atol=1e-6)
    found = hpgcn.run_on_ranks(lambda comm: predict_pyg("g.h5", "model.pt", comm), 3)[0]
    np.testing.assert_allclose(found["logits"], expected, atol=1e-6)
    assert "name the graph" in refused(2, "predict", "model.pt", "--from", "pyg")
    assert "a run has its own" in refused(2, "predict", "run", "g.h5", "--activation", "elu")
    assert "no such file" in refused(66, "predict", "no.pt", "g.h5", "--from", "pyg")


def test_what_is_no_model_is_refused_by_its_type():
    graph = make(20, 3, 2)
    for value in (None, 3, ["model.pt"]):
        with pytest.raises(UsageError, match=f"model is of type {type(value).__name__}, expected"):
            predict_pyg(graph, value)
        with pytest.raises(UsageError, match=r"expected a torch\.nn\.Module and a state_dict"):
            load_pyg(value, {})
        with pytest.raises(UsageError, match=r"expected a torch\.nn\.Module and a state_dict"):
            load_pyg(Linear(2, 2), value)


def test_a_full_disk_is_no_internal_error(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)  # a file that cannot grow, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"model\.pt: writing failed: File too large"):
            save_state_dict(tmp_path / "model.pt", {"weight": torch.ones(100)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())

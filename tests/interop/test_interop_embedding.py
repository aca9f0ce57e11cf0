"""Learned rows against torch.nn.Embedding before GCNConv: losses, rows, metrics, export."""
import numpy as np
import pytest
from graphs import make, several_labels

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
pytest.importorskip("torch_geometric", reason="needs PyG: pip install torch-geometric")
import torch
from gcn_layers import two_layers

import hpgcn
from hpgcn.config import Config
from hpgcn.graphs.graph import Graph
from hpgcn.interop.torch import export_pyg

EPOCHS, LR = 5, 0.02


class Net(torch.nn.Module):
    """torch.nn.Embedding, to the right of features if there are any, and two layers GCNConv."""

    def __init__(self, weights):
        super().__init__()
        self.embedding = torch.nn.Embedding(*weights["embedding"].shape).double()
        self.layers = two_layers(weights)
        with torch.no_grad():
            self.embedding.weight[:] = torch.from_numpy(weights["embedding"])

    def forward(self, x, edge_index):
        rows = self.embedding.weight
        hidden = rows if x is None else torch.cat([x.double(), rows], 1)
        return self.layers[1](self.layers[0](hidden, edge_index).relu(), edge_index)


def of_kind(kind):
    graph = make(n=120, train=20 if kind == "pruned" else None, degree=3, sparse=kind == "sparse")
    if kind == "several labels":
        graph = several_labels(graph)
    if kind in ("alone", "several labels"):
        A, _, y, masks = graph.to_scipy()
        graph = Graph.from_scipy(A, None, y, masks, classes=True)
    return graph


@pytest.mark.parametrize("kind", ["alone", "beside features", "sparse", "pruned", "several labels"])
@pytest.mark.parametrize("strategy", ["p2p", "cover", "vertex-cut", "2d", "mop"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_steps_of_torch(ranks, strategy, kind):
    graph = of_kind(kind)
    config = Config(hidden=8, dropout=0.0, dtype="float64", lr=LR, weight_decay=0.0, epochs=EPOCHS,
                    strategy=strategy, embedding=6, norm_adj="in")
    result = hpgcn.train(graph, config, ranks=ranks)

    # the same steps in PyTorch, from the same weights
    net = Net(hpgcn.train(graph, config.replace(lr=0.0, epochs=1)).weights)
    data = hpgcn.to_pyg(graph)
    if kind == "sparse":
        data.x = data.x.to_dense()
    loss_of = torch.nn.functional.cross_entropy
    if kind == "several labels":
        loss_of = torch.nn.functional.binary_cross_entropy_with_logits
        data.y = data.y.double()
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    rows = []
    for entry in result.history:
        optimizer.zero_grad()
        logits = net(data.x, data.edge_index)
        loss = loss_of(logits[data.train_mask], data.y[data.train_mask])
        np.testing.assert_allclose(entry["loss"], loss.item(), rtol=1e-10)
        loss.backward()
        optimizer.step()
        rows.append(net.embedding.weight.detach().numpy().copy())
    np.testing.assert_allclose(result.weights["embedding"], rows[result["best_epoch"] - 1],
                               rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["alone", "beside features"])
def test_export(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    graph = of_kind(kind)
    result = hpgcn.train(graph, Config(hidden=8, dtype="float64", epochs=2, embedding=6,
                                       norm_adj="in"))
    state, code = export_pyg(result)
    torch.save(state, "model.pt")
    names = {}
    exec(code, names)
    model, data = names["model"].double(), hpgcn.to_pyg(graph)
    model.load_state_dict(state)
    logits = model(None if data.x is None else data.x.double(), data.edge_index)
    np.testing.assert_allclose(logits.detach(), hpgcn.predict(graph, result)["logits"], rtol=1e-8,
                               atol=1e-12)

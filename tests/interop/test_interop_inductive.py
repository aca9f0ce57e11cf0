"""Inductive training against PyG: GCNConv on the subgraph of training vertices."""
import numpy as np
import pytest
from graphs import make

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
pytest.importorskip("torch_geometric", reason="needs PyG: pip install torch-geometric")
import torch
from gcn_layers import two_layers

import hpgcn
from hpgcn.config import Config

EPOCHS, LR = 4, 0.02


class Net(torch.nn.Module):
    """Two layers GCNConv, with the weights of a run of no steps."""

    def __init__(self, weights):
        super().__init__()
        self.layers = two_layers(weights)

    def forward(self, data):
        hidden = self.layers[0](data.x.double(), data.edge_index).relu()
        return self.layers[1](hidden, data.edge_index)


@pytest.mark.parametrize("masks", ["train", "train+val"])
@pytest.mark.parametrize("strategy", ["p2p", "cover", "vertex-cut", "2d", "mop"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_losses_and_metrics_of_pyg(ranks, strategy, masks):
    graph = make(n=120)
    config = Config(hidden=8, dropout=0.0, dtype="float64", lr=LR, weight_decay=0.0, epochs=EPOCHS,
                    strategy=strategy, training_graph=masks, norm_adj="in")
    result = hpgcn.train(graph, config, ranks=ranks)

    # the same steps in PyG, from the same weights
    initial = hpgcn.train(graph, config.replace(lr=0.0, epochs=1)).weights
    data = hpgcn.to_pyg(graph)
    inner = data.subgraph(data.train_mask if masks == "train" else data.train_mask | data.val_mask)
    net = Net(initial)
    optimizer = torch.optim.Adam(net.parameters(), lr=LR)
    for entry in result.history:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            net(inner)[inner.train_mask], inner.y[inner.train_mask])
        np.testing.assert_allclose(entry["loss"], loss.item(), rtol=1e-10)
        loss.backward()
        optimizer.step()

        # evaluation reads the whole graph
        with torch.no_grad():
            logits = net(data)
        expected = torch.nn.functional.cross_entropy(logits[data.val_mask], data.y[data.val_mask])
        np.testing.assert_allclose(entry["val_loss"], expected.item(), rtol=1e-8)

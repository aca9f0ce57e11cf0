"""Layers of PyG with the weights of a run, as references."""
import torch
from torch_geometric.nn import GCNConv


def two_layers(weights):
    """Return a ModuleList of two GCNConv in float64, with the arrays W0, b0, W1 and b1."""
    layers = torch.nn.ModuleList(GCNConv(*weights[name].shape).double() for name in ("W0", "W1"))
    with torch.no_grad():
        for number, layer in enumerate(layers):
            layer.lin.weight[:] = torch.from_numpy(weights[f"W{number}"].T)
            layer.bias[:] = torch.from_numpy(weights[f"b{number}"])
    return layers

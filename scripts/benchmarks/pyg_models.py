"""Training steps of models of PyG's layers, on a matrix in each form that PyG takes.

csr : a torch.sparse_csr tensor, for GCN and APPNP normalized once.
edge_index : pairs of vertices; layers cache the normalization where they can.
"""

import time
import warnings
from itertools import pairwise

import numpy as np
import torch
from torch.nn import Linear, ReLU, Sequential, functional
from torch_geometric import nn

CSR, PAIRS = "csr", "edge_index"
HEADS = 4


def convolution(name, fan_in, fan_out, form, last):
    """Return PyG's layer of a model of hpgcn; None if PyG has none."""
    if name == "gcn":
        return nn.GCNConv(fan_in, fan_out, normalize=form == PAIRS, cached=form == PAIRS)
    if name == "sage-mean":
        return nn.SAGEConv(fan_in, fan_out)
    if name in ("gin", "gine"):
        inner = Sequential(Linear(fan_in, fan_out), ReLU(), Linear(fan_out, fan_out))
        return nn.GINConv(inner) if name == "gin" else nn.GINEConv(inner, edge_dim=EDGE_WIDTH)
    if name == "gat":
        heads = 1 if last else HEADS
        return nn.GATConv(fan_in, fan_out // heads, heads, add_self_loops=False)
    return None


EDGE_WIDTH = 8  # features of an edge, for gine


class Stack(torch.nn.Module):
    """Layers of one model, with dropout .5 before linear maps and ReLU between them."""

    def __init__(self, name, widths, form):
        super().__init__()
        pairs = list(pairwise(widths))
        if name == "sgc":
            layers = [nn.SGConv(widths[0], widths[-1], K=2, cached=True)]
        elif name == "appnp":
            layers = [*(Linear(*pair) for pair in pairs),
                      nn.APPNP(10, 0.1, normalize=form == PAIRS, cached=form == PAIRS)]
        else:
            layers = [convolution(name, *pair, form, pair is pairs[-1]) for pair in pairs]
        self.layers = torch.nn.ModuleList(layers)
        self.cached = name == "sgc"  # it stores A^K X, so X is not dropped

    def forward(self, x, *edges):
        for number, layer in enumerate(self.layers):
            if not (self.cached or isinstance(layer, nn.APPNP)):
                x = functional.dropout(x, 0.5)
            x = layer(x, *edges) if isinstance(layer, nn.MessagePassing) else layer(x)
            if number == 0 and len(self.layers) > 1:
                x = x.relu()
        return x


def edges_of(name, form, A, graph, put):
    """Return the arguments of layers that describe the edges; None if they take no such form.

    `A` is A-hat as of `benchmark_graphs.normalized`. Loops are in A-hat only.
    """
    looped = name in ("gcn", "appnp", "gat") if form == CSR else name == "gat"
    indptr, indices = (A.indptr, A.indices) if looped else (graph.indptr, graph.indices)
    if form == CSR:
        if name == "gine":
            return None
        weighted = looped and name != "gat"
        values = A.values if weighted else np.ones(indices.size, np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that CSR tensors are in beta
            return torch.sparse_csr_tensor(put(indptr.astype(np.int64)),
                                           put(indices.astype(np.int64)), put(values),
                                           size=2 * (indptr.size - 1,)),
    owner = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    pairs = put(np.stack([indices.astype(np.int64), owner]))
    return (pairs, put(graph.edge_features)) if name == "gine" else (pairs,)


def step_ms(name, form, A, graph, widths, dtype, device, repeats):
    """Return the median milliseconds of a training step; None if PyG has no such layers."""
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32

    def put(array):
        tensor = torch.from_numpy(np.ascontiguousarray(array)).to(device)
        return tensor.to(kind) if tensor.is_floating_point() else tensor

    edges = edges_of(name, form, A, graph, put)
    if edges is None or (name not in ("sgc", "appnp") and
                         convolution(name, 1, HEADS, form, True) is None):
        return None
    x, y = put(graph.features), put(graph.labels.astype(np.int64))
    model = Stack(name, widths, form).to(device, kind)
    optimizer = torch.optim.Adam(model.parameters())
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    seconds = []
    for _ in range(2 + repeats):  # the first ones normalize, compile and choose
        wait()
        begin = time.perf_counter()
        optimizer.zero_grad()
        functional.cross_entropy(model(x, *edges).float(), y).backward()
        optimizer.step()
        wait()
        seconds.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(seconds[2:]))

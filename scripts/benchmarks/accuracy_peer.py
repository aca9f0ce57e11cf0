"""Training of a PyG GCN in one process, for the benchmark `accuracy`.

It trains by full batch and in batches.

A script for any Python with torch and torch_geometric, which need not be that of hpgcn:

    python accuracy_peer.py FOLDER

reads FOLDER/settings.json and arrays, as `benchmarks.accuracy.hand_over` writes them, and prints
one JSON object: setup_s, steps, history (epoch_s, val_acc, test_acc of each epoch), sampler,
peak_rss_bytes.
Layers are GCNConv, with dropout before each and ReLU between. Batches:

full : all training vertices; A-hat is a torch.sparse_csr tensor.
parts : what the vertices of some parts induce, normalized within the batch, as after ClusterLoader.
neighbors : NeighborLoader where pyg-lib or torch-sparse brings its sampler, else `Fans`, which
    draws likewise by operations of torch. Entries are those of the whole A-hat times degree over
    draws. Rows that a layer's result does not depend on are left out where the sampler tells hops.

A thread makes a batch while the one before trains, as in hpgcn.
"""

import json
import resource
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from torch_geometric.nn import GCNConv


def main(folder):
    settings = json.loads((folder / "settings.json").read_text())
    torch.set_num_threads(settings["threads"])
    torch.manual_seed(settings["seed"])
    warnings.simplefilter("ignore")  # that CSR tensors are in beta, NeighborLoader without pyg-lib
    begin = time.perf_counter()
    graph = Graph(folder)
    batches = BATCHES[settings["batch"]["name"]](graph, **settings["batch"]["options"])
    model = Model(graph, settings)
    for batch in ahead(batches):  # what is made at the first call
        batch.step(model, update=False)
        break
    setup = time.perf_counter() - begin

    history = []
    seconds = 0.0
    since = best = 0.0
    for epoch in range(1, settings["epochs"] + 1):
        begin = time.perf_counter()
        for batch in ahead(batches):
            batch.step(model)
        line = {"epoch_s": time.perf_counter() - begin, "val_acc": None, "test_acc": None}
        history.append(line)
        seconds += line["epoch_s"]
        last = epoch == settings["epochs"] or 0 < settings["seconds"] <= seconds
        if last or (settings["eval_every"] and epoch % settings["eval_every"] == 0):
            line["val_acc"], line["test_acc"] = model.accuracies(graph)
            since, best = (epoch, line["val_acc"]) if line["val_acc"] > best else (since, best)
        if last or (settings["patience"] and epoch - since >= settings["patience"]):
            break
    return {"setup_s": setup, "steps": batches.steps, "history": history,
            "sampler": type(batches).__name__,
            "peak_rss_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def ahead(batches):
    """Yield batches; while one is used for training, a thread prepares the next."""
    with ThreadPoolExecutor(1) as thread:
        made = iter(batches)
        coming = thread.submit(next, made, None)
        while (batch := coming.result()) is not None:
            coming = thread.submit(next, made, None)
            yield batch


class Graph:
    """An undirected graph: CSR without the diagonal, features, labels, masks and A-hat."""

    def __init__(self, folder):
        def read(name):
            return torch.from_numpy(np.load(folder / f"{name}.npy"))

        self.indptr, self.indices = read("indptr"), read("indices")
        self.x, self.y = read("x"), read("y")
        self.train, self.val, self.test = (read(name) for name in ("train", "val", "test"))
        self.part = read("part") if (folder / "part.npy").exists() else None
        self.n = self.indptr.numel() - 1
        self.degree = self.indptr.diff()
        self.scale = (self.degree + 1.0) ** -0.5
        self.found = torch.full((self.n,), -1)  # place of a vertex in a batch, while it is made

    def all_of(self, rows):
        """Return (position in `rows`, column) of each entry of these rows."""
        degree = self.degree[rows]
        owner = torch.repeat_interleave(torch.arange(rows.numel()), degree)
        begin = self.indptr[rows] - degree.cumsum(0) + degree
        return owner, self.indices[begin[owner] + torch.arange(owner.numel())]

    def normalized(self):
        """Return A-hat as a torch.sparse_csr tensor."""
        rows = torch.arange(self.n)
        owner, column = self.all_of(rows)
        owner, column = torch.cat([owner, rows]), torch.cat([column, rows])
        values = self.scale[owner] * self.scale[column]
        return torch.sparse_coo_tensor(torch.stack([owner, column]), values,
                                       (self.n, self.n)).coalesce().to_sparse_csr()


class Model(torch.nn.Module):
    """A stack of GCNConv layers with their Adam optimizer."""

    def __init__(self, graph, settings):
        super().__init__()
        widths = [graph.x.shape[1], *settings["hidden"], int(graph.y.max()) + 1]
        self.renormalize = settings["batch"]["name"] == "parts"
        self.layers = torch.nn.ModuleList(
            GCNConv(*pair, normalize=self.renormalize) for pair in pairwise(widths))
        self.dropouts = settings["dropouts"]
        weights = [layer.lin.weight for layer in self.layers]
        decayed = weights if settings["decay_layers"] == "all" else weights[:1]
        others = [p for p in self.parameters() if all(p is not q for q in decayed)]
        self.optimizer = torch.optim.Adam(
            [{"params": decayed, "weight_decay": settings["weight_decay"]}, {"params": others}],
            lr=settings["lr"])
        self.whole = graph.normalized()

    def forward(self, x, hops):
        """Apply all layers.

        `hops` has for each layer its edges, (edge_index, weights) or (adjacency,), and
        the number of result rows.
        """
        for number, (layer, dropout, (edges, rows)) in enumerate(
                zip(self.layers, self.dropouts, hops)):
            x = layer(functional.dropout(x, dropout, self.training), *edges)[:rows]
            x = x.relu() if number + 1 < len(self.layers) else x
        return x

    def step(self, x, hops, chosen, y, update=True):
        self.train()
        self.optimizer.zero_grad()
        functional.cross_entropy(self(x, hops)[chosen], y).backward()
        if update:
            self.optimizer.step()

    @torch.no_grad()
    def accuracies(self, graph):
        self.eval()
        normalize = [(layer, layer.normalize) for layer in self.layers]
        for layer in self.layers:
            layer.normalize = False
        right = self(graph.x, [((self.whole,), graph.n)] * len(self.layers)).argmax(1) == graph.y
        for layer, was in normalize:
            layer.normalize = was
        return [right[mask].float().mean().item() for mask in (graph.val, graph.test)]


class Batch:
    """Input of a training step.

    Features, hops as in `Model.forward`, rows of the loss, and their labels.
    """

    def __init__(self, x, hops, chosen, y):
        self.given = x, hops, chosen, y

    def step(self, model, update=True):
        model.step(*self.given, update=update)


class Full:
    """Batches for full-batch training: a single one with all vertices."""

    steps = 1

    def __init__(self, graph, layers):
        self.graph, self.layers = graph, layers
        self.hops = [((graph.normalized(),), graph.n)] * layers

    def __iter__(self):
        graph = self.graph
        yield Batch(graph.x, self.hops, graph.train, graph.y[graph.train])


class Parts:
    """Batches that are the subgraphs induced by the vertices of `size` random parts."""

    def __init__(self, graph, layers, size):
        self.graph, self.layers, self.size = graph, layers, size
        order = graph.part.argsort()
        self.members = order.split(graph.part.bincount().tolist())
        self.steps = -(-len(self.members) // size)

    def __iter__(self):
        graph = self.graph
        for drawn in torch.randperm(len(self.members)).tensor_split(self.steps):
            rows = torch.cat([self.members[part] for part in drawn])
            owner, column = graph.all_of(rows)
            graph.found[rows] = torch.arange(rows.numel())
            column = graph.found[column]
            graph.found[rows] = -1
            edges = torch.stack([column, owner])[:, column >= 0]
            train = graph.train[rows]
            if train.any():
                yield Batch(graph.x[rows], [((edges,), rows.numel())] * self.layers, train,
                            graph.y[rows[train]])


class Fans:
    """Batches of random training vertices and of random neighbors.

    Neighbors are drawn hop by hop, of the vertices of the hop before.

    They are drawn without replacement, like those of NeighborLoader with subgraph_type
    "directional".
    """

    def __init__(self, graph, layers, size, fan_outs):
        self.graph, self.layers, self.size, self.fan_outs = graph, layers, size, fan_outs
        self.seeds = graph.train.nonzero()[:, 0]
        self.steps = -(-self.seeds.numel() // size)

    def __iter__(self):
        order = self.seeds[torch.randperm(self.seeds.numel())]
        for seeds in order.tensor_split(self.steps):
            yield self.batch(seeds)

    def batch(self, seeds):
        graph = self.graph
        nodes, new = [seeds], seeds
        edges = []
        graph.found[seeds] = torch.arange(seeds.numel())
        count = seeds.numel()
        for fan_out in self.fan_outs:
            owner, column = drawn(graph, new, fan_out)
            rows = new
            new = column[graph.found[column] < 0].unique()
            graph.found[new] = count + torch.arange(new.numel())
            count += new.numel()
            nodes.append(new)
            edges.append(torch.stack([graph.found[column], graph.found[rows[owner]]]))
        places = torch.cat(nodes)
        graph.found[places] = -1
        return fan(graph, places, edges, [hop.numel() for hop in nodes], seeds.numel(),
                   self.layers)


class Loader(Fans):
    """The batches of `Fans`, drawn by PyG's NeighborLoader."""

    def __init__(self, graph, layers, size, fan_outs):
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader

        super().__init__(graph, layers, size, fan_outs)
        owner, column = graph.all_of(torch.arange(graph.n))
        data = Data(edge_index=torch.stack([column, owner]), num_nodes=graph.n)
        even = -(-self.seeds.numel() // self.steps)
        self.loader = NeighborLoader(data, fan_outs, self.seeds, batch_size=even, shuffle=True)

    def __iter__(self):
        for found in self.loader:
            counts = getattr(found, "num_sampled_nodes", None)
            edges = [found.edge_index]
            if counts is None:
                counts = [found.num_nodes]
            else:
                edges = found.edge_index.split(list(found.num_sampled_edges), 1)
            yield fan(self.graph, found.n_id, edges, list(counts), found.batch_size, self.layers)


def drawn(graph, rows, fan_out):
    """Draw `fan_out` entries of each row without replacement.

    Source: Floyd's algorithm, for all rows at once.

    Return (position in `rows`, column) of each entry. Source: Bentley and Floyd 1987.
    """
    if fan_out < 0:
        return graph.all_of(rows)
    degree = graph.degree[rows]
    few = degree <= fan_out
    owner, column = graph.all_of(rows[few])
    owner = few.nonzero()[:, 0][owner]
    many = (~few).nonzero()[:, 0]
    degree = degree[many]
    chosen = torch.full((many.numel(), fan_out), -1)
    for number in range(fan_out):
        top = degree - fan_out + number
        draw = (torch.rand(top.numel(), dtype=torch.float64) * (top + 1)).long()
        taken = (chosen == draw[:, None]).any(1)
        chosen[:, number] = torch.where(taken, top, draw)
    columns = graph.indices[graph.indptr[rows[many]][:, None] + chosen]
    return (torch.cat([owner, many.repeat_interleave(fan_out)]),
            torch.cat([column, columns.flatten()]))


def fan(graph, places, edges, counts, seeds, layers):
    """Return a Batch of the vertices `places`.

    It follows from the edges (source, target) and the count of each hop.

    A sampler that does not separate hops gives one list of edges and one count.
    """
    known = len(counts) > 1
    ends = np.cumsum(counts).tolist()
    scale = graph.scale[places]
    degree = graph.degree[places]
    blocks = []
    for hop, block in enumerate(edges):
        source, target = block
        factor = degree / target.bincount(minlength=places.numel()).clamp(min=1)
        own = torch.arange(ends[hop - 1] if known and hop else 0, ends[hop])
        weights = torch.cat([scale[source] * scale[target] * factor[target], scale[own] ** 2])
        blocks.append((torch.cat([block, own.expand(2, -1)], 1), weights))
    hops = []
    for number in range(layers):
        used = blocks[:layers - number] if known else blocks
        hops.append(((torch.cat([block for block, _ in used], 1),
                      torch.cat([weights for _, weights in used])),
                     ends[layers - number - 1] if known else places.numel()))
    return Batch(graph.x[places], hops, slice(seeds), graph.y[places[:seeds]])


def neighbors(graph, **options):
    """Return a Loader if a sampler for PyG is installed, else Fans."""
    from torch_geometric import typing

    installed = typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE
    return (Loader if installed else Fans)(graph, **options)


BATCHES = {"full": Full, "parts": Parts, "neighbors": neighbors}

if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))

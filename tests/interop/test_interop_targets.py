"""Targets against PyG: its Data, losses and gradients of GCNConv on ranks, and its scores."""
import numpy as np
import pytest
from graphs import make, scattered, with_targets
from training import loss_and_gradient, start

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
pytest.importorskip("torch_geometric", reason="needs PyG: pip install torch-geometric")
import torch
from torch_geometric.nn import GCNConv

import hpgcn
from hpgcn.comm import as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError
from hpgcn.interop.torch import export_pyg

FUNCTIONS = {"mse": torch.nn.functional.mse_loss, "mae": torch.nn.functional.l1_loss,
             "huber": torch.nn.functional.huber_loss}
EXACT = Config(dtype="float64", dropout=0.0, input_dropout=0.0, hidden=6)
GRAPH = with_targets(make(n=90, f=7), 3)


class Net(torch.nn.Module):
    """Two GCNConv with ReLU."""

    def __init__(self, fan_in, hidden, fan_out):
        super().__init__()
        self.conv0, self.conv1 = GCNConv(fan_in, hidden), GCNConv(hidden, fan_out)

    def forward(self, x, edge_index):
        return self.conv1(torch.relu(self.conv0(x, edge_index)), edge_index)


def test_data_of_pyg(tmp_path):
    data = hpgcn.to_pyg(GRAPH)
    assert data.y.dtype == torch.float64 and data.target_names == ["t0", "t1", "t2"]
    again = hpgcn.from_pyg(data, task="regression")
    np.testing.assert_array_equal(again.targets, GRAPH.targets)
    assert again.target_names == GRAPH.target_names and again.labels is None
    data.y = data.y[:, 0].float()
    with pytest.raises(DataError, match="in from_pyg: task='regression'"):
        hpgcn.from_pyg(data)
    with pytest.raises(UsageError, match="task = 'x': expected classification or regression"):
        hpgcn.from_pyg(data, task="x")
    del data.target_names
    assert hpgcn.from_pyg(data, task="regression").header.num_targets == 1
    replaced = hpgcn.from_pyg(data, targets=np.ones(90))
    assert replaced.targets.min() == 1

    # the same file by hpgcn convert
    from hpgcn.datasets.convert import read

    torch.save(data, tmp_path / "g.pt")
    graph, notes = read(tmp_path / "g.pt", targets="y")
    np.testing.assert_array_equal(graph.targets[:, 0], data.y.numpy())
    assert graph.target_names == ("y",) and "targets: y" in notes


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("loss", FUNCTIONS)
@pytest.mark.parametrize("strategy", ["p2p", "2d", "mop"])
def test_losses_and_gradients_of_gcn_conv(ranks, loss, strategy):
    config = EXACT.replace(loss=loss, strategy=strategy, seed=4)

    def ours(mpi):
        comm = as_comm(mpi)
        with start(scattered(GRAPH, comm), config, comm) as trainer:
            arrays = trainer.parameters.arrays
            weights = {name: array.copy() for name, array in arrays.items()}
            total, gradient = loss_and_gradient(trainer)
            scale = trainer.plan.targets
            return comm.sum([total])[0], weights, gradient.copy(), scale

    total, weights, gradient, scale = run_on_ranks(ours, ranks)[0]
    net, data = Net(7, 6, 3).double(), hpgcn.to_pyg(GRAPH)
    parameters = {f"{kind}{k}": getattr(net, f"conv{k}") for kind in "Wb" for k in range(2)}
    parameters = {name: conv.lin.weight if name[0] == "W" else conv.bias
                  for name, conv in parameters.items()}
    with torch.no_grad():
        for name, array in weights.items():
            parameters[name].copy_(torch.from_numpy(array.T))

    # the loss of PyTorch, over the known targets of training vertices
    y = (data.y - torch.from_numpy(scale.mean)) / torch.from_numpy(scale.deviation)
    known = data.train_mask[:, None] & ~y.isnan()
    value = FUNCTIONS[loss](net(data.x.double(), data.edge_index)[known], y[known])
    value.backward()
    assert total == pytest.approx(value.item(), rel=1e-10)
    theirs = np.concatenate([parameters[name].grad.numpy().T.ravel() for name in weights])
    np.testing.assert_allclose(gradient, theirs, rtol=1e-10, atol=1e-12)


def test_exported_models_have_the_scale():
    result = hpgcn.train(GRAPH, EXACT.replace(epochs=3))
    state, code = export_pyg(result)
    names = {"state": state}
    exec("\n".join(line for line in code.splitlines() if "load_state_dict" not in line), names)
    model, data = names["model"].double(), hpgcn.to_pyg(GRAPH)
    model.load_state_dict(state)
    outputs = model(data.x.double(), data.edge_index).detach()
    values = outputs * names["target_deviation"] + names["target_mean"]
    np.testing.assert_allclose(values, hpgcn.predict(GRAPH, result)["value"], rtol=1e-6)


def sensors(n=600, seed=0):
    """Return a graph of sensors: near ones are neighbors, and the speed is smooth in space."""
    rng = np.random.default_rng(seed)
    place = rng.random((n, 2))
    near = np.linalg.norm(place[:, None] - place[None], axis=2).argsort(axis=1)[:, 1:6]
    A = np.zeros((n, n))
    A[np.repeat(np.arange(n), 5), near.ravel()] = 1
    speed = 60 + 25 * np.sin(5 * place[:, 0]) * np.cos(4 * place[:, 1])
    X = np.column_stack([place, speed / 50 + 0.6 * rng.standard_normal(n), rng.random((n, 3))])
    order = rng.permutation(n)
    return hpgcn.Graph.from_scipy(A, X, masks=(order[:300], order[300:450], order[450:]),
                                  symmetrize=True, targets=speed, target_names=["speed"])


def test_reaches_what_pyg_reaches():
    graph = sensors()
    config = Config(hidden=32, epochs=150, dropout=0.0, weight_decay=0.0, lr=0.02)
    ours = hpgcn.train(graph, config)["test_r2"]

    # the same training in PyG
    torch.manual_seed(0)
    data = hpgcn.to_pyg(graph)
    mean, deviation = data.y[data.train_mask].mean(), data.y[data.train_mask].std(correction=0)
    y = ((data.y - mean) / deviation).float()
    net = Net(6, 32, 1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    scores = []
    for _ in range(150):
        optimizer.zero_grad()
        outputs = net(data.x, data.edge_index)
        torch.nn.functional.mse_loss(outputs[data.train_mask], y[data.train_mask]).backward()
        optimizer.step()
        error = (net(data.x, data.edge_index) - y).detach()**2
        scores.append([error[mask].mean().item() for mask in (data.val_mask, data.test_mask)])
    theirs = 1 - min(scores)[1] / y[data.test_mask].var(correction=0).item()
    assert theirs > 0.8 and ours > theirs - 0.03

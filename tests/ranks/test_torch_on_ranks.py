"""PyTorch models on distributed rows have the losses, gradients and counts of one rank."""
import re

import numpy as np
import oracle
import pytest
from checkout import ROOT
from graphs import make, scattered

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
import torch
from once import once
from training import on_ranks

import hpgcn
from hpgcn.errors import ConfigError, UsageError
from hpgcn.interop.torch import Propagation
from hpgcn.strategies import STRATEGIES

PAGE = (ROOT / "docs" / "torch-on-ranks.md").read_text()
EXAMPLE, = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def model_of(graph):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(graph.header.num_features, 10), torch.nn.Linear(10, 10),
              torch.nn.Linear(10, graph.header.num_classes)]
    return torch.nn.ModuleList(layers).double()


def losses(graph, comm, steps=3, **options):
    """Train a model with products by A and A^T; return the losses and the last gradients."""
    with Propagation(graph, comm, dtype="float64", device="cpu", **options) as spread:
        model = model_of(graph)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        X = spread.features.to_dense().double()
        y, train = spread.labels, spread.masks["train"]
        found = []
        for _ in range(steps):
            optimizer.zero_grad()
            H = spread(model[0](X)).relu()
            H = spread.transposed(model[1](spread.dropout(H, 0.4))).tanh()
            lost = torch.nn.functional.cross_entropy(model[2](H)[train], y[train],
                                                     reduction="sum")
            loss = spread.sum_loss(lost) / spread.sum_loss(train.sum())
            loss.backward()
            spread.all_reduce_gradients(model)
            optimizer.step()
            found.append(loss.item())
        return found, [each.grad.numpy().copy() for each in model.parameters()]


@once
def losses_of_one_rank(graph):
    return losses(graph, None)


@pytest.mark.parametrize("directed, sparse", [(False, False), (True, True)])
@pytest.mark.parametrize("strategy", [
    pytest.param(name, marks=[pytest.mark.long] * (name not in ("p2p", "2d", "mop")))
    for name in STRATEGIES])
def test_losses_and_gradients_equal_those_of_one_rank(comm, strategy, directed, sparse):
    graph = make(directed=directed, weighted=True, sparse=sparse)
    expected, gradients = losses_of_one_rank(graph)
    source = scattered(graph, comm)
    found, own = losses(source, comm, strategy=strategy)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    for one, other in zip(own, gradients):
        np.testing.assert_allclose(one, other, atol=1e-12)
    if directed:
        assert found == losses(source, comm, strategy=strategy)[0], "another bit"
    assert len({tuple(each) for each in comm.allgather(found)}) == 1


def test_one_rank_equals_dense_matrices():
    graph = make(weighted=True, directed=True)
    A = torch.from_numpy(oracle.normalized(graph, "sym", True))
    model = model_of(graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    train = torch.from_numpy(graph.masks["train"])
    y, X = torch.from_numpy(graph.labels), torch.from_numpy(graph.features).double()
    with Propagation(graph, dtype="float64") as spread:  # only to draw
        expected = []
        for _ in range(3):
            optimizer.zero_grad()
            H = spread.dropout((A @ model[0](X)).relu(), 0.4)
            logits = model[2]((A.T @ model[1](H)).tanh())
            loss = torch.nn.functional.cross_entropy(logits[train], y[train])
            loss.backward()
            optimizer.step()
            expected.append(loss.item())
    np.testing.assert_allclose(losses(graph, None)[0], expected, rtol=1e-12)


def test_gradients_of_gradients():
    graph = make(n=12, directed=True)
    with Propagation(graph, dtype="float64") as spread:
        H = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(spread, H)
        assert torch.autograd.gradgradcheck(spread, H)
        out = spread(H)
        before = out.clone()
        spread(2 * H)
        assert torch.equal(out, before), "a result was overwritten"


@on_ranks(1, 3)
def test_dropout_is_keyed_by_vertex(comm):
    graph = scattered(make(), comm)
    with Propagation(graph, comm, seed=3, dtype="float64") as spread:
        ones = torch.ones(len(spread.rows), 10, dtype=torch.float64)
        first, second = spread.dropout(ones, 0.5), spread.dropout(ones, 0.5)
        kept = {int(row): tuple(bits.tolist()) for row, bits in zip(spread.rows, first)}
        kept = {row: bits for each in comm.allgather(kept) for row, bits in each.items()}
        with Propagation(make(), None, seed=3, dtype="float64") as alone:
            whole = alone.dropout(torch.ones(graph.num_rows, 10, dtype=torch.float64), 0.5)
            assert kept == {int(row): tuple(bits.tolist())
                            for row, bits in zip(alone.rows, whole)}
        assert len(kept) == graph.num_rows
        assert not len(ones) or not torch.equal(first, second)
        spread.eval()
        assert spread.dropout(ones, 0.5) is ones
        with pytest.raises(UsageError, match="dropout = 1: expected"):
            spread.dropout(ones, 1)


@on_ranks(1, 3)
def test_a_parameter_without_a_gradient_keeps_none(comm):
    with Propagation(make(), comm, strategy="1d") as spread:
        model = torch.nn.ParameterList([torch.zeros(3), torch.zeros(2), torch.zeros(2)])
        model[0].grad = torch.full((3,), float(spread.product.comm.rank))
        if spread.product.comm.rank == 0:
            model[1].grad = torch.ones(2)
        spread.all_reduce_gradients(model)
        assert model[0].grad.tolist() == [sum(range(comm.size))] * 3
        assert model[1].grad.tolist() == [1, 1]
        assert model[2].grad is None
        assert spread.traffic.bytes == 0
        model[0].data.fill_(comm.rank + 5)
        spread.broadcast(model)
        assert model[0].tolist() == [5, 5, 5]


@on_ranks(1, 3)
def test_refusals(comm):
    graph = make()
    with Propagation(graph, comm, strategy="1d") as spread:
        m = len(spread.rows)
        with pytest.raises(UsageError, match=r"H has dtype float64, but the product has float32"):
            spread(torch.ones(m, 2, dtype=torch.float64))
        with pytest.raises(UsageError, match=r"H has shape \(1, 2, 3\)"):
            spread(torch.ones(1, 2, 3))
        if comm.size > 1:
            model = torch.nn.Linear(2 + comm.rank, 1)
            with pytest.raises(ConfigError, match="parameters"):
                spread.all_reduce_gradients(model)


@pytest.mark.long
def test_the_example_of_the_page(tmp_path, capsys):
    """The example has the same loss on three ranks and on one; a notebook runs torch under MPI."""
    path = str(tmp_path / "cora.h5")
    hpgcn.save(make(n=90), path)
    code = EXAMPLE.replace("from mpi4py import MPI\n", "").replace("cora.h5", path)
    code = code.replace("MPI.COMM_WORLD", "comm")
    losses = []
    for ranks in (3, 1):
        hpgcn.run_on_ranks(lambda comm: exec(code, {"comm": comm}), ranks)
        word, loss, *_ = capsys.readouterr().out.split()
        assert word == "loss"
        losses.append(float(loss))
    np.testing.assert_allclose(*losses, rtol=1e-5)

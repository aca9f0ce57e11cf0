"""The loss of links against PyG: losses and gradients of encoders with GAE or OGB's predictor."""
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from graphs import make, with_links
from training import start

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
pytest.importorskip("torch_geometric", reason="needs PyG: pip install torch-geometric")
import torch
from torch_geometric.nn import GAE

import hpgcn
from hpgcn.comm import SerialComm, as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.interop.torch import export_pyg, save_state_dict
from hpgcn.model import Parameters
from hpgcn.model.links.decoders import DECODERS
from hpgcn.training.steps.training_step import loss_and_gradient

GRAPH = with_links(make(n=80, f=7))
# small scores, of which PyG's 1e-15 in logarithms changes no digit
GRAPH = replace(GRAPH, features=GRAPH.features * np.float32(0.02))
CONFIG = Config(task="links", dtype="float64", dropout=0.0, hidden=8, output_width=6, seed=4,
                strategy="p2p", strict_negatives=True, negatives="uniform:2")


class Predictor(torch.nn.Module):
    """LinkPredictor of OGB's examples, on logits."""

    def __init__(self, width, layers):
        super().__init__()
        widths = [width] * layers + [1]
        self.lins = torch.nn.ModuleList(map(torch.nn.Linear, widths, widths[1:]))

    def forward(self, h, t):
        x = h * t
        for lin in self.lins[:-1]:
            x = torch.relu(lin(x))
        return self.lins[-1](x)[:, 0]


def exported(weights):
    """Return the state of the encoder in PyG, of weights or of gradients, and the code of it."""
    encoder = {name: array for name, array in weights.items() if not name.endswith("_decoder")}
    config = CONFIG.replace(task="vertices", negatives=Config.negatives, output_width=16,
                            strict_negatives=False, **exported.kind)
    return export_pyg(SimpleNamespace(weights=encoder, config=config))


@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("decoder", ["dot", "hadamard:3"])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat", "gin"])
def test_losses_and_gradients(model, decoder, ranks):
    exported.kind = {"model": model, **({"heads": 2, "output_heads": 2} if model == "gat" else {})}
    config = CONFIG.replace(decoder=decoder, **exported.kind)

    def ours(mpi):
        comm = as_comm(mpi)
        with start(GRAPH, config, comm) as trainer:
            weights = {name: array.copy() for name, array in trainer.parameters.arrays.items()}
            view = trainer.batches.view(1)
            loss, gradient = loss_and_gradient(view, 1, comm.clock, lambda *given: None)
            trainer.shard.columns.reduce(gradient)
            return comm.sum([loss])[0], weights, {name: array.copy() for name, array
                                                  in gradient.arrays.items()}

    loss, weights, gradient = run_on_ranks(ours, ranks)[0]

    # the same negatives, of the run on one rank
    with start(GRAPH, config, SerialComm()) as trainer:
        sources, targets, _ = trainer.plan.links.draws.pairs(1)
        count = len(trainer.plan.links.draws.positive)
    pairs = torch.from_numpy(np.stack([sources, targets]))

    # PyG's encoder, with our weights
    state, code = exported(weights)
    names = {"state": state}
    exec("\n".join(line for line in code.splitlines() if "load_state_dict" not in line), names)
    encoder = names["model"].double()
    encoder.load_state_dict(state)
    data = hpgcn.to_pyg(GRAPH)
    z = encoder(data.x.double(), data.edge_index)
    if decoder == "dot":
        value = GAE(torch.nn.Identity()).recon_loss(z, pairs[:, :count], pairs[:, count:])
    else:
        predictor = Predictor(6, 3).double()
        with torch.no_grad():
            for k, lin in enumerate(predictor.lins):
                lin.weight.copy_(torch.from_numpy(weights[f"W{2 + k}_decoder"].T))
                lin.bias.copy_(torch.from_numpy(weights[f"b{2 + k}_decoder"]))
        scores = predictor(z[pairs[0]], z[pairs[1]])
        value = (-torch.nn.functional.logsigmoid(scores[:count]).mean()
                 - torch.nn.functional.logsigmoid(-scores[count:]).mean())
        value.backward(retain_graph=True)
        for k, lin in enumerate(predictor.lins):
            np.testing.assert_allclose(gradient[f"W{2 + k}_decoder"], lin.weight.grad.T,
                                       rtol=1e-10, atol=1e-13)
            np.testing.assert_allclose(gradient[f"b{2 + k}_decoder"], lin.bias.grad, rtol=1e-10,
                                       atol=1e-13)
        encoder.zero_grad()
    value.backward()
    assert loss == pytest.approx(value.item(), rel=1e-10)
    theirs, _ = exported(gradient)
    for name, parameter in encoder.named_parameters():
        if parameter.grad is not None and name in theirs:
            np.testing.assert_allclose(theirs[name], parameter.grad, rtol=1e-11, atol=1e-15,
                                       err_msg=name)
    assert Parameters.initial(trainer.plan.spec).arrays.keys() == gradient.keys()


@pytest.mark.parametrize("decoder", DECODERS)
def test_exported_models_score_pairs(decoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = hpgcn.train(GRAPH, CONFIG.replace(decoder=decoder, epochs=3))
    state, code = export_pyg(result)
    save_state_dict("model.pt", state)
    names = {}
    exec(code, names)
    model, data = names["model"].double(), hpgcn.to_pyg(GRAPH)
    model.load_state_dict(state)  # float64, which the module had not at first
    pairs = np.random.default_rng(0).integers(0, 80, (30, 2))
    with torch.no_grad():
        z = model(data.x.double(), data.edge_index)
        found = model.decode(z, torch.from_numpy(pairs.T))
    np.testing.assert_allclose(z, hpgcn.predict(GRAPH, result)["embedding"], rtol=1e-10)
    np.testing.assert_allclose(found, hpgcn.predict(GRAPH, result, pairs=pairs)["score"],
                               rtol=1e-9)

"""Training on a GPU, one rank: losses, metrics and predictions of the CPU. A fake GPU where there is no real one."""
import numpy as np
import pytest
from cuda_ranks import cuda, gpu
from graphs import make
from test_models_serial import SETTINGS, several_labels

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.strategies import STRATEGIES
from hpgcn.trainer import Trainer

__all__ = ["cuda", "gpu"]
BOUND = {"float32": 1e-5, "float64": 1e-12}


def curve(graph, config, device=None, epochs=6):
    """Losses and metrics of some epochs, and the weights after them."""
    comm = SerialComm()
    if device is not None:
        comm.use(device)
    trainer = Trainer(graph, config, comm, warm=False)
    found = [trainer.step(epoch) | trainer.evaluate() for epoch in range(1, epochs + 1)]
    weights = comm.device.get(trainer.parameters.flat)
    trainer.rows.close()
    return found, weights


def check(graph, config, device):
    """Hold a run on the GPU against the same on the CPU."""
    (expected, flat), (found, weights) = curve(graph, config), curve(graph, config, device)
    bound = BOUND[config.dtype]
    for key in ("loss", "val_loss"):
        np.testing.assert_allclose([m[key] for m in found], [m[key] for m in expected], rtol=bound, err_msg=key)
    for key in ("train_acc", "val_acc", "test_acc"):
        assert [m[key] for m in found] == [m[key] for m in expected]
    assert np.linalg.norm(weights - flat) <= 10 * bound * np.linalg.norm(flat)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("model", SETTINGS)
@pytest.mark.parametrize("case", [
    {"layer_norm": True}, {"sparse": True, "optimizer": "sgd"}, {"input_dropout": 0.0, "train": 9}, {"several": True},
    {"hidden": 20, "train": 9, "decay_layers": "all"}, {"sparse": True, "train": 9}], ids=str)
def test_losses_and_metrics_are_those_of_the_cpu(gpu, model, case, dtype):
    options = dict(case)
    graph = make(directed=options.pop("optimizer", None) == "sgd", sparse=options.pop("sparse", False),
                 train=options.pop("train", None), degree=3 if "train" in case else 8)
    if options.pop("several", False):
        graph = several_labels(graph, 3)
    options |= {key: case[key] for key in ("optimizer",) if key in case}
    check(graph, Config(layers=3, dropout=0.4, lr=0.01, dtype=dtype, seed=3, **SETTINGS[model],
                        **{"hidden": 10, **options}), gpu)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy(gpu, strategy, directed):
    check(make(directed=directed, weighted=True), Config(strategy=strategy, layers=2, hidden=7, dtype="float64"), gpu)

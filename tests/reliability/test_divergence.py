"""If numbers become infinite or NaN, the error names the layer, for every model."""
import re

import numpy as np
import pytest
from graphs import make
from training import SETTINGS, start

from hpgcn.config import Config
from hpgcn.errors import DivergedError
from hpgcn.runtime import faults
from hpgcn.training.run import train

# norms in float64, whose kernels other short tests need as well
MODELS = {**SETTINGS, "norm": {"layer_norm": True, "dtype": "float64"}}


@pytest.mark.parametrize("layer, value", [(0, np.nan), (1, np.inf), (2, np.nan)])
@pytest.mark.parametrize("settings", [
    pytest.param(settings, marks=[pytest.mark.long] * (name not in ("gcn", "gin", "norm")), id=name)
    for name, settings in MODELS.items()])
def test_the_first_layer_that_is_not_finite_is_named(settings, layer, value):
    trainer = start(make(), Config(layers=3, hidden=8, **settings))
    trainer.train_epoch(1)
    name = next(name for name in trainer.parameters.arrays if re.match(f"W{layer}", name))
    trainer.parameters.arrays[name][0, 0] = value
    with np.errstate(all="ignore"), pytest.raises(DivergedError) as caught:
        trainer.train_epoch(2)
    said = (rf"epoch 2: the training loss is \S+; layer {layer} forward has [\d,]+ values that are "
            r"not finite, layers before it none; try a lower lr= than 0.01")
    assert re.match(said, str(caught.value))
    assert caught.value.collective


def test_a_gradient_that_is_not_finite_is_named(monkeypatch):
    faults.STATE.set(faults.State())
    monkeypatch.setenv(faults.VARIABLE, "nan:0:1:backward")
    with pytest.raises(DivergedError, match="1 backward: the gradient of W1, b1 is not finite"):
        train(make(), Config(epochs=1))


def test_a_learning_rate_far_too_high_is_found():
    trainer = start(make(), Config(lr=1e30, optimizer="sgd"))
    said = r"layer \d (forward|backward).*than 1e\+30"
    with np.errstate(all="ignore"), pytest.raises(DivergedError, match=said):
        for epoch in range(1, 20):
            trainer.train_epoch(epoch)


@pytest.mark.parametrize("settings, words", [
    ({"lr": 1e300}, r"epoch 1: the training loss is \S+; the update leaves W0, W1, b0, b1 with"),
    ({"weight_decay": 1e308}, r"epoch 1: .* the update leaves W0 with values"),
    ({"lr": 1e38}, "epoch 1: the validation loss is (nan|inf); try a lower lr= than 1e")], ids=str)
def test_weights_of_the_last_epoch_are_judged_too(settings, words):
    with pytest.raises(DivergedError, match=words):
        train(make(), Config(epochs=1, **settings))

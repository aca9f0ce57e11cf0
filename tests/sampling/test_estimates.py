"""Mini-batches estimate products with A, the loss and its gradient without bias."""
import numpy as np
import pytest
from arrays import assert_some
from graphs import make

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.sampling import Sampler
from hpgcn.training.trainer import make_trainer

STEPS = 1000
SIGMAS = 4.5  # deviation of a mean of some hundred numbers


def trainer_of(graph, config):
    return make_trainer(graph, config, SerialComm(), warm=False)


def loss_and_gradient(view):
    logits, backward = view.model.forward(view.features, 1)
    total, G = view.loss.gradient(logits)
    return np.append(backward(G).flat, total / view.loss.norm)


def small_weights(trainer):
    """Scale the weights down, so that the loss is linear in the logits."""
    trainer.parameters.flat[:] *= 1e-5
    for name, array in trainer.parameters.arrays.items():
        if name == "W1":  # the gradient of W0 is proportional to W1
            array *= 1e2


def estimates(graph, config):
    """Return estimates of batches beside those of the full graph.

    (loss and gradient of the full graph, those of each mini-batch step, steps per
    epoch).
    """
    whole = trainer_of(graph, config.replace(batch="full"))
    small_weights(whole)
    expected = loss_and_gradient(whole.batches.view(1))
    trainer = trainer_of(graph, config.replace(epochs=STEPS))
    small_weights(trainer)
    with trainer:
        found = [loss_and_gradient(trainer.batches.view(1 + number))
                 for number in range(STEPS // trainer.batches.steps * trainer.batches.steps)]
    return expected, np.array(found), trainer.batches.steps


def deviations(expected, found, steps):
    """Return the errors of the batches' mean loss and gradient, in standard errors."""
    epochs = found.reshape(-1, steps, found.shape[1]).mean(1)
    error = epochs.std(0, ddof=1) / np.sqrt(len(epochs))
    moving = error > 1e-12 * np.abs(expected).max()
    np.testing.assert_allclose(epochs.mean(0)[~moving], expected[~moving], rtol=1e-6, atol=1e-12)
    return (epochs.mean(0) - expected)[moving] / error[moving]


@pytest.mark.long
@pytest.mark.parametrize("batch, settings", [
    ("vertices:20", {"layers": 1}), ("neighbors:2,3:10", {"layers": 2, "activation": "elu"}),
    *(pytest.param("neighbors:2:10", settings, marks=pytest.mark.long)
      for settings in ({"layers": 1}, {"layers": 1, "model": "sage"}))], ids=str)
@pytest.mark.parametrize("directed", [False, True])
def test_loss_and_gradient_are_unbiased(batch, settings, directed):
    graph = make(n=60, f=7, c=3, directed=directed, degree=6)
    config = Config(batch=batch, hidden=4, dropout=0.0, dtype="float64", seed=5, **settings)
    off = deviations(*estimates(graph, config))
    assert off.size > 8
    assert np.abs(off).max() < SIGMAS
    assert (off ** 2).mean() < 2


@pytest.mark.long
def test_without_the_factor_they_are_not(monkeypatch):
    """Estimates are biased without the sampler's scale factor.

    So the test above would notice.
    """
    monkeypatch.setattr(Sampler, "factor", lambda self, batch: 1.0)
    graph = make(n=60, f=7, c=3, degree=6)
    config = Config(batch="vertices:20", layers=1, dropout=0.0, dtype="float64", seed=5)
    assert np.abs(deviations(*estimates(graph, config))).max() > 3 * SIGMAS


@pytest.mark.long
@pytest.mark.parametrize("batch", [
    "neighbors:2:10", pytest.param("vertices:15", marks=pytest.mark.long)])
def test_a_product_is_unbiased_row_by_row(batch):
    graph = make(n=60, f=5, c=3, degree=6, weighted=True, directed=True)
    config = Config(batch=batch, layers=1, hidden=4, dtype="float64", epochs=STEPS)
    trainer = trainer_of(graph, config)
    with trainer:
        rng = np.random.default_rng(1)
        H = rng.standard_normal((graph.num_rows, 4))
        expected = trainer.shard.strategy.forward(H)
        sums, squares, counts = np.zeros((2, *H.shape)), np.zeros(H.shape), np.zeros(len(H))
        for number in range(1, STEPS + 1):
            trainer.batches.view(number)
            field = trainer.batches.field
            rows_in, rows_out = field.rows
            found = field.maps[0].forward(np.ascontiguousarray(H[rows_in]))
            sums[0, rows_out] += found
            squares[rows_out] += found ** 2
            counts[rows_out] += 1
    seen = counts > 30
    assert_some(seen)
    counts = counts[seen, None]
    mean = sums[0, seen] / counts
    error = np.sqrt(np.maximum(squares[seen] / counts - mean ** 2, 0) / counts) + 1e-12
    assert np.abs((mean - expected[seen]) / error).max() < SIGMAS + 1

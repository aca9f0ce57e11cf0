"""Decoders and the loss of links against dense NumPy, and against finite differences."""
import numpy as np
import pytest

from hpgcn import setting_words
from hpgcn.comm import SerialComm
from hpgcn.model.links import link_loss
from hpgcn.model.links.decoders import DECODERS
from hpgcn.model.links.link_loss import LinkLoss, TrainingPairs
from hpgcn.model.parameters import Parameters
from hpgcn.model.spec import ModelSpec
from hpgcn.parallel.layout import RowPartition
from hpgcn.parallel.pulled_rows import PulledRows
from hpgcn.parallel.workspace import HaloBuffers, Workspace

N, D = 20, 6
RNG = np.random.default_rng(0)
LINKS, OTHERS = RNG.integers(0, N, (30, 2)), RNG.integers(0, N, (60, 2))
SHARED = RNG.integers(0, N, 7)


def spec_of(decoder):
    return ModelSpec("gcn", (4, D), dtype="float64", decoder=decoder, decoder_layers=3)


def loss_of(decoder, shared):
    """Return a LinkLoss, the parameters that it reads, and all negatives as pairs."""
    comm = SerialComm()
    parameters = Parameters.initial(spec_of(decoder))
    for name, array in parameters.arrays.items():
        if name.endswith("_decoder"):
            array += RNG.standard_normal(array.shape) / 9
    negatives = OTHERS
    if shared:
        negatives = np.stack([each.ravel() for each in np.meshgrid(LINKS[:, 0], SHARED)], axis=1)
    pairs = LINKS if shared else np.concatenate([LINKS, OTHERS])
    distinct, counts = np.unique(LINKS[:, 0], return_counts=True)
    pulled = PulledRows.of(pairs[:, 1], RowPartition(np.array([0, N]), 0), comm,
                           HaloBuffers(comm.device, None, np.float64))
    loss = LinkLoss(DECODERS[decoder](spec_of(decoder), parameters.arrays), comm, "auc", {},
                    Workspace(np.float64))
    loss = loss.of_pairs(TrainingPairs(
        pulled, pairs[:, 0].copy(), pairs[:, 1].copy(), len(LINKS), distinct, counts[:, None] * 1.0,
        SHARED if shared else SHARED[:0], (len(LINKS), len(negatives))))
    return loss, parameters, negatives


def score(decoder, arrays, Z, pairs):
    P = Z[pairs[:, 0]] * Z[pairs[:, 1]]
    if decoder == "distmult":
        P = P * arrays["gain1_decoder"]
    if decoder == "hadamard":
        for number in (1, 2):
            P = np.maximum(P @ arrays[f"W{number}_decoder"] + arrays[f"b{number}_decoder"], 0)
        P = P @ arrays["W3_decoder"] + arrays["b3_decoder"]
    return P.sum(axis=1)


def test_each_decoder_has_a_word():
    assert setting_words.DECODERS.keys() == DECODERS.keys()


@pytest.mark.parametrize("block", [link_loss.BLOCK, 40])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("decoder", DECODERS)
def test_loss_and_gradients(decoder, shared, block, monkeypatch):
    monkeypatch.setattr(link_loss, "BLOCK", block)
    loss, parameters, negatives = loss_of(decoder, shared)
    Z = RNG.standard_normal((N, D))

    def expected():
        links, others = (score(decoder, parameters.arrays, Z, pairs)
                         for pairs in (LINKS, negatives))
        return np.log1p(np.exp(-links)).mean() + np.log1p(np.exp(others)).mean()

    total, dZ = loss.gradient(Z)
    assert total == pytest.approx(expected(), rel=1e-13)
    gradient = Parameters.zeros(spec_of(decoder))
    loss.add_parameters(gradient)

    # central differences of the rows and of each parameter of the decoder
    checked = [(Z, dZ)] + [(array, gradient.arrays[name])
                           for name, array in parameters.arrays.items() if "decoder" in name]
    for array, slopes in checked:
        flat, step = array.reshape(-1), 1e-6
        for place in range(0, flat.size, 5):
            kept = flat[place]
            values = []
            for flat[place] in (kept + step, kept - step):
                values.append(expected())
            flat[place] = kept
            found = (values[0] - values[1]) / (2 * step)
            assert slopes.reshape(-1)[place] == pytest.approx(found, rel=1e-5, abs=1e-8)


def test_scores_of_extreme_size_are_finite():
    loss, slopes = link_loss.logistic(np.array([-1e4, 1e4]), 1)
    np.testing.assert_array_equal(loss, [1e4, 0])
    np.testing.assert_array_equal(slopes, [-1, 0])

"""GraphSAGE and GIN on any number of ranks: the oracle's losses, and the traffic predicted."""
import numpy as np
import oracle
import pytest
from graphs import make, scattered, several_labels
from test_contract import check_against_the_oracle
from training import SETTINGS, assert_same_curves, run, skip_refused

import hpgcn
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.strategies import STRATEGIES

pytestmark = pytest.mark.usefixtures("poisoned")
NEW = [name for name in SETTINGS if name != "gcn"]
# hidden 20: A first in the first layer; 3: fewer columns than the features, and than ranks may cut
CASES = [
    (10, False, True, -1, "float64"), (20, True, False, -1, "float64"),
    (10, True, True, -1, "float32"), (20, True, False, 0, "float64"),
    (3, False, False, 0, "float64")]


@pytest.mark.parametrize("model, hidden, directed, sparse, input_dropout, dtype", [
    *[(model, *case) for model in ("sage-mean", "gin") for case in CASES], ("sage-gcn", *CASES[1]),
    ("sage-gcn", *CASES[2])])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equals_the_oracle_and_the_prediction(comm, strategy, model, hidden, directed, sparse,
                                              input_dropout, dtype):
    graph = make(directed=directed, weighted=not sparse, sparse=sparse)
    config = Config(strategy=strategy, layers=3, hidden=hidden, dropout=0.4, dtype=dtype, seed=3,
                    lr=0.003, input_dropout=input_dropout, **SETTINGS[model])
    check_against_the_oracle(graph, scattered(graph, comm), config, comm)


@pytest.mark.parametrize("layer_norm, several", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("model", ["gcn", "gin"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_layer_norm_and_several_labels(comm, strategy, model, layer_norm, several):
    graph = several_labels(make(directed=True), 3) if several else make(directed=True)
    config = Config(strategy=strategy, layers=3, hidden=9, dropout=0.4, dtype="float64", lr=0.003,
                    seed=3, layer_norm=layer_norm, **SETTINGS[model])
    history = check_against_the_oracle(graph, scattered(graph, comm), config, comm)
    alone, _ = run(graph, config.replace(strategy=Config.strategy), SerialComm(), 1)
    assert_same_curves(history[:1], alone, 1e-9)


@pytest.mark.parametrize("norm", ["in", "row", "none"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_another_norm(comm, strategy, norm):
    graph = make(directed=True, weighted=True)
    config = Config(strategy=strategy, layers=2, hidden=9, dropout=0.4, dtype="float64", lr=0.003,
                    seed=3, norm_adj=norm)
    history = check_against_the_oracle(graph, scattered(graph, comm), config, comm)
    alone, _ = run(graph, config.replace(strategy=Config.strategy), SerialComm(), 1)
    assert_same_curves(history[:1], alone, 1e-9)


@pytest.mark.parametrize("model", NEW)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_predictions_equal_the_dense_model(comm, tmp_path, strategy, model):
    graph = make(directed=True)
    out = comm.bcast(str(tmp_path / "run"))
    config = Config(strategy=strategy, out=out, epochs=2, hidden=6, dtype="float64",
                    input_dropout=0.0, **SETTINGS[model])
    skip_refused(graph, config, comm)
    source = scattered(graph, comm)
    hpgcn.train(source, config, comm)
    comm.barrier()  # rank 0 writes the model when the others are done
    found = hpgcn.predict(source, out, comm)
    if comm.rank == 0:
        weights, _, _ = hpgcn.training.run_directory.read_run(out)
        if model in oracle.MATRIX:
            A = oracle.normalised(graph, *oracle.MATRIX[model])
            expected = oracle.logits(model, A, oracle.features(graph), weights, 2)
            np.testing.assert_allclose(found["logits"], expected, atol=1e-10)
        assert found["embedding"].shape == (203, 5 if model == "appnp" else 6)

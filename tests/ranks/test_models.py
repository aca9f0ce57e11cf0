"""Models on several ranks with other normalizations of A.

Predictions equal those of dense matrices.
"""
import numpy as np
import oracle
import pytest
from graphs import make, scattered
from test_contract import check_against_the_oracle
from training import LATER, WIDE, served

import hpgcn
from hpgcn.config import Config

pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.mark.long
@pytest.mark.parametrize("norm", ["in", "row", "none"])
@served(["gcn"], ["p2p", "1d", "2d", "mop"], [3, 4])
def test_another_norm(comm, strategy, model, norm):
    graph = make(directed=True, weighted=True)
    config = Config(strategy=strategy, layers=2, hidden=9, dropout=0.4, dtype="float64", lr=0.003,
                    seed=3, norm_adj=norm)
    check_against_the_oracle(graph, scattered(graph, comm), config, comm)


@pytest.mark.long
@served(ranks=[2, 3], later=(*LATER, "3d"))  # left: whole rows, replicas, shared rows
def test_predictions_equal_the_dense_model(comm, tmp_path, strategy, model):
    graph = make(directed=True)
    out = comm.bcast(str(tmp_path / "run"))
    config = Config(strategy=strategy, out=out, epochs=2, hidden=8, dtype="float64",
                    input_dropout=0.0, **WIDE[model])
    source = scattered(graph, comm)
    hpgcn.train(source, config, comm)
    comm.barrier()  # other ranks may finish before rank 0 has written the model
    found = hpgcn.predict(source, out, comm)
    if comm.rank == 0:
        weights, _, _ = hpgcn.training.files.run_directory.read_run(out)
        A = oracle.normalized(graph, *oracle.MATRIX[model])
        expected = oracle.logits(model, A, oracle.features(graph), weights, 2)
        np.testing.assert_allclose(found["logits"], expected, atol=1e-10)
        assert found["embedding"].shape == (203, 5 if model == "appnp" else 8)

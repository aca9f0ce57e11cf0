"""GraphSAGE and GIN on any number of ranks: the oracle's losses, and exactly the bytes and messages predicted."""
import numpy as np
import oracle
import pytest
from graphs import make
from test_models_serial import NEW, SETTINGS, several_labels

import hpgcn
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.model import Parameters
from hpgcn.partition import Partition
from hpgcn.strategies import STRATEGIES
from hpgcn.trainer import Trainer

pytestmark = pytest.mark.mpi


def parted(graph, comm):
    part = np.random.default_rng(5).integers(0, comm.size, graph.num_rows)
    partition = Partition.from_parts(part, comm.size)
    return graph.permuted(partition.perm, partition.offsets)


CASES = [  # hidden 20: A first in the first layer; 3: fewer columns than the features, and than 2d and 3d may cut
    (10, False, True, -1, "float64"), (20, True, False, -1, "float64"), (10, True, True, -1, "float32"),
    (20, True, False, 0, "float64"), (3, False, False, 0, "float64")]


@pytest.mark.parametrize("model, hidden, directed, sparse, input_dropout, dtype", [
    *[(model, *case) for model in ("sage-mean", "gin") for case in CASES], ("sage-gcn", *CASES[1]),
    ("sage-gcn", *CASES[2])])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_equals_the_oracle_and_the_prediction(comm, strategy, model, hidden, directed, sparse, input_dropout, dtype):
    graph = make(directed=directed, weighted=not sparse, sparse=sparse)
    config = Config(strategy=strategy, layers=3, hidden=hidden, dropout=0.4, dtype=dtype, seed=3, lr=0.003,
                    input_dropout=input_dropout, **SETTINGS[model])
    trainer = Trainer(parted(graph, comm), config, comm, warm=False)
    expected, slope = oracle.losses(graph, config, Parameters.initial(trainer.widths, dtype, 3, model), 20)
    check(comm, trainer, expected, slope)


def check(comm, trainer, expected, slope):
    """Hold the gradient of epoch 1 and 20 losses against the oracle, what was sent against the prediction."""
    comm.counters.phase, dtype = "other", trainer.config.dtype
    logits, backward = trainer.training.model.forward(trainer.training.X, 1)
    gradient = backward(trainer.training.loss.gradient(logits)[1])
    trainer.rows.columns.reduce(gradient)
    metrics = [trainer.step(epoch) for epoch in range(1, 21)]
    predicted = trainer.predicted
    trainer.rows.close()
    loss_bound, gradient_bound = (1e-4, 1e-5) if dtype == "float32" else (1e-9, 1e-12)
    assert np.linalg.norm(gradient.flat - slope) < gradient_bound * np.linalg.norm(slope)
    np.testing.assert_allclose([m["loss"] for m in metrics], expected, rtol=loss_bound)
    for entry in metrics:
        assert (entry["sent_bytes"], entry["sent_messages"]) == (predicted.bytes, predicted.messages)


@pytest.mark.parametrize("layer_norm, several", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("model", ["gcn", "gin"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_layer_norm_and_several_labels(comm, strategy, model, layer_norm, several):
    graph = several_labels(make(directed=True), 3) if several else make(directed=True)
    config = Config(strategy=strategy, layers=3, hidden=9, dropout=0.4, dtype="float64", lr=0.003, seed=3,
                    layer_norm=layer_norm, **SETTINGS[model])
    source = parted(graph, comm)
    trainer = Trainer(source, config, comm, warm=False)
    initial = Parameters.initial(trainer.widths, "float64", 3, model, layer_norm)
    alone = Trainer(graph, config.replace(strategy="p2p"), SerialComm(), warm=False)
    alone.step(1)
    one = alone.evaluate()
    check(comm, trainer, *oracle.losses(graph, config, initial, 20))
    trainer = Trainer(source, config, comm, warm=False)
    trainer.step(1)
    found = trainer.evaluate()
    trainer.rows.close()
    for key in ("train_acc", "val_acc", "test_acc", "val_loss"):
        assert found[key] == pytest.approx(one[key], rel=1e-10)


@pytest.mark.parametrize("model", NEW)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_predictions_equal_the_dense_model(comm, tmp_path, strategy, model):
    graph = make(directed=True)
    out = comm.bcast(str(tmp_path / "run"))
    config = Config(strategy=strategy, out=out, epochs=2, hidden=6, dtype="float64", input_dropout=0.0,
                    **SETTINGS[model])
    source = parted(graph, comm)
    hpgcn.train(source, config, comm)
    comm.barrier()  # rank 0 writes the model when the others are done
    found = hpgcn.predict(source, out, comm)
    if comm.rank == 0:
        weights, _, _ = hpgcn.rundir.read_run(out)
        A = oracle.normalised(graph, *oracle.MATRIX[model])
        expected = oracle.logits(model, A, oracle.features(graph), weights, 2)
        np.testing.assert_allclose(found["logits"], expected, atol=1e-10)
        assert found["embedding"].shape == (203, 6)


@pytest.mark.parametrize("model", NEW)
def test_same_command_same_bits(comm, model):
    source = parted(make(directed=True), comm)
    found = []
    for _ in range(2):
        trainer = Trainer(source, Config(hidden=16, **SETTINGS[model]), comm, warm=False)
        found.append([trainer.step(epoch)["loss"] for epoch in range(1, 6)])
        trainer.rows.close()
    assert found[0] == found[1]

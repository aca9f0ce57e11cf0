"""Training on a file with reordered rows equals training in the original order."""
import numpy as np
import pytest
from graphs import make
from once import once
from training import on_ranks

from hpgcn import predict, store, train
from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.graphs.reordering import find_order
from hpgcn.planning.answers import dry_run
from hpgcn.planning.answers.options import Options
from hpgcn.planning.answers.report import forecast
from hpgcn.strategies import STRATEGIES
from hpgcn.training.setup.placement import as_source, assign_rows


@once
def of_one_rank(graph, config):
    """Train on one rank; return the losses and the logits in the order of the input."""
    result = train(graph, config)
    return [each["loss"] for each in result.history], predict(graph, result)["logits"]


def files(comm, folder, **options):
    """Write a graph with reordered rows; return the file's path and the graph."""
    folder = comm.bcast(folder)
    graph = make(**options)
    if comm.rank == 0:
        store.write_graph(folder / "g.h5", graph, order=find_order(graph, "communities")[0])
    comm.barrier()
    return folder / "g.h5", graph


@on_ranks(1, 3)
@pytest.mark.parametrize("strategy", ["p2p", *(
    pytest.param(name, marks=pytest.mark.long)
    for name in ("vertex-cut", "cover", "1d", "1.5d", "2d", "mop"))])
def test_training_planning_and_prediction(comm, tmp_path, strategy):
    path, graph = files(comm, tmp_path, n=120, directed=True, weighted=True)
    config = Config(strategy=strategy, epochs=3, dtype="float64", hidden=10, dropout=0.4,
                    effort="default")
    result = train(path, config, comm.mpi)
    expected, logits = of_one_rank(graph, config.replace(strategy="p2p"))
    np.testing.assert_allclose([each["loss"] for each in result.history], expected, rtol=1e-11)
    assert result["sent_bytes_per_epoch"] == result["predicted_bytes_per_epoch"]
    report = dry_run.forecast(assign_rows(as_source(path), comm, config), config, comm)
    assert report["predicted_bytes_per_epoch"] == result["sent_bytes_per_epoch"]

    found = predict(path, result, comm.mpi)
    if comm.rank == 0:
        method = STRATEGIES[strategy].method
        options = Options(config=config, ranks=(comm.size,), methods=(method,))
        told = [row["bytes"]["total"] for row in forecast(path, options)["rows"]
                if row["strategy"] == result["strategy"]]
        assert comm.size == 1 or result["sent_bytes_per_epoch"] in told
        np.testing.assert_allclose(found["logits"], logits, atol=1e-10)
    comm.barrier()


@pytest.mark.long
@on_ranks(1, 3)
@pytest.mark.parametrize("batch", ["vertices:60", "parts:2:6", "neighbors:3,3:40"])
def test_batches_are_the_same(comm, tmp_path, batch):
    path, graph = files(comm, tmp_path)
    config = Config(batch=batch, epochs=2, dtype="float64", hidden=10, layers=2, strategy="p2p",
                    effort="default")
    result = train(path, config, comm.mpi)
    expected, _ = of_one_rank(graph, config)
    np.testing.assert_allclose([each["loss"] for each in result.history], expected, rtol=1e-11)


@pytest.mark.long
@on_ranks(1, 3)
def test_a_run_goes_on(comm, tmp_path):
    path, _ = files(comm, tmp_path)
    config = Config(epochs=4, dtype="float64", hidden=10, strategy="1d",
                    out=str(path.parent / "run"), checkpoint_every=2)
    whole = train(path, config.replace(out="", checkpoint_every=0), comm.mpi)
    train(path, config.replace(epochs=2), comm.mpi)
    resumed = train(path, config, comm.mpi, resume=config.out)
    assert [each["loss"] for each in resumed.history] == [each["loss"] for each in whole.history]


@pytest.mark.long
def test_plan_counts_what_both_files_send(tmp_path):
    path, graph = files(SerialComm(), tmp_path, n=120)
    store.write_graph(tmp_path / "plain.h5", graph)
    ours, theirs = (forecast(each, Options(ranks=(3,), methods=("graph", "expansion")))["rows"]
                    for each in (path, tmp_path / "plain.h5"))
    for one, other in zip(ours, theirs):
        if one["parts"] != "stored":
            assert one["bytes"] == other["bytes"]
            assert one["messages"] == other["messages"]

"""Results of training on several ranks; callbacks are called on rank 0 and can stop all ranks."""
import numpy as np
import pytest
from graphs import make

import hpgcn
from hpgcn.errors import InternalError

CONFIG = hpgcn.Config(epochs=6, hidden=6, strategy="1d", eval_every=2)


@pytest.mark.parametrize("comm", [1, 3], indirect=True)
def test_every_rank_has_the_same_result(comm):
    graph = make(n=90, f=9)
    result = hpgcn.train(graph, CONFIG, comm.mpi)
    weights = {name: array.tobytes() for name, array in result.weights.items()}
    comm.assert_same({**result, "history": result.history, **weights}, "result")
    alone = hpgcn.train(graph, CONFIG)
    assert result.weights.keys() == alone.weights.keys()
    for name, array in alone.weights.items():
        np.testing.assert_allclose(result.weights[name], array, rtol=0, atol=1e-5)
    predicted = hpgcn.predict(graph, result, comm.mpi)
    assert (predicted is None) == (comm.rank > 0)
    if predicted:
        expected = hpgcn.predict(graph, alone)["logits"]
        np.testing.assert_allclose(predicted["logits"], expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("comm", [1, 3], indirect=True)
@pytest.mark.parametrize("everywhere", [True, False])
def test_a_callback_of_rank_0_stops_all(comm, everywhere):
    seen = []

    def stop(metrics):
        seen.append(metrics["epoch"])
        return metrics["epoch"] == 3

    callbacks = [stop] if everywhere or comm.rank == 0 else ()
    result = hpgcn.train(make(n=90, f=9), CONFIG, comm.mpi, callbacks=callbacks)
    assert result["epochs"] == len(result.history) == 3
    assert result.history[-1]["val_acc"] is not None
    assert seen == ([1, 2, 3] if comm.rank == 0 else [])


@pytest.mark.parametrize("comm", [1, 3], indirect=True)
def test_what_a_callback_raises_ends_all(comm):
    kind = ZeroDivisionError if comm.size == 1 else InternalError
    with pytest.raises(kind, match="division by zero"):
        hpgcn.train(make(n=90, f=9), CONFIG, comm.mpi, callbacks=[lambda metrics: 1 / 0])

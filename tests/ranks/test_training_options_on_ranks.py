"""With every training option, several ranks have the losses of the dense serial model."""
import numpy as np
import pytest
from graphs import make, scattered, several_labels
from test_contract import check_against_the_oracle
from training import on_ranks, start

from hpgcn.config import Config
from hpgcn.errors import DataError
from hpgcn.training.saved.checkpoint_state import agree

TARGETS = {"label_smoothing": 0.2, "class_weight": "balanced"}
UPDATE = {"optimizer": "adamw", "weight_decay": 0.1, "clip_norm": 0.05, "schedule": "cosine",
          "warmup": 1}
DESCENT = {"optimizer": "sgd", "lr": 0.5, "clip_norm": 0.1}



def config_of(comm, strategy, **changes):
    grid = f"1x{comm.size}" if strategy == "2d" else ""  # all ranks share all rows
    return Config(**{"strategy": strategy, "grid": grid, "epochs": 20, "layers": 2, "hidden": 10,
                     "dropout": 0.4, "dtype": "float64", "seed": 3, "lr": 0.01, **changes})


@pytest.mark.long
@on_ranks(1, 3, 5)
@pytest.mark.parametrize("changes", [
    {**TARGETS, **UPDATE}, {**TARGETS, **DESCENT}, {"class_weight": "balanced"},
    {"label_smoothing": 0.2}], ids=str)
@pytest.mark.parametrize("strategy", ["p2p", "2d", "mop", "vertex-cut"])
def test_equals_the_oracle(comm, strategy, changes):
    graph = make(directed=True)
    check_against_the_oracle(graph, scattered(graph, comm), config_of(comm, strategy, **changes),
                             comm)


@on_ranks(1, 3, 5)
@pytest.mark.parametrize("strategy", ["p2p", "2d", "mop"])
def test_several_labels_equal_the_oracle(comm, strategy):
    graph = several_labels(make(directed=True), 3)
    config = config_of(comm, strategy, label_smoothing=0.2, **UPDATE)
    check_against_the_oracle(graph, scattered(graph, comm), config, comm)


@on_ranks(1, 3)
@pytest.mark.parametrize("strategy", ["p2p", "2d"])
def test_all_ranks_hold_the_same_bits(comm, strategy):
    graph = make()
    trainer = start(scattered(graph, comm), config_of(comm, strategy, **TARGETS, **UPDATE), comm)
    for epoch in range(1, 4):
        trainer.train_epoch(epoch)
    agree(comm, {"weights": trainer.parameters.flat, **trainer.optimizer.moments})
    trainer.close()


@on_ranks(1, 3)
def test_all_ranks_take_the_weights_that_rank_0_reads(comm, tmp_path):
    """Class weights are read from rank 0's file.

    Other ranks have another file at the path.
    """
    path = tmp_path / "weights.txt"
    path.write_text("".join(f"{1 + c if comm.rank == 0 else 9}\n" for c in range(5)))
    graph = make()
    config = config_of(comm, "p2p", class_weight=str(path))
    trainer = start(scattered(graph, comm), config, comm)
    table = comm.device.get(trainer.training.loss.target)
    np.testing.assert_array_equal(table[0], [1, 2, 3, 4, 5])
    trainer.close()
    if comm.rank == 0:
        path.write_text("1\n")
    with pytest.raises(DataError, match="1 lines"):
        start(scattered(graph, comm), config, comm)

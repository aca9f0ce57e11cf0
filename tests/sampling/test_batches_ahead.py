"""Batches that a thread makes ahead of their steps: the same bits, and errors of their own."""
import threading

import pytest
from graphs import make

from hpgcn.comm import SerialComm
from hpgcn.config import Config
from hpgcn.errors import DataError
from hpgcn.training.trainer import make_trainer

BATCHES = pytest.mark.parametrize("batch", ["vertices:60", "neighbors:3,2:25"])


def trainer_of(batch):
    return make_trainer(make(), Config(batch=batch, hidden=6, epochs=2), SerialComm(), warm=False)


@BATCHES
def test_a_thread_changes_no_bits(batch):
    assert trained(batch, ahead=True) == trained(batch, ahead=False)


def trained(batch, ahead):
    """Return losses and weights; check which thread makes the batches."""
    with trainer_of(batch) as trainer:
        batches, makers = trainer.batches, []
        make_batch = batches.builder.batch
        batches.builder.batch = lambda *number: (
            makers.append(threading.current_thread()) or make_batch(*number))
        batches.thread = batches.thread if ahead else None
        losses = [trainer.train_epoch(epoch)["loss"] for epoch in (1, 2)]
        assert makers[0] is threading.main_thread()  # no step precedes the first batch
        assert all((each is not makers[0]) == ahead for each in makers[1:])
        return losses, trainer.parameters.flat.tobytes()


@BATCHES
def test_an_error_of_the_thread_is_that_of_the_run(batch):
    def fail(epoch, number):
        raise DataError(f"batch {number} of epoch {epoch}: made to fail")

    with pytest.raises(DataError, match="batch 1 of epoch 1: made to fail"), \
            trainer_of(batch) as trainer:
        first = trainer.batches.builder.batch(1, 0)
        trainer.batches.builder.batch = lambda *number: (
            first if number == (1, 0) else fail(*number))
        trainer.train_epoch(1)


@BATCHES
def test_a_batch_that_no_step_takes_ends_no_run(batch):
    with trainer_of(batch) as trainer:
        trainer.batches.view(1)  # and the next one ahead
        trainer.batches.prefetched[1].result()
        future = trainer.batches.thread.submit(lambda: 1 / 0)
        trainer.batches.prefetched = 2, future
    assert isinstance(future.exception(), ZeroDivisionError)

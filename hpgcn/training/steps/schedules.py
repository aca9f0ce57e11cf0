"""Learning rates by the number of the training step.

No other state is used, so a resumed run continues the schedule. In the steps of the
first `warmup` epochs the rate rises linearly to `lr`; the schedule follows. A
full-batch epoch is one step.
"""
from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LearningRate:
    """The learning rate as a function of the training step.

    The fields are those of hpgcn.Config.
    """

    lr: float
    schedule: str  # in SCHEDULES
    warmup: int  # epochs
    epochs: int
    step_every: int  # epochs
    step_factor: float
    steps: int = 1  # training steps of an epoch

    def __call__(self, number: int) -> float:
        """Return the learning rate of training step `number`, from 1."""
        warmup = self.steps * self.warmup
        if number <= warmup:
            return self.lr * number / warmup
        return self.lr * SCHEDULES[self.schedule](number - warmup - 1, self)


def constant(done: int, rate: LearningRate) -> float:
    """Return the factor 1 for every step."""
    return 1.0


def cosine(done: int, rate: LearningRate) -> float:
    """Return a factor that follows half a cosine from 1 to 0.

    The half cosine spans the epochs after warm-up (Loshchilov and Hutter 2017).
    """
    return (1 + math.cos(math.pi * done / (rate.steps * (rate.epochs - rate.warmup)))) / 2


def step(done: int, rate: LearningRate) -> float:
    """Return a factor that is multiplied by `step_factor` after every `step_every` epochs."""
    return rate.step_factor ** (done // (rate.steps * rate.step_every))


# factors of the learning rate after `done` steps behind warm-up, by a LearningRate
SCHEDULES = {"constant": constant, "cosine": cosine, "step": step}

"""Learning rates by the number of a training step, by name: pure, so a resumed run goes on.

In the steps of the first --warmup epochs the rate rises linearly to --lr; the schedule follows. A
full-batch epoch is one step.
"""
from __future__ import annotations

import math


def constant(done, config, steps):
    """Return 1."""
    return 1.0


def cosine(done, config, steps):
    """Half a cosine, from 1 to 0 over the epochs after warm-up (Loshchilov and Hutter 2017)."""
    return (1 + math.cos(math.pi * done / (steps * (config.epochs - config.warmup)))) / 2


def step(done, config, steps):
    """`step_factor` to the power of how often `step_every` epochs are done."""
    return config.step_factor ** (done // (steps * config.step_every))


# factors of the learning rate where `done` steps after warm-up were taken before, `steps` an epoch
SCHEDULES = {"constant": constant, "cosine": cosine, "step": step}


def learning_rate(number, config, steps=1):
    """The learning rate of a training step, from 1, where an epoch has so many steps."""
    warmup = steps * config.warmup
    if number <= warmup:
        return config.lr * number / warmup
    return config.lr * SCHEDULES[config.schedule](number - warmup - 1, config, steps)

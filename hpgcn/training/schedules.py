"""Learning rates by the number of a training step, by name: pure, so a resumed run goes on.

A full-batch epoch is one step. In the first --warmup of them the rate rises linearly to --lr; the
schedule follows.
"""
from __future__ import annotations

import math


def constant(done, config):
    """Return 1."""
    return 1.0


def cosine(done, config):
    """Half a cosine, from 1 to 0 over the epochs after warm-up (Loshchilov and Hutter 2017)."""
    return (1 + math.cos(math.pi * done / (config.epochs - config.warmup))) / 2


def step(done, config):
    """`step_factor` to the power of how often `step_every` steps are done."""
    return config.step_factor ** (done // config.step_every)


# factors of the learning rate where `done` steps after warm-up were taken before
SCHEDULES = {"constant": constant, "cosine": cosine, "step": step}


def learning_rate(number, config):
    """The learning rate of a training step, whose number is from 1 to config.epochs."""
    if number <= config.warmup:
        return config.lr * number / config.warmup
    return config.lr * SCHEDULES[config.schedule](number - config.warmup - 1, config)

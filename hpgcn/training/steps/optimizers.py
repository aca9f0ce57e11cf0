"""Optimizers by name, for one flat array of parameters."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.training.steps.schedules import LearningRate


class SGD:
    """Gradient descent on parameters (p,), which `step` changes in place.

    decay * w is added to the gradient (not decoupled) of the first `decayed` elements.
    `rate(number)` is the learning rate of a step, from 1. A gradient whose norm is
    above `clip_norm` is scaled down to it, unless that is 0.
    """

    MOMENTS = ()  # names of the arrays (p,) that steps leave behind besides the parameters

    def __init__(self, parameters: Array, *, rate: LearningRate, decay: float = 0.0,
                 decayed: int = 0, clip_norm: float = 0.0) -> None:
        self.parameters = parameters
        self.rate = rate
        self.decay = {"decay": decay, "decayed": decayed}
        self.clip_norm = clip_norm
        self.steps = 0
        self.previous = np.empty_like(parameters)
        self.moments = {name: np.zeros_like(parameters) for name in self.MOMENTS}

    def step(self, gradient: Array) -> None:
        """Update the parameters by one step.

        The gradient (p,) is clipped in place first.
        """
        self.steps += 1
        self.previous[:] = self.parameters
        if self.clip_norm:
            clip(gradient, self.clip_norm)
        self.update(gradient, self.rate(self.steps))

    def undo(self) -> None:
        """Set the parameters to those before the last step."""
        self.parameters[:] = self.previous

    def update(self, gradient: Array, lr: float) -> None:
        """Update the parameters with a learning rate."""
        kernels.backend(gradient).sgd(self.parameters, gradient, lr=lr, **self.decay)

    def restore(self, steps: int, moments: dict) -> None:
        """Set the past steps and the moments of the optimizer, to resume a run."""
        self.steps = steps
        for name, array in moments.items():
            self.moments[name][:] = array


class Adam(SGD):
    """Adam with bias correction (Kingma and Ba 2015).

    beta_1 is .9, beta_2 is .999 and epsilon is 1e-8.
    """

    MOMENTS = ("mean", "variance")

    def update(self, gradient: Array, lr: float) -> None:
        kernels.backend(gradient).adam(self.parameters, gradient, **self.moments, step=self.steps,
                                       lr=lr, **self.decay)


class AdamW(Adam):
    """Adam with decoupled weight decay.

    W *= 1 - lr * decay before each step (Loshchilov and Hutter 2019).
    """

    def update(self, gradient: Array, lr: float) -> None:
        self.parameters[:self.decay["decayed"]] *= 1 - lr * self.decay["decay"]
        kernels.backend(gradient).adam(self.parameters, gradient, **self.moments, step=self.steps,
                                       lr=lr)


OPTIMIZERS = {"adam": Adam, "adamw": AdamW, "sgd": SGD}


def clip(gradient: Array, limit: float) -> None:
    """Scale a gradient (p,) in place so that its L2 norm is at most `limit`.

    The factor is limit / (norm + 1e-6), at most 1, as `torch.nn.utils.clip_grad_norm_`
    takes it. The norm is summed in float64 in a fixed order, and never leaves the
    device.
    """
    column = gradient.reshape(-1, 1)
    norm = np.sqrt(kernels.backend(gradient).inner(column, column))
    gradient *= np.minimum(limit / (norm + 1e-6), 1).astype(gradient.dtype)

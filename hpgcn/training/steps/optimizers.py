"""Optimizers by name, for one flat array of parameters."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpgcn import kernels
from hpgcn.kernels.host.accesses import accessed

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.training.steps.schedules import LearningRate


class SGD:
    """Gradient descent on parameters (p,), which `step` changes in place.

    decay * w is added to the gradient (not decoupled) of the first `decayed` elements.
    `rate(number)` is the learning rate of a step, from 1. A gradient whose norm is
    above `clip_norm` is scaled down to it, unless that is 0. The last `own` elements
    belong to this rank alone: the norm is that of all ranks of `comm`.
    """

    MOMENTS = ()  # names of the arrays (p,) that steps leave behind besides the parameters

    def __init__(self, parameters: Array, *, rate: LearningRate, decay: float = 0.0,
                 decayed: int = 0, clip_norm: float = 0.0, own: int = 0,
                 comm: SerialComm | None = None) -> None:
        self.parameters = parameters
        self.rate = rate
        self.decay = {"decay": decay, "decayed": decayed}
        self.clip_norm = clip_norm
        self.shared = parameters.size - own
        self.comm = comm
        self.steps = 0
        self.previous = np.empty_like(parameters)
        self.moments = {name: np.zeros_like(parameters) for name in self.MOMENTS}

    def step(self, gradient: Array) -> None:
        """Update the parameters by one step.

        The gradient (p,) is clipped in place first.
        """
        self.steps += 1
        accessed((self.parameters,), (self.previous,))
        self.previous[:] = self.parameters
        if self.clip_norm:
            clip(gradient, self.clip_norm, self.shared, self.comm)
        self.update(gradient, self.rate(self.steps))

    def undo(self) -> None:
        """Set the parameters to those before the last step."""
        accessed((self.previous,), (self.parameters,))
        self.parameters[:] = self.previous

    def update(self, gradient: Array, lr: float) -> None:
        """Update the parameters with a learning rate."""
        kernels.backend(gradient).sgd(self.parameters, gradient, lr=lr, **self.decay)

    def restore(self, steps: int, moments: dict) -> None:
        """Set the past steps and the moments of the optimizer, to resume a run."""
        self.steps = steps
        for name, array in moments.items():
            accessed((array,), (self.moments[name],))
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
        accessed((), (self.parameters,))
        self.parameters[:self.decay["decayed"]] *= 1 - lr * self.decay["decay"]
        kernels.backend(gradient).adam(self.parameters, gradient, **self.moments, step=self.steps,
                                       lr=lr)


OPTIMIZERS = {"adam": Adam, "adamw": AdamW, "sgd": SGD}


def clip(gradient: Array, limit: float, shared: int, comm: SerialComm | None = None) -> None:
    """Scale a gradient (p,) in place so that its L2 norm is at most `limit`.

    The factor is limit / (norm + 1e-6), at most 1, as `torch.nn.utils.clip_grad_norm_`
    takes it. The norm is summed in float64 in a fixed order. It never leaves the device,
    unless elements from `shared` on are summed over the ranks of `comm`.
    """
    inner = kernels.backend(gradient).inner
    column = gradient[:shared].reshape(-1, 1)
    squares = inner(column, column)
    if comm:
        column = gradient[shared:].reshape(-1, 1)
        own = comm.device.numbers([inner(column, column)[0]]) if column.size else [0.0]
        squares = squares + float(comm.sum(own)[0])
    norm = np.sqrt(squares)
    accessed((), (gradient,))
    gradient *= np.minimum(limit / (norm + 1e-6), 1).astype(gradient.dtype)

"""Optimisers over one flat array of parameters, by name: plain objects with a step."""
from __future__ import annotations

import numpy as np

from hpgcn import kernels


class Adam:
    """Adam with bias correction, beta .9 and .999, epsilon 1e-8 (Kingma and Ba 2015).

    `step` changes the parameters (p,) in place. decay * w is added to the gradient (not decoupled)
    of the first `decayed` elements.
    """

    MOMENTS = ("mean", "variance")  # what `state` names

    def __init__(self, parameters, *, lr, decay=0.0, decayed=0):
        self.parameters = parameters
        self.settings = {"lr": lr, "decay": decay, "decayed": decayed}
        self.mean = np.zeros_like(parameters)
        self.variance = np.zeros_like(parameters)
        self.steps = 0

    def step(self, gradient):
        """Move the parameters by one step."""
        self.steps += 1
        kernels.backend(gradient).adam(self.parameters, gradient, self.mean, self.variance,
                                       step=self.steps, **self.settings)

    def state(self):
        """What steps have left behind besides the parameters: dict of (p,) arrays by name."""
        return {name: getattr(self, name) for name in self.MOMENTS}

    def restore(self, steps, state):
        """Go on as after so many steps, which left `state` behind."""
        self.steps = steps
        self.mean[:] = state["mean"]
        self.variance[:] = state["variance"]


class SGD:
    """Plain gradient descent; parameters as `Adam`."""

    MOMENTS = ()

    def __init__(self, parameters, *, lr, decay=0.0, decayed=0):
        self.parameters = parameters
        self.settings = {"lr": lr, "decay": decay, "decayed": decayed}

    def step(self, gradient):
        """Move the parameters by one step."""
        kernels.backend(gradient).sgd(self.parameters, gradient, **self.settings)

    def state(self):
        """Nothing: as `Adam.state`."""
        return {}

    def restore(self, steps, state):
        """Nothing to do: as `Adam.restore`."""


OPTIMIZERS = {"adam": Adam, "sgd": SGD}

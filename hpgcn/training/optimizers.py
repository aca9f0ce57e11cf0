"""Optimisers over one flat array of parameters, by name."""
from __future__ import annotations

import numpy as np

from hpgcn import kernels


class SGD:
    """Plain gradient descent on parameters (p,), which `step` changes in place.

    decay * w is added to the gradient (not decoupled) of the first `decayed` elements.
    """

    MOMENTS = ()  # names of the arrays (p,) that steps leave behind besides the parameters

    def __init__(self, parameters, *, lr, decay=0.0, decayed=0):
        self.parameters = parameters
        self.settings = {"lr": lr, "decay": decay, "decayed": decayed}
        self.steps = 0
        self.moments = {name: np.zeros_like(parameters) for name in self.MOMENTS}

    def step(self, gradient):
        """Move the parameters by one step."""
        kernels.backend(gradient).sgd(self.parameters, gradient, **self.settings)

    def restore(self, steps, moments):
        """Go on as after so many steps, which left these moments behind."""
        self.steps = steps
        for name, array in moments.items():
            self.moments[name][:] = array


class Adam(SGD):
    """Adam with bias correction, beta .9 and .999, epsilon 1e-8 (Kingma and Ba 2015)."""

    MOMENTS = ("mean", "variance")

    def step(self, gradient):
        self.steps += 1
        kernels.backend(gradient).adam(self.parameters, gradient, **self.moments, step=self.steps,
                                       **self.settings)


OPTIMIZERS = {"adam": Adam, "sgd": SGD}

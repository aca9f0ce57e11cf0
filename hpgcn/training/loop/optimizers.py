"""Optimisers over one flat array of parameters, by name."""
import numpy as np

from hpgcn import kernels


class SGD:
    """Plain gradient descent on parameters (p,), which `step` changes in place.

    decay * w is added to the gradient (not decoupled) of the first `decayed` elements.
    `rate(number)` is the learning rate of a step, from 1. A gradient whose norm is
    above `clip_norm` is scaled down to it, unless that is 0.
    """

    MOMENTS = ()  # names of the arrays (p,) that steps leave behind besides the parameters

    def __init__(self, parameters, *, rate, decay=0.0, decayed=0, clip_norm=0.0):
        self.parameters = parameters
        self.rate = rate
        self.decay = {"decay": decay, "decayed": decayed}
        self.clip_norm = clip_norm
        self.steps = 0
        self.moments = {name: np.zeros_like(parameters) for name in self.MOMENTS}

    def step(self, gradient):
        """Move the parameters by one step; the gradient (p,) is clipped in place."""
        self.steps += 1
        if self.clip_norm:
            clip(gradient, self.clip_norm)
        self.update(gradient, self.rate(self.steps))

    def update(self, gradient, lr):
        """Move the parameters at a learning rate."""
        kernels.backend(gradient).sgd(self.parameters, gradient, lr=lr, **self.decay)

    def restore(self, steps, moments):
        """Continue after `steps` steps, which left these moments behind."""
        self.steps = steps
        for name, array in moments.items():
            self.moments[name][:] = array


class Adam(SGD):
    """Adam with bias correction, beta .9 and .999, epsilon 1e-8 (Kingma and Ba 2015)."""

    MOMENTS = ("mean", "variance")

    def update(self, gradient, lr):
        kernels.backend(gradient).adam(self.parameters, gradient, **self.moments, step=self.steps,
                                       lr=lr, **self.decay)


class AdamW(Adam):
    """Adam whose decay is decoupled: w *= 1 - lr * decay first (Loshchilov and Hutter 2019)."""

    def update(self, gradient, lr):
        self.parameters[:self.decay["decayed"]] *= 1 - lr * self.decay["decay"]
        kernels.backend(gradient).adam(self.parameters, gradient, **self.moments, step=self.steps,
                                       lr=lr)


OPTIMIZERS = {"adam": Adam, "adamw": AdamW, "sgd": SGD}


def clip(gradient, limit):
    """Scale a gradient (p,) down in place to an L2 norm of `limit`, if it is above that.

    The factor is limit / (norm + 1e-6), at most 1, as `torch.nn.utils.clip_grad_norm_`
    takes it. The norm is summed in float64 in a fixed order, and never leaves the
    device.
    """
    column = gradient.reshape(-1, 1)
    norm = np.sqrt(kernels.backend(gradient).inner(column, column))
    gradient *= np.minimum(limit / (norm + 1e-6), 1).astype(gradient.dtype)

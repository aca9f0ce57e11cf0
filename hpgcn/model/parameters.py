"""All parameters of a model in one flat array, by name; keyed initial values."""
from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from hpgcn.cost.step import shapes
from hpgcn.device import HOST
from hpgcn.errors import DataError


@dataclass(frozen=True, eq=False)
class Parameters:
    """All weights and biases in one flat array (weights first), so that one reduction and one optimiser step do.

    Attributes
    ----------
    flat : (p,)
    arrays : dict of views into flat
        By name, in the order and of the shapes of hpgcn.cost.step.shapes.
    """

    flat: np.ndarray
    arrays: dict[str, np.ndarray]

    @staticmethod
    def zeros(widths, dtype, model="gcn", layer_norm=False, device=HOST):
        """Parameters of a model (one of hpgcn.cost.step.MODELS) of these widths, all 0, in the memory of a device."""
        found = shapes(widths, model, layer_norm)
        return Parameters.over(device.xp.zeros(sum(map(math.prod, found.values())), dtype), found)

    @staticmethod
    def over(flat, shapes):
        """Parameters that are a flat array, cut into these shapes by name."""
        ends = accumulate(map(math.prod, shapes.values()))
        return Parameters(flat, {name: flat[end - math.prod(shape):end].reshape(shape)
                                 for (name, shape), end in zip(shapes.items(), ends)})

    def on(self, device):
        """The same parameters in the memory of a device: these themselves on the host."""
        return Parameters.over(device.put(self.flat), {name: array.shape for name, array in self.arrays.items()})

    @staticmethod
    def initial(widths, dtype, seed, model="gcn", layer_norm=False):
        """Glorot uniform weights keyed by (seed, name of the weight), gains 1, all else 0: equal on every rank."""
        parameters = Parameters.zeros(widths, dtype, model, layer_norm)
        for name, array in parameters.arrays.items():
            if array.ndim == 2:
                limit = np.sqrt(6 / sum(array.shape))
                array[:] = ((2 * keyed_uniform(seed, name, array.size) - 1) * limit).reshape(array.shape)
            elif name.startswith("gain"):
                array[:] = 1
        return parameters

    @staticmethod
    def stored(arrays, dtype, layers, model, layer_norm, name):
        """Parameters from arrays by name, as a file holds them; returns them and the widths, (L + 1) int.

        Parameters
        ----------
        layers : int
        model : str
            One of hpgcn.cost.step.MODELS.
        layer_norm : bool
        name : str
            Of the file, for messages.

        Raises
        ------
        DataError
            An array is missing, is one too many, or is of another shape than its neighbours tell.
        """
        first = {"gin": "_a", "sage-mean": "_self"}.get(model, "")
        found = [arrays.get(f"W{layer}{first}", np.empty(0)) for layer in range(layers)]
        wrong = next((layer for layer, W in enumerate(found) if W.ndim != 2 or 0 in W.shape), None)
        if wrong is not None:
            raise DataError(f"{name}: weights/W{wrong}{first} is missing or no matrix, "
                            f"expected one for each of {layers} layers of {model}")
        bias = f"b{layers - 1}_b" if model == "gin" else f"b{layers - 1}"
        if not np.size(arrays.get(bias, ())):
            raise DataError(f"{name}: weights/{bias} is missing or empty, expected a bias for each class")
        widths = [*(W.shape[0] for W in found), arrays[bias].size]
        parameters = Parameters.zeros(widths, dtype, model, layer_norm)
        for key in sorted(parameters.arrays.keys() | arrays.keys()):
            shape = [each[key].shape if key in each else None for each in (arrays, parameters.arrays)]
            if shape[0] != shape[1]:
                raise DataError(f"{name}: weights/{key} has shape {shape[0]}, expected {shape[1]}")
            parameters.arrays[key][:] = arrays[key]
        return parameters, widths

    @property
    def weights(self):
        """List of the matrices."""
        return [array for array in self.arrays.values() if array.ndim == 2]

    @property
    def biases(self):
        """List of the vectors."""
        return [array for array in self.arrays.values() if array.ndim == 1]

    def decayed(self, which):
        """How many elements at the beginning of `flat` decay: the "first" layer's matrices, or "all"."""
        return sum(array.size for name, array in self.arrays.items()
                   if array.ndim == 2 and (which == "all" or name.partition("_")[0] == "W0"))

    def named(self):
        """Dict of views by name."""
        return dict(self.arrays)


def keyed_uniform(seed, name, count):
    """`count` float64 in [0, 1) that depend on (seed, name) alone; NumPy keeps the raw bits of Philox stable."""
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16], "little")
    return (np.random.Philox(key=key).random_raw(count) >> np.uint64(11)) * 2.0**-53

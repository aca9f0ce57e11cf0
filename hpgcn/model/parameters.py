"""All parameters of a model in one flat array, by name; keyed initial values."""
from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from hpgcn.errors import DataError
from hpgcn.model.layer import indexed
from hpgcn.model.registry import MODELS
from hpgcn.model.spec import ModelSpec
from hpgcn.runtime.device import HOST


@dataclass(frozen=True, eq=False)
class Parameters:
    """All weights and biases in one flat array (weights first), so that one reduction and one optimiser step do.

    Attributes
    ----------
    flat : (p,)
    arrays : dict of views into flat
        By name, in the order of `parameter_shapes`.
    """

    flat: np.ndarray
    arrays: dict[str, np.ndarray]

    @staticmethod
    def zeros(spec, device=HOST):
        """Return the parameters of a model, all 0, in the memory of a device."""
        shapes = parameter_shapes(spec)
        return Parameters.over(device.xp.zeros(sum(map(math.prod, shapes.values())), spec.dtype), shapes)

    @staticmethod
    def over(flat, shapes):
        """Cut a flat array into parameters of these shapes by name."""
        ends = accumulate(map(math.prod, shapes.values()))
        arrays = {name: flat[end - math.prod(shape):end].reshape(shape)
                  for (name, shape), end in zip(shapes.items(), ends)}
        return Parameters(flat, arrays)

    def on(self, device):
        """Return the same parameters in the memory of a device: these themselves on the host."""
        shapes = {name: array.shape for name, array in self.arrays.items()}
        return Parameters.over(device.put(self.flat), shapes)

    @staticmethod
    def initial(spec):
        """Glorot uniform weights keyed by (seed, name of the weight), gains 1, all else 0: equal on every rank."""
        parameters = Parameters.zeros(spec)
        for name, array in parameters.arrays.items():
            if array.ndim == 2:
                limit = np.sqrt(6 / sum(array.shape))
                uniform = keyed_uniform(spec.seed, name, array.size)
                array[:] = ((2 * uniform - 1) * limit).reshape(array.shape)
            elif name.startswith("gain"):
                array[:] = 1
        return parameters

    @staticmethod
    def stored(arrays, config, architecture, name):
        """Take parameters from arrays by name, as a file holds them; return them and their ModelSpec.

        Parameters
        ----------
        arrays : dict of ndarray
        config : hpgcn.Config
            Of the run that trained them.
        architecture : str
            One of hpgcn.model.MODELS.
        name : str
            Of the file, for messages.

        Raises
        ------
        DataError
            An array is missing, is one too many, or is of another shape than its neighbours tell.
        """
        layer = MODELS[architecture]
        matrix, bias = next(iter(layer.parameter_shapes(1, 1, 1))), layer.last_bias
        firsts = [indexed(matrix, number) for number in range(config.layers)]
        for key in firsts:
            W = arrays.get(key, np.empty(0))
            if W.ndim != 2 or 0 in W.shape:
                raise DataError(f"{name}: weights/{key} is missing or no matrix, "
                                f"expected one for each of {config.layers} layers of {architecture}")
        last = indexed(bias, config.layers - 1)
        if not np.size(arrays.get(last, ())):
            raise DataError(f"{name}: weights/{last} is missing or empty, expected a bias for each class")
        widths = [*(arrays[key].shape[0] for key in firsts), arrays[last].size]
        spec = ModelSpec(architecture, widths, config.dtype, layer_norm=config.layer_norm)
        parameters = Parameters.zeros(spec)
        for key in sorted(parameters.arrays.keys() | arrays.keys()):
            found, expected = (each[key].shape if key in each else None for each in (arrays, parameters.arrays))
            if found != expected:
                raise DataError(f"{name}: weights/{key} has shape {found}, expected {expected}")
            parameters.arrays[key][:] = arrays[key]
        return parameters, spec

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


def parameter_shapes(spec):
    """Names and shapes of a model's parameters: matrices first, in order of layers, then vectors.

    Returns
    -------
    dict of str -> tuple of int
        Those that each layer says, with its number; with layer norm each hidden layer has gain{l} and
        shift{l} (f',), too.
    """
    layer = MODELS[spec.architecture]
    matrices = {}
    vectors = {}
    for number, (fan_in, fan_out) in enumerate(spec.layers):
        own = layer.parameter_shapes(fan_in, layer.inner_width(spec.widths, number), fan_out)
        for name, shape in own.items():
            (matrices if len(shape) > 1 else vectors)[indexed(name, number)] = shape
        if spec.layer_norm and number + 1 < spec.num_layers:
            vectors |= {f"gain{number}": (fan_out,), f"shift{number}": (fan_out,)}
    return matrices | vectors


def num_parameters(spec):
    """Elements of all parameters of a model."""
    return sum(map(math.prod, parameter_shapes(spec).values()))


def keyed_uniform(seed, name, count):
    """`count` float64 in [0, 1) that depend on (seed, name) alone; NumPy keeps the raw bits of Philox stable."""
    key = int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16], "little")
    return (np.random.Philox(key=key).random_raw(count) >> np.uint64(11)) * 2.0**-53

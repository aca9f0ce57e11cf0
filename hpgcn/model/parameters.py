"""All parameters of a model in one flat array, with keyed initial values."""
from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.errors import DataError
from hpgcn.model.embedding import NAME as EMBEDDING
from hpgcn.model.keyed_values import keyed_uniform
from hpgcn.model.layers.layer import layer_of
from hpgcn.model.links.decoders import DECODERS
from hpgcn.model.model_parts import blocks_of
from hpgcn.model.registry import MODELS, find_model, find_widths, spec_of
from hpgcn.runtime.device import HOST

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.kernels import Array
    from hpgcn.model.spec import ModelSpec
    from hpgcn.runtime.device import Host


@dataclass(frozen=True, eq=False)
class Parameters:
    """All weights and biases in one flat array, and the learned rows of this rank.

    One array needs only one allreduce and one optimizer step.
    """

    flat: np.ndarray  # (p + m d_j,), weights first, learned rows last
    arrays: dict[str, np.ndarray]  # views into it by name, in the order of `parameter_shapes`
    shared: np.ndarray  # (p,), a view: the part that all ranks have
    rows: np.ndarray  # (m, d_j), a view: learned rows of this rank's vertices

    @staticmethod
    def zeros(spec: ModelSpec, device: Host = HOST, rows: tuple = (0, 0)) -> Parameters:
        """Return the parameters of a model, all 0, in the memory of `device`.

        `rows` is the shape of the learned rows of this rank.
        """
        flat = device.xp.zeros(num_parameters(spec) + math.prod(rows), spec.dtype)
        return Parameters.over(flat, parameter_shapes(spec), rows)

    @staticmethod
    def over(flat: Array, shapes: dict[str, tuple], rows: tuple = (0, 0)) -> Parameters:
        """Return Parameters whose arrays are views of a flat array.

        `shapes` are those of the arrays, in this order; `rows` that of learned rows.
        """
        ends = accumulate(map(math.prod, shapes.values()))
        arrays = {name: flat[end - math.prod(shape):end].reshape(shape)
                  for (name, shape), end in zip(shapes.items(), ends)}
        cut = flat.size - math.prod(rows)
        return Parameters(flat, arrays, flat[:cut], flat[cut:].reshape(rows))

    def on(self, device: Host) -> Parameters:
        """Return a copy in the memory of `device`.

        On the host, return views of the same array.
        """
        shapes = {name: array.shape for name, array in self.arrays.items()}
        return Parameters.over(device.put(self.flat), shapes, self.rows.shape)

    def with_rows(self, rows: np.ndarray) -> Parameters:
        """Return a copy with other learned rows, (m, d_j)."""
        shapes = {name: array.shape for name, array in self.arrays.items()}
        return Parameters.over(np.concatenate([self.shared, rows.ravel()]), shapes, rows.shape)

    @staticmethod
    def initial(spec: ModelSpec) -> Parameters:
        """Return initial values of parameters, without learned rows.

        Glorot uniform weights keyed by (seed, name), gains and variances 1, all others 0.

        They are equal on every rank.
        """
        parameters = Parameters.zeros(spec)
        for name, array in parameters.arrays.items():
            if array.ndim == 2:
                limit = np.sqrt(6 / sum(array.shape))
                uniform = keyed_uniform(spec.seed, name, array.size)
                array[:] = ((2 * uniform - 1) * limit).reshape(array.shape)
            elif name.startswith(("gain", "variance")):
                array[:] = 1
        return parameters

    @staticmethod
    def stored(arrays: dict[str, np.ndarray], options: Config,
               name: Any) -> tuple[Parameters, ModelSpec]:
        """Build Parameters from the arrays in a file; return them and the ModelSpec.

        `arrays` are by name; learned rows are left out. `options` are the Config of the
        run that trained them, `name` is that of the file. A UsageError as `find_model`; a
        DataError if an array is missing, is one too many, or has another shape than its
        neighbors imply.
        """
        arrays = {key: array for key, array in arrays.items() if key != EMBEDDING}

        # take the width of each layer from its first matrix
        architecture = find_model(options)
        widths = list(find_widths(options, architecture, 1 + options.embedding, 1))
        blocks = blocks_of(spec_of(options, architecture, widths, edge_width=1))
        for block in blocks:
            matrices = [key for key, shape in block.shapes().items() if len(shape) == 2]
            if not matrices:
                continue
            W = arrays.get(matrices[0], np.empty(0))
            if W.ndim != 2 or 0 in W.shape:
                raise DataError(f"{name}: weights/{matrices[0]} is missing or not a matrix, "
                                f"expected one for each of {options.layers} layers of "
                                f"{architecture}")
            widths[block.number] = W.shape[0]

        # take the number of classes from the last bias
        last = next(bias for each in reversed(blocks) if (bias := each.bias))
        if not np.size(arrays.get(last, ())):
            raise DataError(f"{name}: weights/{last} is missing or empty, "
                            "expected a bias for each class")
        classes = arrays[last].size
        widths[len(widths) - 1 - MODELS[architecture].after_mlp:] = (
            [classes] * (1 + MODELS[architecture].after_mlp))

        # compare all shapes, and fill the arrays
        maps = [arrays[key] for block in blocks for key in block.shapes()
                if key.startswith("W") and key.endswith("_edge") and np.ndim(arrays.get(key)) == 2]
        spec = spec_of(options, architecture, widths, edge_width=len(maps[0]) if maps else 0)
        parameters = Parameters.zeros(spec)
        for key in sorted(parameters.arrays.keys() | arrays.keys()):
            found, expected = (each[key].shape if key in each else None
                               for each in (arrays, parameters.arrays))
            if found != expected:
                raise DataError(f"{name}: weights/{key} has shape {found}, expected {expected}")
            parameters.arrays[key][:] = arrays[key]
        return parameters, spec

    @property
    def weights(self) -> list[np.ndarray]:
        """All matrices, a list."""
        return [array for array in self.arrays.values() if array.ndim == 2]

    @property
    def biases(self) -> list[np.ndarray]:
        """All vectors, a list."""
        return [array for array in self.arrays.values() if array.ndim == 1]

    def decayed(self, which: str) -> int:
        """Return the number of elements with weight decay.

        They are those of matrices, of the "first" layer or of "all" layers.
        """
        return sum(array.size for name, array in self.arrays.items()
                   if array.ndim == 2 and (which == "all" or layer_of(name) == 0))


def parameter_shapes(spec: ModelSpec) -> dict[str, tuple]:
    """Return the shapes of a model's parameters by name, matrices first.

    Matrices are in the order of layers, followed by the vectors. Each name has the
    number of the layer; see `hpgcn.model.model_parts.LayerBlock.shapes`. Layers of a decoder
    follow those of the encoder.
    """
    shapes = {name: shape for block in blocks_of(spec) for name, shape in block.shapes().items()}
    if spec.decoder:
        shapes |= DECODERS[spec.decoder].shapes(spec)
    matrices = {name: shape for name, shape in shapes.items() if len(shape) > 1}
    vectors = {name: shape for name, shape in shapes.items() if len(shape) == 1}
    return matrices | vectors


def num_parameters(spec: ModelSpec) -> int:
    """Return the number of elements of all parameters of a model."""
    return sum(map(math.prod, parameter_shapes(spec).values()))

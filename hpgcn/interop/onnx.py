"""Export models whose products with A come first or last to ONNX: the matrices between."""
from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from hpgcn.config import Config
from hpgcn.errors import UsageError, require
from hpgcn.model import norm_of
from hpgcn.model.layers.gcn import GraphConvolution
from hpgcn.model.layers.linear import Linear
from hpgcn.model.layers.norms import EPSILON
from hpgcn.model.layers.sgc import SimplifiedConvolution
from hpgcn.model.model_parts import blocks_of
from hpgcn.model.parameters import Parameters
from hpgcn.runtime.atomic import atomic_write
from hpgcn.training.files.run_directory import read_run

if TYPE_CHECKING:
    from hpgcn.model.model_parts import LayerBlock
    from hpgcn.model.spec import ModelSpec
    from hpgcn.training.files.result import Result

OPSET = 20  # the first with Gelu
FORMAT = 9  # version of the file format, of the release of this opset
ACTIVATIONS = {"relu": "Relu", "elu": "Elu", "gelu": "Gelu"}
WEIGHTED = (GraphConvolution, SimplifiedConvolution)  # A ... A H W + b
PURPOSE = "writing ONNX"


def export_onnx(run: Result | str | os.PathLike[str]) -> tuple[Any, str]:
    """Return the matrices of a model as an ONNX model, and text on its input and output.

    ONNX has no products with the adjacency A of a graph. So all of them must come before
    the matrices (gcn and sgc of one layer) or after them (appnp), where
    `hpgcn.propagation` computes them.

    Parameters
    ----------
    run : hpgcn.Result, str or path
        What `hpgcn.train` returned, a run directory, or its model.h5.

    Returns
    -------
    onnx.ModelProto
        Its input `x` is (n, f), its output `logits` (n, c), of the dtype of the weights.
    str
        What `x` is, and what remains to be done with `logits`.

    Raises
    ------
    UsageError
        The model has products with A in between.
    MissingError
        The package onnx is missing. Other errors as `hpgcn.predict`.

    Examples
    --------
    >>> from hpgcn.interop.onnx import export_onnx
    >>> A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))  # two triangles
    >>> y, masks = [0, 0, 0, 1, 1, 1], ([0, 3], [1, 4], [2, 5])
    >>> graph = hpgcn.Graph.from_scipy(A, np.eye(6), y, masks)
    >>> model, text = export_onnx(hpgcn.train(graph, hpgcn.Config(model="appnp", epochs=3)))
    >>> [node.op_type for node in model.graph.node]
    ['MatMul', 'Add', 'Relu', 'MatMul', 'Add']
    >>> print(text)
    x: the features, (n, 6)
    logits: (n, 2), after 10 times z = 0.9 A z + 0.1 h, where h is the output and z = h first
    A: hpgcn.propagation(graph, norm="sym")
    """
    helper = require("onnx.helper", "onnx", PURPOSE)
    weights, settings, attributes = read_run(run)
    parameters, spec = Parameters.stored(weights, Config(**settings), run)

    targets = "target_mean" in attributes
    if targets or spec.embedding or spec.decoder:
        what = ("targets" if targets else "learned rows of vertices" if spec.embedding else
                "a decoder of links")
        raise UsageError(f"ONNX: the model has {what}; write all results with `hpgcn predict`")

    # the nodes of each layer, in order
    *blocks, last = blocks_of(spec)
    if not last.kind.after_mlp:
        blocks.append(last)
    body = Body(helper, parameters.arrays)
    for block in blocks:
        _refuse(block, spec)
        body.add(block)

    # the model around them
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype))
    ends = [helper.make_tensor_value_info(name, kind, ["n", width])
            for name, width in (("x", spec.widths[0]), (body.finish(), spec.widths[-1]))]
    graph = helper.make_graph(body.nodes, "hpgcn", ends[:1], ends[1:], body.initializers)
    model = helper.make_model(graph, producer_name="hpgcn", ir_version=FORMAT,
                              opset_imports=[helper.make_opsetid("", OPSET)])
    require("onnx.checker", "onnx", PURPOSE).check_model(model)
    return model, _text(spec, blocks[0], last)


def save_onnx(path: str, model: Any, *, overwrite: bool = False) -> None:
    """Write an ONNX model, completely or not at all; errors as `atomic_write`."""
    atomic_write(path, model.SerializeToString(), overwrite)


def _refuse(block: LayerBlock, spec: ModelSpec) -> None:
    """Raise a UsageError for a layer with products with A inside, or around it."""
    first = block.number == 0 and issubclass(block.kind, WEIGHTED) and not block.residual
    if block.ffn or block.parts or spec.jump != "none" or not (block.kind is Linear or first):
        raise UsageError(
            f"model {spec.architecture} of {spec.num_layers} layers: ONNX has no products with a "
            "graph, so they must all come first (models gcn and sgc of one layer) or last (appnp); "
            "export to PyG, or write all results with `hpgcn predict`")


def _text(spec: ModelSpec, first: LayerBlock, last: LayerBlock) -> str:
    products = first.kind.products_of(spec)
    features = "the features" if first.kind is Linear else f"A^{products} times the features"
    logits = f"(n, {spec.widths[-1]})"
    if last.kind.after_mlp:
        logits += (f", after {spec.hops} times z = {1 - spec.restart:g} A z + {spec.restart:g} h, "
                   "where h is the output and z = h first")
    return "\n".join([f"x: {features}, (n, {spec.widths[0]})", f"logits: {logits}",
                      f'A: hpgcn.propagation(graph, norm="{norm_of(spec)}")'])


class Body:
    """The nodes and arrays of an ONNX graph, appended layer by layer."""

    def __init__(self, helper: Any, arrays: dict[str, np.ndarray]) -> None:
        self.helper = helper
        self.arrays = arrays
        self.nodes: list = []
        self.initializers: list = []
        self.value = "x"  # name of the last result

    def add(self, block: LayerBlock) -> None:
        """Append the nodes of a layer: matrix, bias, norm and activation."""
        own = {re.sub(r"^([a-z]+)\d+", r"\1", name, flags=re.IGNORECASE): self.arrays[name]
               for name in block.shapes()}
        self._apply("MatMul", own["W"])
        self._apply("Add", own["b"])
        if block.norm == "layer":
            self._apply("LayerNormalization", own["gain"], own["shift"], epsilon=EPSILON)
        elif block.norm == "batch":
            scale = own["gain"] / np.sqrt(own["variance"] + own["gain"].dtype.type(EPSILON))
            self._apply("Mul", scale)
            self._apply("Add", own["shift"] - own["mean"] * scale)
        if block.activation:
            self._apply(ACTIVATIONS[block.activation])

    def finish(self) -> str:
        """Name the last result "logits", and return this name."""
        self.nodes[-1].output[0] = "logits"
        return "logits"

    def _apply(self, kind: str, *arrays: np.ndarray, **attributes: Any) -> None:
        """Append a node that reads the last result and some arrays."""
        number = len(self.nodes)
        names = [f"array{number}.{place}" for place in range(len(arrays))]
        numpy_helper = require("onnx.numpy_helper", "onnx", PURPOSE)
        self.initializers += [numpy_helper.from_array(np.ascontiguousarray(array), name)
                              for name, array in zip(names, arrays)]
        value = f"value{number}"
        self.nodes.append(self.helper.make_node(kind, [self.value, *names], [value], **attributes))
        self.value = value

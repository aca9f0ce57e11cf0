"""Export trained models to PyG: a state_dict, and Python code that loads it."""
from __future__ import annotations

import io
import json
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hpgcn.config import Config
from hpgcn.errors import UsageError, setting
from hpgcn.interop.torch.state_dict import TENSORS
from hpgcn.model import norm_of
from hpgcn.model.embedding import NAME as EMBEDDING
from hpgcn.model.layers.appnp import PersonalizedPropagation
from hpgcn.model.layers.gat import GraphAttention
from hpgcn.model.layers.gcn import GraphConvolution
from hpgcn.model.layers.gin import GraphIsomorphism
from hpgcn.model.layers.gine import EdgeIsomorphism
from hpgcn.model.layers.linear import Linear
from hpgcn.model.layers.sage import SageMean
from hpgcn.model.layers.sgc import SimplifiedConvolution
from hpgcn.model.links.decoders import DECODERS, DistMult, Dot, Hadamard
from hpgcn.model.model_parts import blocks_of
from hpgcn.model.parameters import Parameters
from hpgcn.runtime.atomic import atomic_write
from hpgcn.store import SCALE
from hpgcn.training.files.run_directory import read_run
from hpgcn.training.saved.learned_rows import check_learned

if TYPE_CHECKING:
    from hpgcn.training.files.result import Result

ACTIVATIONS = {"relu": "torch.relu", "elu": "torch.nn.functional.elu",
               "gelu": "torch.nn.functional.gelu"}
MLP = ("torch.nn.Sequential(torch.nn.Linear({fan_in}, {inner}), torch.nn.ReLU(), "
       "torch.nn.Linear({inner}, {fan_out}))")
CODES = {  # layer: the code that makes PyG's
    GraphConvolution: "GCNConv({fan_in}, {fan_out})",
    SageMean: "SAGEConv({fan_in}, {fan_out})",
    GraphIsomorphism: f"GINConv({MLP}, train_eps=True)",
    EdgeIsomorphism: f"GINEConv({MLP}, train_eps=True, edge_dim={{edge_width}})",
    GraphAttention: "GATConv({fan_in}, {width}, heads={heads}{averaged})",
    SimplifiedConvolution: "SGConv({fan_in}, {fan_out}, K={hops})",
    PersonalizedPropagation: "APPNP({hops}, {restart:g})"}
WEIGHTED = (GraphConvolution, SimplifiedConvolution, PersonalizedPropagation)  # read edge weights


def export_pyg(run: Result | str | os.PathLike[str], *,
               file: str = "model.pt") -> tuple[dict[str, torch.Tensor], str]:
    """Return the model of a run as a state_dict, and PyG code that loads it.

    Parameters
    ----------
    run : hpgcn.Result, str or path
        What `hpgcn.train` returned, a run directory, or its model.h5.
    file : str
        Name of the file that the code loads.

    Returns
    -------
    state_dict : dict of tensors by name
    code : str
        Python code that builds the model from PyG's layers and loads that file. Its
        logits are those of `hpgcn.predict`, except for rounding. Of a model of targets it
        ends with their scale. A model of links returns rows z of vertices, and has
        `decode(z, edge_label_index)`, the scores of pairs.

    Raises
    ------
    UsageError
        PyG has no layer like one of the model's; other errors as `hpgcn.predict`.

    Examples
    --------
    >>> from hpgcn.interop.torch import export_pyg
    >>> A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))  # two triangles
    >>> y, masks = [0, 0, 0, 1, 1, 1], ([0, 3], [1, 4], [2, 5])
    >>> graph = hpgcn.Graph.from_scipy(A, np.eye(6), y, masks)
    >>> state, code = export_pyg(hpgcn.train(graph, hpgcn.Config(hidden=4, epochs=3)))
    >>> {name: tuple(tensor.shape) for name, tensor in state.items()}
    {'conv0.bias': (4,), 'conv0.lin.weight': (4, 6), 'conv1.bias': (2,), 'conv1.lin.weight': (2, 4)}
    """
    # read the trained weights
    weights, settings, attributes = read_run(run)
    config = Config(**settings)
    parameters, spec = Parameters.stored(weights, config, run)
    learned = check_learned(weights, spec.embedding, run)

    # walk through the layers, then write tensors and code
    export = Export(spec, {**parameters.arrays, EMBEDDING: learned})
    export.follow()
    if spec.decoder:
        export.follow_decoder()
    code = export.code(file)
    if SCALE[0] in attributes:
        code += "\n# predictions are model(...) * target_deviation + target_mean\n"
        code += "".join(f"{name} = torch.tensor({np.ravel(attributes[name]).tolist()})\n"
                        for name in SCALE)
    return export.tensors(), code


def save_state_dict(path: str | os.PathLike[str], state: dict[str, torch.Tensor], *,
                    overwrite: bool = False) -> None:
    """Write a state_dict in the format of torch.save, completely or not at all.

    Errors are those of `atomic_write`.

    Examples
    --------
    >>> import os, tempfile, torch
    >>> from hpgcn.interop.torch import save_state_dict
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.pt")
    ...     save_state_dict(path, {"bias": torch.ones(2)})
    ...     print(torch.load(path))
    {'bias': tensor([1., 1.])}
    """
    content = io.BytesIO()  # torch.save to a full disk raises a RuntimeError
    torch.save(state, content)
    atomic_write(path, content.getbuffer(), overwrite)


class Export:
    """The code of a model with PyG layers, built layer by layer.

    It has attributes, lines of `forward`, and tensors.
    """

    def __init__(self, spec: Any, arrays: dict[str, np.ndarray]) -> None:
        self.spec = spec
        self.arrays = arrays
        self.attributes = {}  # name of an attribute -> the code that makes it
        self.statements = []  # statements of forward
        self.decode = []  # the method decode, of a model of links
        self.state = {}
        self.used = set()  # names of torch_geometric.nn
        self.weighted = False  # whether a layer reads weights of edges

    def follow(self) -> None:
        """Append all layers of the model in order."""
        spec = self.spec
        blocks = blocks_of(spec)
        if spec.embedding:
            rows = self.arrays[EMBEDDING]
            self.attributes[EMBEDDING] = f"torch.nn.Embedding{rows.shape}"
            self.state[f"{EMBEDDING}.weight"] = rows
            both = "torch.cat([x, self.embedding.weight], 1)"
            self.statements.append(f"x = {both if spec.num_features else 'self.embedding.weight'}")
        self._dropout(spec.first_dropout)
        if spec.jump != "none":
            self.statements.append("found = []")
        for block in blocks:
            last = block.number + 1 == len(blocks)
            if spec.jump != "none" and last:
                jump = self._make("jump", f'{self._name("JumpingKnowledge")}("{spec.jump}")')
                self.statements.append(f"x = self.{jump}(found)")
            self._block(block)
            if spec.jump != "none" and block.number >= spec.linear_first and not last:
                self.statements.append("found.append(x)")

    def follow_decoder(self) -> None:
        """Write the method `decode` of a model of links."""
        kind = DECODERS[self.spec.decoder]
        decoder = kind(self.spec, self.arrays)
        forward, self.statements = self.statements, []
        if isinstance(decoder, DistMult):
            gain = self.state["gain"] = decoder.arrays[decoder.name]
            self.attributes["gain"] = f"torch.nn.Parameter(torch.ones({gain.size}))"
            self.statements.append("p = p * self.gain")
        elif isinstance(decoder, Hadamard):
            for number in decoder.numbers:
                if number > decoder.numbers[0]:
                    self.statements.append("p = torch.relu(p)")
                W, b = (decoder.arrays[f"{name}{number}_decoder"] for name in "Wb")
                self._linear(W, b, "p")
        elif kind is not Dot:
            raise UsageError(f"{setting('decoder', self.spec.decoder)}: not written as code of PyG")
        self.decode = ["", "    def decode(self, z, edge_label_index):",
                       "        p = z[edge_label_index[0]] * z[edge_label_index[1]]",
                       *(f"        {line}" for line in self.statements),
                       "        return p.sum(-1)"]
        self.statements = forward

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the state_dict."""
        return {name: torch.from_numpy(np.array(array)) for name, array in self.state.items()}

    def code(self, file: str) -> str:
        """Return the Python code that defines the model and loads its state_dict from `file`."""
        inputs = "x, edge_index" + ", edge_attr" * bool(self.spec.edge_width)
        inputs += ", edge_weight=None" * self.weighted
        *before, last = self.statements

        return "\n".join([
            "import torch",
            f"from torch_geometric.nn import {', '.join(sorted(self.used))}",
            "",
            "class Model(torch.nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        self.{name} = {code}" for name, code in self.attributes.items()),
            "",
            f"    def forward(self, {inputs}):",
            *(f"        {line}" for line in before),
            f"        return {last.removeprefix('x = ')}",
            *self.decode,
            "",
            "model = Model()",
            f"model.load_state_dict(torch.load({json.dumps(file)}, weights_only=True))",
            "model.eval()"]) + "\n"

    def _name(self, name: str) -> str:
        self.used.add(name)
        return name

    def _make(self, kind: str, code: str, **state: np.ndarray) -> str:
        """Add an attribute named `kind` plus a number, with its tensors."""
        number = sum(name.startswith(kind) for name in self.attributes)
        name = f"{kind}{number}"
        self.attributes[name] = code
        self.state |= {f"{name}.{key}": array for key, array in state.items()}
        return name

    def _dropout(self, p: float) -> None:
        if p:
            self.statements.append(f"x = torch.nn.functional.dropout(x, {p:g}, self.training)")

    def _activate(self, block: Any) -> None:
        if block.activation:
            self.statements.append(f"x = {ACTIVATIONS[block.activation]}(x)")

    def _block(self, block: Any) -> None:
        arrays = self._arrays_of(block)
        if block.residual:
            self.statements.append("before = x")
        if block.norm != "none" and block.norm_first:
            self._norm(block, arrays)

        # the layer, and the second linear map
        self._layer(block, arrays)
        if block.ffn:
            self._activate(block)
            self._dropout(block.dropout)
            self._linear(arrays["W_ffn"], arrays["b_ffn"])
            self._dropout(block.dropout)

        # the residual connection
        if block.residual == "matrix":
            self._linear(arrays["W_res"], None, "before")
        if block.residual:
            self.statements.append("x = x + before")

        # the stages after the layer
        if block.norm != "none" and not block.norm_first:
            self._norm(block, arrays)
        if not block.ffn:
            self._activate(block)
            self._dropout(block.dropout)

    def _arrays_of(self, block: Any) -> dict[str, np.ndarray]:
        """Return the arrays of a block by their names without the layer: W_a for W0_a."""
        return {re.sub(r"^([a-z]+)\d+", r"\1", name, flags=re.IGNORECASE): self.arrays[name]
                for name in block.shapes()}

    def _layer(self, block: Any, own: dict[str, np.ndarray]) -> None:
        kind, spec = block.kind, self.spec
        if block.parts:
            W = np.concatenate([own[f"W_{part}"] for part in range(len(block.parts))])
            return self._linear(W, own["b"])
        if kind is Linear:
            return self._linear(own["W"], own["b"])
        if kind not in CODES:
            raise UsageError(f"model {spec.architecture}: PyG has no equivalent layer")

        # the arguments of PyG's layer
        facts = {"fan_in": block.fan_in, "fan_out": block.fan_out, "hops": spec.hops,
                 "restart": spec.restart, "edge_width": spec.edge_width}
        if "b_a" in own:
            facts["inner"] = own["b_a"].size
        if kind.uses_attention:
            facts["heads"], facts["width"] = own["a_self"].shape
            facts["averaged"] = ", concat=False" * (block.number + 1 == spec.num_layers)
        return self._conv(CODES[kind].format_map(facts), own, weighted=kind in WEIGHTED)

    def _linear(self, W: np.ndarray, b: np.ndarray | None, of: str = "x") -> None:
        bias = {} if b is None else {"bias": b}
        said = ", bias=False" * (b is None)
        name = self._make("lin", f"torch.nn.Linear({W.shape[0]}, {W.shape[1]}{said})", weight=W.T,
                          **bias)
        self.statements.append(f"{of} = self.{name}({of})")

    def _norm(self, block: Any, own: dict[str, np.ndarray]) -> None:
        scaled = {"weight": own["gain"], "bias": own["shift"]}
        code = f"torch.nn.LayerNorm({block.norm_width})"
        if block.norm == "batch":
            code = f"torch.nn.BatchNorm1d({block.norm_width})"
            scaled |= {"running_mean": own["mean"], "running_var": own["variance"],
                       "num_batches_tracked": np.int64(0)}
        self.statements.append(f"x = self.{self._make('norm', code, **scaled)}(x)")

    def _conv(self, code: str, own: dict[str, np.ndarray], *, weighted: bool) -> None:
        """Append a layer that multiplies by A.

        UsageError if it reads edge weights and does not normalize by in-degree.
        """
        if weighted and norm_of(self.spec) not in ("sym", "in"):
            raise UsageError(f"{setting('norm_adj', norm_of(self.spec))}: PyG's layer normalizes "
                             "by in-degrees")
        layer = self._name(code.partition("(")[0])
        self.weighted |= weighted
        state = {tensor: _like_pyg(tensor, own[name])
                 for name, tensor in TENSORS.get(layer, {}).items()}
        inputs = "x, edge_index" + ", edge_attr" * bool(self.spec.edge_width)
        inputs += ", edge_weight" * weighted
        self.statements.append(f"x = self.{self._make('conv', code, **state)}({inputs})")


def _like_pyg(tensor: str, array: np.ndarray) -> np.ndarray:
    """Return an array in the form of PyG's tensor of this name."""
    if tensor.endswith("weight"):
        return array.T
    return array[None] if tensor.startswith("att_") else array

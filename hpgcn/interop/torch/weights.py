"""Apply weights of PyG models here, and load weights into other PyG models.

Facts missing in a state_dict take PyG's default: the aggregator (mean), the slope of
attention (0.2). Batch normalization, in evaluation an affine map of columns, is folded
into the layer before it.
"""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpgcn.comm import as_comm
from hpgcn.config import Config
from hpgcn.errors import DataError, UsageError, setting
from hpgcn.interop.torch.state_dict import TENSORS, Module, as_arrays, modules_of, tensors_of
from hpgcn.model import MODELS, find_model
from hpgcn.model.layers.gat import GraphAttention
from hpgcn.model.layers.gcn import GraphConvolution
from hpgcn.model.layers.gin import GraphIsomorphism
from hpgcn.model.layers.layer import indexed
from hpgcn.model.layers.norms import EPSILON
from hpgcn.model.layers.sage import SageMean
from hpgcn.model.layers.sgc import SimplifiedConvolution
from hpgcn.training.inference import predict
from hpgcn.training.setup.placement import opened

if TYPE_CHECKING:
    import torch
    from mpi4py.MPI import Comm

    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.graphs.header import Header

KINDS = {"GCNConv": GraphConvolution, "SGConv": SimplifiedConvolution, "SAGEConv": SageMean,
         "GATConv": GraphAttention, "GINConv": GraphIsomorphism}
UNWEIGHTED = ("SAGEConv", "GINConv")  # layers of PyG that ignore edge weights
READ = f"expected {', '.join(KINDS)} and batch normalization only"


class Trained(NamedTuple):
    """Trained weights for `hpgcn.predict`: arrays by name, settings and source."""

    weights: dict
    config: Config
    name: str
    weighted: bool  # whether its layers read weights of edges


def predict_pyg(graph: GraphSource | str | os.PathLike[str],
                model: dict[str, Any] | str | os.PathLike[str], comm: Comm | None = None, *,
                activation: str = "own", device: str = "auto") -> dict[str, np.ndarray] | None:
    """Apply a trained model of PyG to all vertices of a graph; all ranks call this together.

    Parameters
    ----------
    graph, comm, device
        As for `hpgcn.predict`.
    model, activation
        As for `read_pyg`.

    Returns
    -------
    dict or None
        As `hpgcn.predict`: on rank 0 the logits that PyG's forward gives, but for rounding.

    Raises
    ------
    DataError
        The graph has weights, and the layers read none; others as `read_pyg`.

    Examples
    --------
    >>> from hpgcn.interop.torch import export_pyg, predict_pyg
    >>> A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))  # two triangles
    >>> y, masks = [0, 0, 0, 1, 1, 1], ([0, 3], [1, 4], [2, 5])
    >>> graph = hpgcn.Graph.from_scipy(A, np.eye(6), y, masks)
    >>> result = hpgcn.train(graph, hpgcn.Config(hidden=4, epochs=3))
    >>> found = predict_pyg(graph, export_pyg(result)[0])
    >>> np.allclose(found["logits"], hpgcn.predict(graph, result)["logits"])
    True
    """
    ranks: Any = as_comm(comm)  # predict takes it as it is

    # refuse weighted edges if the layers read no weights
    with ranks.collective_errors():
        trained = read_pyg(model, activation=activation)
    with opened(graph, ranks) as source:
        with ranks.collective_errors():
            _check_weights(source.header, trained)
        return predict(source, trained, ranks, device=device)


def _check_weights(header: Header, trained: Any) -> None:
    """Raise DataError if the layers would treat the graph's edges differently from PyG."""
    layer = MODELS[find_model(trained.config)]
    if header.parallel_edges and layer.uses_attention:
        raise DataError(f"{header.name}: has repeated edges, which the attention of {trained.name} "
                        "counts, but hpgcn reads once: make the graph with "
                        f"{setting('duplicates', 'merge')}")
    if not (trained.weighted or header.all_ones or header.parallel_edges):
        raise DataError(f"{header.name}: has edge weights, which the layers of {trained.name} "
                        "ignore; set all weights to 1 with `hpgcn convert --unweighted`, or with "
                        "unweighted=True in Graph.from_scipy or hpgcn.from_pyg")


def read_pyg(model: Any, *, activation: str = "own") -> Any:
    """Read the weights of a trained PyG model: GCN, SAGE (mean), GIN, GAT or SGC layers.

    The model is a chain of layers of one kind.

    Parameters
    ----------
    model : str, path or dict
        A state_dict, or a file in which torch.save wrote it.
    activation : "own", "relu", "elu" or "gelu"
        The activation between layers. With own it is ELU for GAT, else ReLU.

    Returns
    -------
    Trained

    Raises
    ------
    DataError, which names the tensor
        A tensor belongs to no such layer, or does not fit the adjacent layers.
    InputNotFoundError
        There is no such file.
    """
    # find the layers by the names of their tensors
    name = "the state_dict" if isinstance(model, dict) else str(model)
    tensors = as_arrays(tensors_of(model, name), name)
    modules = modules_of(tensors)
    for module in modules:
        is_norm = module.kind == "norm" and "running_mean" in module.keys
        if module.kind not in KINDS and not is_norm:
            raise DataError(f"{name}: {next(iter(module.keys.values()))} belongs to an unsupported "
                            f"layer, {READ}")

    # refuse mixtures of layers, and norms that do not alternate with layers
    layers = [module for module in modules if module.kind in KINDS]
    norms = [module for module in modules if module.kind == "norm"]
    kinds = sorted({module.kind for module in layers})
    if len(kinds) != 1:
        raise DataError(f"{name}: layers of kinds: {' and '.join(kinds) or 'none'}; expected one "
                        f"kind of {', '.join(KINDS)}")
    if norms and len(norms) not in (len(layers) - 1, len(layers)):
        raise DataError(f"{name}: {len(norms)} batch normalizations and {len(layers)} layers; "
                        "expected one after each layer, or after each except the last")

    # read each layer, and fold its norm into it
    reader = LayerReader(tensors, name, len(layers))
    layer_arrays = [reader.read(layer, number) for number, layer in enumerate(layers)]
    for number, norm in enumerate(norms):
        layer_arrays[number] = reader.folded(layer_arrays[number], norm)

    config = reader.config(KINDS[kinds[0]], layer_arrays, activation)
    weights = {indexed(key, number): array for number, arrays in enumerate(layer_arrays)
               for key, array in arrays.items()}
    return Trained(weights, config, name, kinds[0] not in UNWEIGHTED)


class LayerReader:
    """Converts the layers of a PyG state_dict to arrays with the names in `Layer.shapes`."""

    def __init__(self, tensors: dict[str, np.ndarray], name: str, layers: int) -> None:
        self.tensors = tensors
        self.name = name
        self.layers = layers

    def read(self, module: Module, number: int) -> dict[str, np.ndarray]:
        """Return the arrays, by name, of the PyG `module` that is layer `number`."""
        last = number + 1 == self.layers
        read = READERS.get(module.kind, LayerReader._linear)
        return read(self, ModuleTensors(self, module), last)

    def folded(self, arrays: dict[str, np.ndarray], norm: Module) -> dict[str, np.ndarray]:
        """Return the arrays of a layer, merged with the batch normalization behind it."""
        last = "b_b" if "b_b" in arrays else "b"
        b = arrays[last]
        taken = ModuleTensors(self, norm)
        mean, variance = (taken.vector(key, b.size) for key in ("running_mean", "running_var"))
        gain = taken.vector("weight", b.size, default=1)
        shift = taken.vector("bias", b.size, default=0)
        taken.done("num_batches_tracked")

        # scale the columns of the last matrix
        factor = gain.astype(np.float64) / np.sqrt(variance.astype(np.float64) + EPSILON)
        vectors = {"a_self", "a_neighbour"} & arrays.keys()
        scaled = {key: array * factor if key[0] == "W" and key != "W_a" else array
                 for key, array in arrays.items()}

        # attention reads the scaled columns: its vectors are scaled back
        if vectors and not factor.all():
            raise DataError(f"{self.name}: {norm.path} multiplies a column by 0")
        for key in vectors:
            scaled[key] = arrays[key] / factor.reshape(arrays[key].shape)

        scaled[last] = (b - mean) * factor + shift
        return {key: np.ascontiguousarray(array, b.dtype) for key, array in scaled.items()}

    def _linear(self, taken: ModuleTensors, last: bool) -> dict[str, np.ndarray]:
        tensors = TENSORS[taken.module.kind]
        arrays = {name: taken.matrix(own) for name, own in tensors.items() if name != "b"}
        width = next(iter(arrays.values())).shape[1]
        arrays["b"] = taken.vector(tensors["b"], width, default=0)
        taken.done()
        return arrays

    def _gat(self, taken: ModuleTensors, last: bool) -> dict[str, np.ndarray]:
        W = taken.matrix("lin.weight")
        a_self, a_neighbour = (taken.take(key, 3)[0] for key in ("att_dst", "att_src"))
        heads, width = a_neighbour.shape
        if a_self.shape != a_neighbour.shape or W.shape[1] != heads * width:
            raise DataError(f"{self.name}: {taken.module.path}: the shapes of lin.weight, att_src "
                            "and att_dst do not match")
        if heads > 1 and last == (taken.size("bias", width) != width):
            raise DataError(f"{self.name}: {taken.module.path}.bias: expected heads that are "
                            "averaged in the last layer and concatenated in the others")
        b = taken.vector("bias", width if last else heads * width, default=0)
        taken.done()
        return {"W": W, "a_self": a_self, "a_neighbour": a_neighbour, "b": b}

    def _gin(self, taken: ModuleTensors, last: bool) -> dict[str, np.ndarray]:
        """Return both linear maps of a GIN layer; a norm between them is merged into the first.

        Here the layer may be wider than in PyG; the additional units are 0 and change
        nothing.
        """
        W_a, W_b = taken.matrix("nn.0.weight"), taken.matrix("nn.1.weight")
        b_a, b_b = (taken.vector(f"nn.{place}.bias", W.shape[1], default=0)
                    for place, W in enumerate((W_a, W_b)))
        eps = taken.vector("eps", 1, default=0)

        # fold the norm between the two maps into the first
        norm = {key.removeprefix("nn.norm0."): at for key, at in taken.module.keys.items()
                if key.startswith("nn.norm0.")}
        taken.done(*(f"nn.norm0.{key}" for key in norm))
        if norm:
            inner = self.folded({"W": W_a, "b": b_a},
                                Module(f"{taken.module.path}.nn", "norm", norm))
            W_a, b_a = inner["W"], inner["b"]

        # fill up with zeros to the width that the next layer has
        wanted = W_b.shape[1] if self.layers == 1 or not last else W_a.shape[0]
        more = wanted - b_a.size
        if more < 0:
            raise DataError(f"{self.name}: {taken.module.path}.nn has {b_a.size} inner units, "
                            f"expected at most {wanted}")

        return {"W_a": np.pad(W_a, ((0, 0), (0, more))), "W_b": np.pad(W_b, ((0, more), (0, 0))),
                "b_a": np.pad(b_a, (0, more)), "b_b": b_b, "eps": eps}

    def config(self, kind: type, found: list[dict], activation: str) -> Config:
        """Return the Config of a model with these layers."""
        word = next(each for each, layer in MODELS.items() if layer is kind)
        model, _, aggregator = word.partition("-")

        settings: dict[str, Any] = {"model": model, "layers": len(found), "activation": activation}
        if aggregator:
            settings["aggregator"] = aggregator
        if any(array.dtype == np.float64 for arrays in found for array in arrays.values()):
            settings["dtype"] = "float64"
        if kind.any_norm:
            settings["norm_adj"] = "in"

        # heads and widths
        if kind.uses_attention:
            *others, last = (len(arrays["a_self"]) for arrays in found)
            if len({*others}) > 1:
                raise DataError(f"{self.name}: layers have {', '.join(map(str, others))} heads, "
                                "expected the same number in all except the last")
            settings |= {"heads": (others or [last])[0], "output_heads": last}
            settings["hidden"] = settings["heads"]  # widths are those of the arrays

        return Config(**settings)


READERS = {"GATConv": LayerReader._gat, "GINConv": LayerReader._gin}


class ModuleTensors:
    """The tensors of one PyG module; it records which of them were read."""

    def __init__(self, reader: LayerReader, module: Module) -> None:
        self.reader = reader
        self.module = module
        self.unread = set(module.keys)

    def take(self, own: str, ndim: int) -> np.ndarray:
        """Return the tensor named `own`, which must have `ndim` dimensions, as an array."""
        key = self.module.keys.get(own)
        if key is None:
            raise DataError(f"{self.reader.name}: {self.module.path} ({self.module.kind}) has no "
                            f"{own}" + ", expected two linear maps" * own.startswith("nn."))
        self.unread.discard(own)
        array = self.reader.tensors[key]
        if array.ndim != ndim or 0 in array.shape:
            raise DataError(f"{self.reader.name}: {key} has shape {array.shape}, expected {ndim} "
                            "dimensions")
        return array

    def matrix(self, own: str) -> np.ndarray:
        """Return the transpose of a weight matrix, by which hpgcn multiplies from the right."""
        return np.ascontiguousarray(self.take(own, 2).T)

    def size(self, own: str, default: int) -> int:
        """Return the number of elements of a tensor; `default` if it is missing or was read."""
        return self.reader.tensors[self.module.keys[own]].size if own in self.unread else default

    def vector(self, own: str, width: int, default: float | None = None) -> np.ndarray:
        """Return a vector with `width` elements; if it is missing, all of them are `default`."""
        if own not in self.module.keys and default is not None:
            return np.full(width, default, np.float32)
        key = self.module.keys.get(own)
        array = self.take(own, self.reader.tensors[key].ndim if key else 1).reshape(-1)
        if array.size != width:
            raise DataError(f"{self.reader.name}: {key} has {array.size} numbers, expected {width}")
        return array

    def done(self, *ignored: str) -> None:
        """Raise DataError if a tensor of the module was never read, except those in `ignored`."""
        left = sorted(self.unread - {*ignored})
        if left:
            raise DataError(f"{self.reader.name}: {self.module.keys[left[0]]} is not expected in a "
                            f"{self.module.kind}")


def load_pyg(model: torch.nn.Module, state_dict: dict[str, torch.Tensor]) -> torch.nn.Module:
    """Load weights into a PyG model with other module names; layers of each kind match in order.

    Parameters
    ----------
    model : torch.nn.Module
        A model of the same layers, such as a class of your own with conv1 and conv2.
    state_dict : dict of tensors
        The result of `export_pyg`, or of torch.load for a file of `hpgcn export`.

    Returns
    -------
    The model.

    Raises
    ------
    UsageError
        The layers differ, or these are no module and no dict; nothing is loaded.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.nn import GCNConv
    >>> from hpgcn.interop.torch import load_pyg
    >>> source = torch.nn.Sequential(GCNConv(3, 2))
    >>> model = torch.nn.ModuleDict({"mine": GCNConv(3, 2)})
    >>> model = load_pyg(model, source.state_dict())
    >>> torch.equal(model["mine"].lin.weight, source[0].lin.weight)
    True
    """
    # refuse other objects
    if not hasattr(model, "load_state_dict") or not isinstance(state_dict, dict):
        raise UsageError(f"a {type(model).__name__} and a {type(state_dict).__name__}, expected a "
                         "torch.nn.Module and a state_dict")

    # match the tensors by kind of layer, number and name
    held = model.state_dict()
    wanted, given = slots(held), slots(state_dict)
    for slot in [*given, *wanted]:
        if slot not in wanted or slot not in given:
            kind, number, name = slot
            holder = "the state_dict" if slot in given else "the model"
            raise UsageError(f"{kind} {number} has {name} only in {holder}: the layers differ")

    # compare shapes before anything is loaded
    new = {}
    for slot, key in wanted.items():
        new[key] = state_dict[given[slot]]
        there, here = (tuple(each.shape) for each in (new[key], held[key]))
        if there != here:
            raise UsageError(f"{given[slot]} has shape {there}, but {key} of the model has {here}")
    model.load_state_dict(new)
    return model


def slots(tensors: dict[str, torch.Tensor]) -> dict:
    """Return state_dict keys by (kind of layer, number within the kind, tensor name)."""
    counts, found = {}, {}
    for module in modules_of(tensors):
        number = counts[module.kind] = counts.get(module.kind, -1) + 1
        for own, key in module.keys.items():
            found[module.kind or module.path, number, own] = key
    return found

"""Split a state_dict of PyG's layers into a list of modules.

A state_dict has tensors by name and no layers. But the names identify them:
`convs.0.lin.weight` and `convs.0.bias` belong to a GCNConv.
"""
import os
import re
from typing import Any, NamedTuple

import numpy as np
import torch

from hpgcn.errors import DataError, InputNotFoundError, UsageError

WRAPPED = ("state_dict", "model_state_dict", "model")  # keys of a state_dict in checkpoints
NAME = re.compile(  # the name of a tensor within its layer, behind the name of the layer
    r"(?P<layer>.*?)\.?(?P<own>att_src|att_dst|att|lin(?:_[a-z]+)?\.(?:weight|bias)|nn\..+|eps"
    r"|weight|bias|running_mean|running_var|num_batches_tracked)")
TENSORS = {  # layer of PyG: hpgcn's arrays, and the tensors that are these
    "GCNConv": {"b": "bias", "W": "lin.weight"},
    "SGConv": {"W": "lin.weight", "b": "lin.bias"},
    "SAGEConv": {"W_neighbour": "lin_l.weight", "b": "lin_l.bias", "W_self": "lin_r.weight"},
    "GINConv": {"eps": "eps", "W_a": "nn.0.weight", "b_a": "nn.0.bias", "W_b": "nn.2.weight",
                "b_b": "nn.2.bias"},
    "GATConv": {"a_neighbour": "att_src", "a_self": "att_dst", "b": "bias", "W": "lin.weight"}}
TENSORS["GINEConv"] = TENSORS["GINConv"] | {"W_edge": "lin.weight", "b_edge": "lin.bias"}
HOW = 'save it with torch.save(model.state_dict(), "model.pt")'


class Module(NamedTuple):
    """One layer in a state_dict: its path, its kind and the keys of its tensors.

    `kind` is the name of the class in torch_geometric.nn, or "norm", "linear", or "" if
    unknown. `keys` maps the tensors' names in the layer to those in the state_dict.
    Linear maps within a perceptron are called nn.0, nn.1.., a normalization nn.norm0.
    """

    path: str
    kind: str
    keys: dict


def tensors_of(model: Any, name: str) -> dict[str, torch.Tensor]:
    """Return a state_dict, passed directly or in a file, as tensors by name.

    Code in it is never executed.

    Raises
    ------
    DataError, InputNotFoundError
        It is no state_dict, or there is no such file.
    """
    if not isinstance(model, dict):
        model = _loaded(model, name)
    for key in WRAPPED:
        if isinstance(model, dict) and isinstance(model.get(key), dict):
            model = model[key]
    if not isinstance(model, dict) or not model:
        raise DataError(f"{name}: is of type {type(model).__name__}, expected a state_dict; {HOW}")
    for key, tensor in model.items():
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            raise DataError(f"{name}: {key} is not a dense tensor, expected a state_dict; {HOW}")
    return {str(key): tensor.detach().cpu() for key, tensor in model.items()}


def _loaded(path: Any, name: str) -> Any:
    if not isinstance(path, str | os.PathLike) and not hasattr(path, "read"):
        raise UsageError(f"model is of type {type(path).__name__}, expected a state_dict or the "
                         "path of one")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InputNotFoundError(f"{name}: no such file") from None
    except OSError as error:
        raise InputNotFoundError(f"{name}: {error.strerror or error}") from error
    except Exception as error:  # damaged files raise many kinds of errors
        reason = str(error).strip().partition("\n")[0][:200]
        raise DataError(f"{name}: not a file with only tensors ({reason}); {HOW}") from error


def as_arrays(tensors: dict[str, torch.Tensor], name: str) -> dict[str, np.ndarray]:
    """Return tensors as float32 or float64 arrays; DataError for a number that is not finite."""
    found = {}
    for key, tensor in tensors.items():
        array = (tensor if tensor.dtype == torch.float64 else tensor.float()).numpy()
        wrong = np.argwhere(~np.isfinite(array))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise DataError(f"{name}: {key}{list(place)} is {array[place]}, expected a finite "
                            "number")
        found[key] = array
    return found


def modules_of(tensors: dict[str, Any]) -> list[Module]:
    """Return the Modules of a state_dict in its order, a list."""
    found = {}
    for key in tensors:
        match = NAME.fullmatch(key)
        layer, own = (match["layer"], match["own"]) if match else (key, "")
        found.setdefault(layer.removesuffix(".module"), {})[own] = key
    return [_module(path, keys, tensors) for path, keys in found.items()]


def _module(path: str, keys: dict[str, str], tensors: dict[str, Any]) -> Module:
    if "lin_src.weight" in keys and "att_src" in keys:  # its name before PyG 2.6
        keys = {own.replace("lin_src.", "lin."): key for own, key in keys.items()}

    # identify the layer by the names of its tensors
    names = keys.keys()
    kind = ""
    if any(name.startswith("nn.") for name in names):
        kind, keys = "GINConv", _perceptron(keys, tensors)
    elif {"att_src", "att_dst", "lin.weight"} <= names:
        kind = "GATConv"
    elif {"lin_l.weight", "lin_r.weight"} <= names and "att" not in names:
        kind = "SAGEConv"
    elif "lin.weight" in names:
        kind = "SGConv" if "lin.bias" in names else "GCNConv"
    elif "weight" in names:
        kind = "linear" if tensors[keys["weight"]].ndim == 2 else "norm"
    elif "running_mean" in names:
        kind = "norm"

    return Module(path, kind, keys)


def _perceptron(keys: dict[str, str], tensors: dict[str, Any]) -> dict[str, str]:
    """Return the keys of a GINConv by tensor names, with the parts of `nn` numbered in order."""
    inner = modules_of({own.removeprefix("nn."): tensors[key] for own, key in keys.items()
                        if own.startswith("nn.")})
    found = {own: key for own, key in keys.items() if not own.startswith("nn.")}
    counts = {"linear": 0, "norm": 0}
    for part in inner:
        word = ""
        if part.kind in counts:
            word = f"{'norm' * (part.kind == 'norm')}{counts[part.kind]}."
            counts[part.kind] += 1
        for own, key in part.keys.items():
            found[f"nn.{word}{own}" if word else f"nn.{key}"] = keys[f"nn.{key}"]
    return found

"""PyTorch: kernels as its operators, its models on ranks, weights of PyG.

The names below load on first use, and torch with them.
"""
import importlib
import importlib.util

from hpgcn.errors import MissingError

_HOMES = {
    "Propagation": "hpgcn.interop.torch.distributed",
    "export_pyg": "hpgcn.interop.torch.export",
    "save_state_dict": "hpgcn.interop.torch.export",
    "load_pyg": "hpgcn.interop.torch.weights",
    "predict_pyg": "hpgcn.interop.torch.weights",
}
__all__ = ["Propagation", "export_pyg", "load_pyg", "predict_pyg",
           "save_state_dict"]


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'hpgcn.interop.torch' has no attribute {name!r}")
    if importlib.util.find_spec("torch") is None:
        raise MissingError(f"hpgcn.interop.torch.{name} needs torch: pip install 'hpgcn[torch]'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__():
    return sorted([*globals(), *__all__])

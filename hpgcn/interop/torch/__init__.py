"""PyTorch operators on hpgcn's kernels, models on several ranks, and weights of PyG.

The names below load on first use, and need PyTorch then: pip install torch.
"""
from importlib import import_module
from typing import Any

from hpgcn.errors import require

_HOMES = {  # in files of other names: a file imported would hide a function of its name
    "Adjacency": "torch_adjacency",
    "Propagation": "distributed",
    "accelerate": "acceleration",
    "attend": "torch_attention",
    "export_pyg": "export",
    "load_pyg": "weights",
    "predict_pyg": "weights",
    "save_state_dict": "export",
    "spmm": "ops",
}
__all__ = [*_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("torch", "torch", f"{__name__}.{name}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

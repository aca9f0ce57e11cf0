"""hpgcn: full-batch GCN training whose result does not depend on the number of ranks.

The names below load on first use, so `import hpgcn` is quick and needs none of the optional
packages.
"""
import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpgcn.config import Config
    from hpgcn.errors import HpgcnError
    from hpgcn.graphs.graph import Graph
    from hpgcn.report.runs import read_run
    from hpgcn.store import load
    from hpgcn.training.inference import predict
    from hpgcn.training.propagator import propagation
    from hpgcn.training.result import Result
    from hpgcn.training.trainer import train

__version__ = "0.1.0"
__all__ = ["Config", "Graph", "HpgcnError", "Result", "load", "predict", "propagation",
           "read_run", "train"]

_HOMES = {
    "Config": "hpgcn.config",
    "Graph": "hpgcn.graphs.graph",
    "HpgcnError": "hpgcn.errors",
    "Result": "hpgcn.training.result",
    "load": "hpgcn.store",
    "predict": "hpgcn.training.inference",
    "propagation": "hpgcn.training.propagator",
    "read_run": "hpgcn.report.runs",
    "train": "hpgcn.training.trainer",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        try:
            return getattr(importlib.import_module(_HOMES[name]), name)
        except ImportError as error:
            if importlib.util.find_spec("hpgcn.kernels") is None:  # it lies beside this folder
                raise ImportError("hpgcn is not installed, this is its source: "
                                  "pip install -e .") from error
            raise
    raise AttributeError(f"module 'hpgcn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

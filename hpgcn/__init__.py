"""hpgcn: full-batch GCN training whose result does not depend on the number of ranks.

The names below load on first use, so `import hpgcn` is quick and needs none of the
optional packages.
"""
import importlib.util
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpgcn.comm import run_on_ranks
    from hpgcn.config import Config
    from hpgcn.errors import HpgcnError
    from hpgcn.graphs.graph import Graph
    from hpgcn.interop.dgl import from_dgl, to_dgl
    from hpgcn.interop.networkx import from_networkx, to_networkx
    from hpgcn.interop.pyg import from_pyg, to_pyg
    from hpgcn.report.recorded_runs import read_run
    from hpgcn.store import load, save
    from hpgcn.training.files.result import Result
    from hpgcn.training.inference import predict
    from hpgcn.training.propagator import propagation
    from hpgcn.training.run import train
    from hpgcn.training.sweep import sweep
    from hpgcn.training.sweep_table import Sweep

__version__ = "0.2.0"
__all__ = ["Config", "Graph", "HpgcnError", "Result", "Sweep", "from_dgl", "from_networkx",
           "from_pyg", "load", "predict", "propagation", "read_run", "run_on_ranks", "save",
           "sweep", "to_dgl", "to_networkx", "to_pyg", "train"]

_HOMES = {
    "Config": "hpgcn.config",
    "Graph": "hpgcn.graphs.graph",
    "HpgcnError": "hpgcn.errors",
    "Result": "hpgcn.training.files.result",
    "Sweep": "hpgcn.training.sweep_table",
    "from_dgl": "hpgcn.interop.dgl",
    "from_networkx": "hpgcn.interop.networkx",
    "from_pyg": "hpgcn.interop.pyg",
    "load": "hpgcn.store",
    "predict": "hpgcn.training.inference",
    "propagation": "hpgcn.training.propagator",
    "read_run": "hpgcn.report.recorded_runs",
    "run_on_ranks": "hpgcn.comm",
    "save": "hpgcn.store",
    "sweep": "hpgcn.training.sweep",
    "to_dgl": "hpgcn.interop.dgl",
    "to_networkx": "hpgcn.interop.networkx",
    "to_pyg": "hpgcn.interop.pyg",
    "train": "hpgcn.training.run",
}


# resolve the link of an editable installation, so that modules have the same path in
# all processes
_FOLDER = os.path.dirname(os.path.realpath(__file__))
__path__ = [_FOLDER]


class _Clone:
    """An import hook for `hpgcn.kernels` and `hpgcn.datasets` in a clone.

    In a clone both folders lie beside this one.
    """

    @staticmethod
    def find_spec(name, path=None, target=None):
        package, _, last = name.rpartition(".")
        folder = os.path.join(os.path.dirname(_FOLDER), last)
        file = os.path.join(folder, "__init__.py")
        if package != "hpgcn" or last not in ("kernels", "datasets") or not os.path.isfile(file):
            return None
        return importlib.util.spec_from_file_location(
            name, file, submodule_search_locations=[folder])


if not os.path.isdir(os.path.join(_FOLDER, "kernels")):
    sys.meta_path.append(_Clone)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'hpgcn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

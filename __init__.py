"""Steps aside for the package: Python meets this folder first beside a clone named hpgcn."""
import os
import sys
from importlib.util import module_from_spec


def _installed():
    """Return the spec of hpgcn as Python finds it elsewhere; ImportError if it is not installed."""
    elsewhere = [entry for entry in sys.path
                 if not os.path.isdir(os.path.join(entry, "hpgcn", "hpgcn"))]
    for finder in sys.meta_path:
        spec = finder.find_spec("hpgcn", elsewhere)
        if spec and spec.origin:
            return spec
    clone = os.path.dirname(os.path.abspath(__file__))
    raise ImportError(f"hpgcn is not installed, and {clone} is its source: pip install -e {clone}")


if __name__ == "hpgcn":
    _spec = _installed()
    sys.modules["hpgcn"] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["hpgcn"])

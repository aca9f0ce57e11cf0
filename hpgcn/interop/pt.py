"""Read one graph of PyTorch Geometric from a torch.save file; no code in it is executed.

PyTorch's restricted unpickler builds tensors and plain containers. Classes of PyG in
such a file are replaced by empty ones that only hold the stored data, so PyG is not
needed.
"""
import codecs
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpgcn.datasets.source import need, truncate
from hpgcn.errors import DataError, require
from hpgcn.graphs.links import Links
from hpgcn.interop.link_splits import LABELED, is_link_split, links_of_split
from hpgcn.interop.tensors import to_array

DATA = "torch_geometric.data.data.Data"
ALLOWED = (DATA, "torch_geometric.data.data.DataEdgeAttr",
           "torch_geometric.data.data.DataTensorAttr",
           "torch_geometric.data.storage.GlobalStorage", "torch_geometric.data.storage.AttrType")
# containers of what a Data has cached; the unpickler fills dicts, but no defaultdict
PLAIN = ((lambda *_: {}, "collections.defaultdict"), set)
HETERO = ("torch_geometric.data.hetero_data.HeteroData", "torch_geometric.data.storage.BaseStorage",
          "torch_geometric.data.storage.NodeStorage", "torch_geometric.data.storage.EdgeStorage")
UNKNOWN = re.compile(r"GLOBAL ([\w.]+)")


def read_data(path: Path | str, memory: int, where: str) -> dict[str, Any]:
    """Return the attributes of the `Data` in a file, by name.

    Values are arrays, sparse arrays, int or other plain values. The file has a Data, its
    dict, or the output of InMemoryDataset.save for one; it may take `memory` bytes. Raises
    DataError for other classes, several graphs and too large tensors; MissingError
    without PyTorch.
    """
    return _arrays(_one_graph(_load(path, memory, where), where), memory, where)


def read_graph(path: Path | str, memory: int, where: str) -> tuple[dict[str, Any], Links | None]:
    """Return the attributes of the `Data` in a file like `read_data`, and links or None.

    The file may also have the three Data of RandomLinkSplit. The attributes are then
    those of the first, and the links those of all.
    """
    content = _load(path, memory, where)
    if not is_link_split(content, lambda part, name: name in (_attributes(part) or ())):
        return _arrays(_one_graph(content, where), memory, where), None
    parts = [_arrays(_attributes(part), memory // len(content), where) for part in content]
    links = links_of_split(parts, where)
    return {key: array for key, array in parts[0].items() if key not in LABELED}, links


def read_dict(path: Path | str, memory: int, where: str) -> dict[str, Any]:
    """Return the arrays in a file with a dict of them, by name; errors as of `read_data`."""
    content = _load(path, memory, where, numpy_holders())
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise DataError(f"{where}: a {type(content).__name__}, expected a dict of arrays")
    return _arrays(content, memory, where)


def _load(path: Path | str, memory: int, where: str, others: Sequence = ()) -> Any:
    """Return the content of a file, after checks of its size; no class is executed.

    `others` may be called besides tensors and Data.
    """
    torch = require("torch", "torch", "reading PyTorch files")

    # refuse a file that would take too much memory
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{where}: broken data ({error})") from error
    need(2 * size, memory, where)

    # load plain tensors, but no other classes
    holders = [(type(name.rpartition(".")[2], (), {"__init__": lambda *_: None}), name)
               for name in ALLOWED]
    holders += [*PLAIN, *others]
    try:
        with torch.serialization.safe_globals([]):  # restores those that PyG registers
            torch.serialization.clear_safe_globals()
            torch.serialization.add_safe_globals(holders)
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise many kinds of errors
        if match := UNKNOWN.search(str(error)):
            raise DataError(f"{where}: {_refusal(match[1])}") from error
        reason = truncate(" ".join(str(error).split()) or type(error).__name__, 120)
        raise DataError(f"{where}: broken data ({reason})") from error


def numpy_holders() -> list:
    """Return the callables with which PyTorch's unpickler builds plain NumPy arrays."""
    build = np.zeros(1).__reduce__()[0]
    kinds = {type(np.dtype(kind)) for kind in "bBhHiIlLqQefd?"}
    names = [f"numpy.{core}.multiarray._reconstruct" for core in ("core", "_core")]
    return [*((build, name) for name in names), np.ndarray, np.dtype, codecs.encode, *kinds]


def _arrays(content: dict[str, Any], memory: int, where: str) -> dict[str, Any]:
    """Return tensors as arrays; each is measured before it is copied."""
    total = 0
    arrays = {}
    for name, value in content.items():
        if hasattr(value, "numel"):
            total += value.numel() * value.element_size()  # a small storage may be a large view
            need(2 * total, memory, f"{where}: {name}")
        try:
            arrays[name] = to_array(value)
        except (DataError, RuntimeError, TypeError, ValueError) as error:
            raise DataError(f"{where}: {name}: {error}") from error
    return arrays


def _one_graph(found: Any, where: str) -> dict[str, Any]:
    """Return the attributes of the only Data in a loaded object, however it was saved."""
    # the tuple that InMemoryDataset.save writes
    if isinstance(found, tuple) and len(found) in (2, 3):
        found, slices = found[:2]
        if not isinstance(slices, dict | None):
            raise DataError(f"{where}: a tuple, expected one torch_geometric.data.Data")
        counts = {len(each) - 1 for each in (slices or {}).values() if hasattr(each, "__len__")}
        if max(counts, default=1) > 1:
            raise DataError(f"{where}: a dataset of {max(counts)} graphs, expected one: "
                            "torch.save(dataset[0], 'graph.pt') writes one")
    if isinstance(found, (list, tuple)):
        raise DataError(f"{where}: a {type(found).__name__} of {len(found)}, expected one "
                        "torch_geometric.data.Data: torch.save(data, 'graph.pt')")

    # refuse other objects and heterogeneous graphs
    inside = found if isinstance(found, dict) else getattr(found, "__dict__", {})
    if "_global_store" in inside:
        raise DataError(f"{where}: {_refusal(HETERO[0])}")
    attributes = _attributes(found)
    if not attributes:
        raise DataError(f"{where}: neither a torch_geometric.data.Data nor a dict of its arrays")
    return attributes


def _attributes(found: Any) -> dict[str, Any] | None:
    """Return the attributes of a Data of any version of PyG, or of a dict; None for others."""
    if not isinstance(found, dict):
        inside = getattr(found, "__dict__", {})
        store = inside.get("_store")
        found = inside if store is None else getattr(store, "__dict__", {}).get("_mapping")
        # before PyG 2.0 the attributes were those of the object
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        return None
    found = dict(found)
    if (count := found.pop("__num_nodes__", None)) is not None:
        found.setdefault("num_nodes", count)
    return {key: value for key, value in found.items() if value is not None}


def _refusal(name: str) -> str:
    if name in HETERO:
        return ("a HeteroData, whose vertices or edges are of several types, expected one of each: "
                "torch.save(data.to_homogeneous(), 'graph.pt')")
    return (f"holds a {name}, which is not read, for nothing in a file is executed: where you "
            "trust it, load it in Python and save hpgcn.from_pyg(data)")

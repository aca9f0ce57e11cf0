"""Read one graph of PyTorch Geometric from a torch.save file; no code in it is executed.

PyTorch's restricted unpickler builds tensors and plain containers. Classes of PyG in
such a file are replaced by empty ones that only hold the stored data, so PyG is not
needed.
"""
import re
import zipfile
from pathlib import Path
from typing import Any

from hpgcn.datasets.source import need, truncate
from hpgcn.errors import DataError, require
from hpgcn.interop.tensors import to_array

DATA = "torch_geometric.data.data.Data"
ALLOWED = (DATA, "torch_geometric.data.data.DataEdgeAttr",
           "torch_geometric.data.data.DataTensorAttr",
           "torch_geometric.data.storage.GlobalStorage")
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
    torch = require("torch", "torch", "reading PyTorch files")

    # refuse a file that would take too much memory
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{where}: broken data ({error})") from error
    need(2 * size, memory, where)

    # load plain tensors, but no other classes
    holders = [(type(name.rpartition(".")[2], (), {}), name) for name in ALLOWED]
    try:
        with torch.serialization.safe_globals(holders):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise many kinds of errors
        if match := UNKNOWN.search(str(error)):
            raise DataError(f"{where}: {_refusal(match[1])}") from error
        reason = truncate(" ".join(str(error).split()) or type(error).__name__, 120)
        raise DataError(f"{where}: broken data ({reason})") from error

    # turn tensors into arrays; measure each before it is copied
    content = _one_graph(content, where)
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

    # the attributes of an object of any version of PyG
    if not isinstance(found, dict):
        inside = getattr(found, "__dict__", {})
        store = inside.get("_store")
        found = inside if store is None else getattr(store, "__dict__", {}).get("_mapping")
        # before PyG 2.0 the attributes were those of the object
    # refuse other objects and heterogeneous graphs
    if isinstance(found, dict) and "_global_store" in found:
        raise DataError(f"{where}: {_refusal(HETERO[0])}")
    if not found or not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise DataError(f"{where}: neither a torch_geometric.data.Data nor a dict of its arrays")
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

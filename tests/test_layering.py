"""The rules of the house, from the syntax tree: who imports whom, what is loaded late, how long files are."""
import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = {
    "kernels": 0, "errors": 1, "faults": 1, "device": 1, "config": 1, "clock": 1, "machine": 1, "check": 1,
    "identity": 1, "consistency": 1, "graph": 1, "partition": 1, "reorder": 1, "operator": 1, "layout": 1, "plan": 1,
    "cost": 1, "capacity": 1, "signals": 1, "files": 1, "temporary": 1, "atomic": 1, "streams": 1,
    "comm": 2, "store": 2, "exchange": 3, "dense": 3,
    "strategies": 4, "model": 5, "optim": 5, "reach": 5, "place": 6, "rundir": 6, "rows": 6, "trainer": 6,
    "progress": 6, "records": 6, "bar": 6, "result": 6, "overview": 6, "warmup": 6, "state": 6, "checkpoint": 6,
    "predictor": 6, "dryrun": 6, "commands": 6, "trace": 6, "report": 6, "__main__": 6, "__init__": 6,
    "datasets": 6, "bench": 6, "forecast": 6, "divergence": 6, "doctor": 6}
OUTSIDE = {  # who may import what, besides NumPy, SciPy and the standard library
    "numba": {"kernels", "warmup", "datasets", "partition", "bench", "doctor"}, "llvmlite": {"kernels", "bench"},
    "cupy": {"kernels", "device", "comm", "doctor"}, "h5py": {"store", "doctor"}, "mpi4py": {"comm", "doctor"},
    "mtkahypar": {"partition"},
    "kahypar": {"partition"}, "pymetis": {"partition"}, "sklearn": {"datasets"},
    "tqdm": {"bar"}}
SOURCES = sorted(path for folder in ("hpgcn", "kernels", "datasets") for path in (ROOT / folder).rglob("*.py"))


def room(path):
    """Top-level room of a file: kernels, datasets, or the name under hpgcn."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0] if parts[0] != "hpgcn" else parts[1]


def imports(path):
    """(line, dotted module) of every import, late ones included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "hpgcn" else [node.module]
            yield from ((node.lineno, name) for name in names)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path):
    here = room(path)
    assert here in LAYERS, f"{path} is in no layer"
    for line, name in imports(path):
        first, *rest = name.split(".")
        if first == "hpgcn":
            there = rest[0] if rest and rest[0] in LAYERS else "__init__"
            if there == "__init__" and rest in ([], ["__version__"]):
                continue
            if (here, name) == ("graph", "hpgcn.store"):  # Graph.save, late
                continue
            assert LAYERS[there] <= LAYERS[here], f"{path}:{line}: {here} imports {there}, which lies higher"
        elif first in OUTSIDE:
            assert here in OUTSIDE[first], f"{path}:{line}: {here} may not import {first}"
        else:
            assert first in sys.stdlib_module_names | {"numpy", "scipy"}, f"{path}:{line}: {first} is no dependency"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_stay_readable(path):
    assert len(path.read_text().splitlines()) <= 400


def loaded_by(statement):
    code = f"import sys; {statement}; print(*sorted(m for m in sys.modules if '.' not in m))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_import_is_light():
    heavy = {"numpy", "scipy", "numba", "h5py", "mpi4py", "mtkahypar", "sklearn", "cupy", "torch"}
    assert not loaded_by("import hpgcn") & heavy
    assert not loaded_by("import hpgcn.__main__") & heavy
    assert not loaded_by("import hpgcn; hpgcn.load") & {"numba", "mpi4py", "mtkahypar"}
    assert not loaded_by("import hpgcn; hpgcn.train") & {"mpi4py", "mtkahypar", "kahypar", "pymetis", "sklearn"}


def test_public_names():
    import hpgcn

    assert callable(hpgcn.train)
    assert callable(hpgcn.load)
    assert hpgcn.Graph.from_scipy
    assert set(hpgcn.__all__) <= set(dir(hpgcn))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hpgcn.nothing

"""All public names have type hints, from which mypy infers the expected types."""
import inspect
import subprocess
import sys

import pytest
from checkout import ROOT

import hpgcn
from hpgcn.report import Run
from hpgcn.store import StoredGraph
from hpgcn.training.propagator import Propagator

OTHERS = {"Run": Run, "StoredGraph": StoredGraph, "Propagator": Propagator}
PUBLIC = {name: getattr(hpgcn, name) for name in hpgcn.__all__} | OTHERS


def functions(thing):
    """Return the public functions of a class by name, or the function itself."""
    if not inspect.isclass(thing):
        return {thing.__name__: thing}
    found = {}
    for name, member in vars(thing).items():
        member = getattr(member, "__func__", getattr(member, "fget", member))
        if inspect.isfunction(member) and member.__module__.startswith("hpgcn") and (
                not name.startswith("_") or name == "__init__"):
            found[name] = member
    return found


def assert_typed(name, thing):
    for key, function in functions(thing).items():
        signature = inspect.signature(function)
        untyped = [word for word, each in signature.parameters.items()
                   if each.annotation is each.empty and word not in ("self", "cls")]
        if signature.return_annotation is signature.empty:
            untyped.append("return")
        assert not untyped, f"{name}.{key}: {', '.join(untyped)}"


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_say_all_types(name):
    assert_typed(name, PUBLIC[name])


@pytest.mark.long
def test_public_functions_of_torch_say_all_types():
    pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
    import hpgcn.interop.torch as interop

    for name in interop.__all__:
        assert_typed(f"torch.{name}", getattr(interop, name))


@pytest.mark.long
def test_mypy_agrees():
    pytest.importorskip("mypy", reason="needs mypy: pip install '.[dev]'")
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert not done.returncode, done.stdout + done.stderr

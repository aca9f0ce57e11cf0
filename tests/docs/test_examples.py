"""Every public name has an Examples section in its docstring, which runs as a doctest."""
import doctest
import importlib
import inspect
import warnings

import numpy as np
import pytest

import hpgcn
import hpgcn.interop.torch
import hpgcn.kernels
from hpgcn.kernels.specs import SPECS

NAMES = [
    *(f"hpgcn:{name}" for name in hpgcn.__all__),
    "hpgcn:Graph.from_scipy", "hpgcn:Graph.from_edge_index",
    "hpgcn.partition:make_partition",
    "hpgcn.store:StoredGraph",
    "hpgcn.training.propagator:Propagator",
    "hpgcn.interop.onnx:export_onnx",
    *(f"hpgcn.interop.torch:{name}" for name in hpgcn.interop.torch.__all__),
    *(f"hpgcn.kernels:{name}" for name in hpgcn.kernels.__all__),
    *(f"hpgcn.kernels.reference:{name}" for name in SPECS)]
LIBRARIES = {  # what an example needs besides hpgcn's own requirements
    "dgl": "dgl", "networkx": "networkx", "pyg": "torch_geometric", "onnx": "onnx"}


def needed(name):
    """Yield the optional packages that the example of `name` uses."""
    if name.startswith("hpgcn.interop.torch:"):
        yield "torch"
    yield from (package for word, package in LIBRARIES.items() if name.endswith(f"_{word}"))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name):
    for package in needed(name):
        pytest.importorskip(package)

    # find the object
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)

    # run its examples, as if `hpgcn` and `np` were imported
    text = inspect.getdoc(found)
    assert "\nExamples\n--------\n" in text, f"{name}: no Examples section"
    test = doctest.DocTestParser().get_doctest(text, {"hpgcn": hpgcn, "np": np}, name, None, 0)
    assert any(doctest.SKIP not in example.options for example in test.examples)
    with warnings.catch_warnings(action="ignore"):  # sparse tensors are in beta state
        assert doctest.DocTestRunner().run(test).failed == 0


def test_there_are_enough_names():
    assert len(set(NAMES)) == len(NAMES) >= 40

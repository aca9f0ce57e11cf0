"""The code on the pages for users of PyG and DGL runs as printed."""
import re

import numpy as np
import pytest
from checkout import ROOT
from graphs import make
from test_readme import OF_PYG

import hpgcn

DOCS = ROOT / "docs"


def code_of(page):
    code, = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return code


@pytest.mark.long
def test_pyg(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("torch_geometric", reason="needs PyG: pip install torch-geometric")
    found = {"data": hpgcn.to_pyg(make(n=80))}
    exec(code_of("coming-from-pyg.md"), found)
    exec(capsys.readouterr().out, found)
    expected = found["model"](found["data"].x, found["data"].edge_index).detach().numpy()
    np.testing.assert_allclose(found["logits"], expected, atol=1e-5)


@pytest.mark.long
def test_readme(recwarn):
    pytest.importorskip("torch_geometric", reason="needs PyG: pip install torch-geometric")
    from torch_geometric.nn import GraphSAGE

    found = {"data": hpgcn.to_pyg(make(n=80)), "model": GraphSAGE(13, 16, 2, 5)}
    exec(OF_PYG.replace("hidden=256", "hidden=8, epochs=2"), found)
    assert not [each for each in recwarn if "accelerate()" in str(each.message)]
    assert found["result"]["epochs"] == 2 and "SAGEConv" in found["code"]


def test_dgl():
    pytest.importorskip("dgl", reason="needs DGL, which is no longer published for this Python")
    graph = make(n=80)
    found = {"g": hpgcn.to_dgl(graph)}
    exec(code_of("coming-from-dgl.md"), found)
    assert found["labels"].shape == (80,)

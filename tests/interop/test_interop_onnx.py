"""Models exported to ONNX give the predictions of hpgcn, by ONNX's own reference."""
import sys

import numpy as np
import pytest
from commands import refused, succeed
from graphs import make, with_targets

import hpgcn
from hpgcn.errors import UsageError
from hpgcn.interop.onnx import export_onnx

onnx = pytest.importorskip("onnx")
STACKS = [
    {"model": "sgc", "layers": 1}, {"model": "sgc", "layers": 1, "hops": 3, "norm_adj": "row"},
    {"layers": 1}, {"layers": 1, "output_layer": True, "activation": "gelu", "norm": "batch"},
    {"model": "appnp"}, {"model": "appnp", "layers": 3, "norm": "layer", "activation": "elu"},
    {"model": "appnp", "norm": "batch", "restart": 0.3, "hops": 4}]


def logits_of(model, graph, config):
    """Return the logits of the exported model and the products with A around it."""
    from onnx.reference import ReferenceEvaluator

    apply = ReferenceEvaluator(model)
    X = graph.features.astype(config.number_dtype)
    norm = "sym" if config.norm_adj == "own" else config.norm_adj
    hops = config.hops or {"sgc": 2, "appnp": 10, "gcn": 1}[config.model]
    with hpgcn.propagation(graph, norm=norm, dtype=config.number_dtype) as A:
        if config.model != "appnp":
            for _ in range(hops):
                X = A.forward(X)
            return apply.run(None, {"x": X})[0]
        H, = apply.run(None, {"x": X})
        Z = H
        for _ in range(hops):
            Z = (1 - config.restart) * A.forward(Z) + config.restart * H
        return Z


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("settings", STACKS, ids=str)
def test_logits_are_those_of_predict(settings, dtype):
    graph = make(n=80)
    config = hpgcn.Config(epochs=4, dtype=dtype, **settings)
    result = hpgcn.train(graph, config)
    model, text = export_onnx(result)
    expected = hpgcn.predict(graph, result)["logits"]
    found = logits_of(model, graph, config)
    # the reference computes both in float32
    exact = dtype == "float64" and config.norm != "layer" and config.activation != "gelu"
    tolerance = 1e-12 if exact else 2e-5
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert ("z = " in text) == (config.model == "appnp")


@pytest.mark.parametrize("settings", [
    {}, {"model": "sgc"}, {"model": "gat", "layers": 1}, {"layers": 1, "residual": True},
    {"layers": 2, "input_layer": True}], ids=str)
def test_products_in_between_are_refused(settings):
    result = hpgcn.train(make(n=60), hpgcn.Config(epochs=1, **settings))
    with pytest.raises(UsageError, match="must all come first"):
        export_onnx(result)


def test_the_command(tmp_path, monkeypatch):
    hpgcn.train(make(n=60), hpgcn.Config(model="sgc", layers=1, epochs=1, out=str(tmp_path / "r")))
    text = succeed("export", tmp_path / "r", tmp_path / "m.onnx", "--to", "onnx")
    assert text.startswith("x: A^2 times the features, (n, ")
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"))
    assert "exists already" in refused(
        73, "export", tmp_path / "r", tmp_path / "m.onnx", "--to", "onnx")
    monkeypatch.setitem(sys.modules, "onnx.helper", None)
    assert "writing ONNX needs onnx (extra onnx)" in refused(
        69, "export", tmp_path / "r", tmp_path / "n.onnx", "--to", "onnx")


@pytest.mark.parametrize("targets", [True, False])
def test_scales_and_learned_rows_are_refused(targets):
    graph = with_targets(make(n=40)) if targets else make(n=40)
    config = hpgcn.Config(model="sgc", layers=1, epochs=1, embedding=0 if targets else 4)
    with pytest.raises(UsageError, match="targets" if targets else "learned rows"):
        export_onnx(hpgcn.train(graph, config))

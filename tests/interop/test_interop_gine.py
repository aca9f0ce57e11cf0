"""Edge features and model gine against PyG: its Data, and its GINEConv."""
import numpy as np
import pytest
from graphs import with_edges
from training import loss_and_gradient, start

pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
pytest.importorskip("torch_geometric", reason="needs PyG: pip install torch-geometric")
import torch
from torch_geometric.data import Data

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import DataError
from hpgcn.interop.torch import export_pyg

GRAPH = with_edges(n=80, f=7, c=4, directed=True)


def test_data_of_pyg():
    data = hpgcn.to_pyg(GRAPH)
    order = torch.from_numpy(np.random.default_rng(1).permutation(GRAPH.indices.size))
    data.edge_index, data.edge_attr = data.edge_index[:, order], data.edge_attr[order]
    again = hpgcn.from_pyg(data, edge_features="edge_attr")
    np.testing.assert_array_equal(again.indices, GRAPH.indices)
    np.testing.assert_array_equal(again.edge_features, GRAPH.edge_features)
    with pytest.raises(DataError, match="edge_features = 'attr': there is no such tensor among "
                                        "edge_attr"):
        hpgcn.from_pyg(data, edge_features="attr")
    twice = Data(edge_index=torch.tensor([[0, 0], [1, 1]]), edge_attr=torch.ones(2, 1), num_nodes=2)
    with pytest.raises(DataError, match="edge 0 -> 1 is listed twice"), pytest.warns():
        hpgcn.from_pyg(twice, edge_features="edge_attr")


def test_logits_and_gradients_of_gine_conv(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = Config(model="gine", hidden=6, layers=3, dtype="float64", dropout=0.0,
                    input_dropout=0.0, epochs=2)
    result = hpgcn.train(GRAPH, config)

    # equal logits
    state, code = export_pyg(result)
    torch.save(state, "model.pt")
    assert "GINEConv(" in code and "edge_dim=3" in code
    names = {}
    exec(code, names)
    model, data = names["model"].double(), hpgcn.to_pyg(GRAPH)
    model.load_state_dict(state)
    logits = model(data.x.double(), data.edge_index, data.edge_attr.double())
    np.testing.assert_allclose(logits.detach(), hpgcn.predict(GRAPH, result)["logits"], rtol=1e-10)

    # equal gradients of all parameters
    train = torch.from_numpy(GRAPH.masks["train"])
    torch.nn.functional.cross_entropy(logits[train], data.y[train]).backward()
    with start(GRAPH, config) as trainer:
        arrays = trainer.parameters.arrays
        for name, array in result.weights.items():
            arrays[name][:] = array
        gradient = dict(zip(arrays, split(loss_and_gradient(trainer)[1], arrays)))
    theirs = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    places = {"W_a": "nn.0.weight", "b_a": "nn.0.bias", "W_b": "nn.2.weight", "b_b": "nn.2.bias",
              "W_edge": "lin.weight", "b_edge": "lin.bias", "eps": "eps"}
    for layer in range(3):
        for name, place in places.items():
            kind, *rest = name.split("_")
            found = gradient["_".join([f"{kind}{layer}", *rest])]
            np.testing.assert_allclose(found.T, theirs[f"conv{layer}.{place}"], rtol=1e-8,
                                       atol=1e-10, err_msg=name)


def split(flat, arrays):
    """Cut a flat gradient into arrays with the shapes of the parameters."""
    ends = np.cumsum([array.size for array in arrays.values()])
    return [part.reshape(array.shape)
            for part, array in zip(np.split(flat, ends[:-1]), arrays.values())]

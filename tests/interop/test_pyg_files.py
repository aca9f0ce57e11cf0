"""PyTorch Geometric's data.pt is read without PyG and without executing code, or refused."""
import io
import os
import pickle
import sys
import warnings
import zipfile

import numpy as np
import pytest
from inputs import put, refused

import hpgcn
from hpgcn.datasets.convert import read
from hpgcn.errors import DataError, DataWarning, MissingError, UsageError

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.data")
EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 0]])


def data(**more):
    fields = {"edge_index": EDGES, "x": torch.eye(5), "y": torch.tensor([0, 1, 2, -1, 0]),
              "train_mask": torch.tensor([1, 1, 0, 0, 0]).bool(),
              "val_mask": torch.tensor([0, 0, 1, 0, 0]).bool(),
              "test_mask": torch.tensor([0, 0, 0, 0, 1]).bool()}
    return pyg.Data(**(fields | more))


def as_saved(path, made):
    torch.save(made, path)


def as_dict(path, made):
    torch.save(made.to_dict(), path)


def as_dataset(path, made):
    pyg.InMemoryDataset.save([made], path)


def as_old_pair(path, made):
    torch.save((made, None), path)


def as_collated(path, made):
    torch.save((made, {"x": torch.tensor([0, 5]), "y": torch.tensor([0, 5])}), path)


VARIANTS = [
    {}, {"edge_weight": torch.tensor([1, 2, 0.5, 3])}, {"edge_attr": torch.ones(4, 1) * 2},
    {"edge_attr": torch.ones(4, 3)}, {"Weight": torch.tensor([1, 2, 0.5, 3])},
    {"x": torch.eye(5).to_sparse_csr()}, {"x": torch.eye(5).to_sparse_coo()},
    {"y": torch.eye(5)}, {"x": None, "num_nodes": 5},
    {"train_mask": torch.tensor([[1, 0], [0, 1], [0, 0], [0, 0], [0, 0]]).bool()},
    {"x": torch.eye(5, dtype=torch.bfloat16)}]


@pytest.mark.parametrize("more", VARIANTS, ids=lambda more: ",".join(more) or "plain")
@pytest.mark.parametrize("save", [as_saved, as_dict, as_dataset, as_old_pair, as_collated])
def test_as_from_pyg(tmp_path, save, more):
    path = tmp_path / "data.pt"
    save(path, data(**more))
    with warnings.catch_warnings(action="ignore", category=DataWarning):
        expected = hpgcn.from_pyg(data(**more))
    graph, notes = read(path)
    assert graph.checksum() == expected.checksum()
    assert graph.header.num_splits == expected.header.num_splits
    assert "row target aggregates source" in notes


def test_adj_t(tmp_path):
    made = pyg.Data(adj_t=torch.tensor([[0, 2.0], [0, 0]]).to_sparse_csr(), x=torch.eye(2))
    torch.save(made, tmp_path / "g.pt")
    assert read(tmp_path / "g.pt")[0].adjacency.toarray().tolist() == [[0, 2], [0, 0]]


def test_attributes_are_weights_if_asked(tmp_path):
    made = pyg.Data(edge_index=EDGES, edge_attr=torch.tensor([3, 0, 1, 1]), pos=torch.eye(5))
    torch.save(made, tmp_path / "g.pt")
    graph, notes = read(tmp_path / "g.pt")
    assert graph.header.num_edges == 4 and graph.header.all_ones
    assert "edge_attr is not read as weights: --weights edge_attr reads it" in notes
    assert "not read: pos" in notes
    graph, notes = read(tmp_path / "g.pt", weights="edge_attr")
    assert graph.header.num_edges == 3 and "1 entries of weight 0 dropped" in " ".join(notes)
    torch.save(pyg.Data(adj_t=torch.eye(2).to_sparse_csr()), tmp_path / "g.pt")
    with pytest.raises(UsageError, match="--weights w: the values of adj_t"):
        read(tmp_path / "g.pt", weights="w")


def test_without_pyg(tmp_path, monkeypatch):
    torch.save(data(), tmp_path / "data.pt")
    for name in [name for name in sys.modules if name.split(".")[0] == "torch_geometric"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert read(tmp_path / "data.pt")[0].header.num_edges == 4


def test_without_torch(tmp_path, monkeypatch):
    torch.save(data(), tmp_path / "data.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingError, match=r"needs torch \(extra \w+\): pip install 'torch>="):
        read(tmp_path / "data.pt")


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def hetero():
    made = pyg.HeteroData()
    made["a"].x = torch.ones(2, 1)
    made["a", "to", "a"].edge_index = EDGES[:, :1]
    return made


REFUSED = [
    (hetero, r"a HeteroData.*to_homogeneous\(\)"),
    (lambda: hetero().to_dict(), r"a HeteroData.*to_homogeneous\(\)"),
    (lambda: data(bad=Evil()), r"holds a posix\.mkdir, which is not read, for nothing"),
    (lambda: data(x=np.eye(5)), r"holds a numpy\.\S*multiarray\.\S+, which is not read"),
    (lambda: pyg.Batch.from_data_list([data()]), r"holds a torch_geometric\.data\.batch\.\w+"),
    (lambda: [data(), data()], "a list of 2, expected one"),
    (lambda: (data(), {"x": torch.tensor([0, 2, 5])}), "a dataset of 2 graphs, expected one"),
    (lambda: (1, 2), "a tuple, expected one"), (lambda: torch.eye(3), "neither a .*Data nor"),
    (lambda: {1: torch.eye(3)}, "neither a .*Data nor a dict"),
    (lambda: pyg.Data(x=torch.eye(3)), r"holds x, expected edge_index \(2, e\), or adj_t"),
    (lambda: data(edge_index=torch.tensor([[0], [5]])), r"row 1: entry 0 is 5, expected 0\.\.4"),
    (lambda: data(edge_index=torch.tensor([[0], [-1]])), "entry 0 is -1"),
    (lambda: data(edge_index=EDGES.float()), "edge_index has dtype float32"),
    (lambda: data(edge_index=torch.tensor([[0], [10**15]]), x=None, y=None), r"expected 0\.\.4"),
    (lambda: data(num_nodes=-3), "num_nodes is -3"),
    (lambda: data(edge_weight=torch.tensor([1, float("nan"), 1, 1])), "edge_weight at 1 is nan"),
    (lambda: data(edge_weight=torch.ones(3)), r"edge_weight: shape \(3,\), expected \(4,\)"),
    (lambda: data(x=torch.ones(1, 1).expand(5, 2**40)), "x: needs .* bytes of memory"),
    (lambda: data(x=torch.ones(4, 2), num_nodes=5), r"features have shape \(4, 2\)"),
    (lambda: data(y=torch.ones(5) / 2), "label of vertex 0 is 0.5"),
    (lambda: data(train_mask=torch.ones(4).bool()), "train mask"),
]


@pytest.mark.parametrize("make, message", REFUSED, ids=[message for _, message in REFUSED])
def test_refusals(tmp_path, monkeypatch, make, message):
    monkeypatch.chdir(tmp_path)
    torch.save(make(), tmp_path / "data.pt")
    refused(rf"data\.pt.*{message}", tmp_path / "data.pt", memory=1 << 30)
    assert not (tmp_path / "executed").exists()


def test_broken_files(tmp_path):
    made = io.BytesIO()
    torch.save(data(), made)
    whole = made.getvalue()
    path = tmp_path / "data.pt"
    for size in (100, len(whole) // 2, len(whole) - 1):
        refused("data.pt: ", put(path, whole[:size]))
    rng = np.random.default_rng(5)
    for _ in range(60):  # one byte changed: read, or refused in one line
        flipped = bytearray(whole)
        flipped[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(flipped))
        try:
            read(path)
        except DataError as error:
            assert str(error).isprintable()
    refused("data.pt: needs .* bytes of memory", put(path, whole), memory=1000)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/data.pkl", pickle.dumps({}, protocol=2))
        archive.writestr("data/data/0", bytes(1 << 24))
    refused("data.pt: needs .* bytes of memory", put(path, bomb.getvalue()), memory=1 << 20)

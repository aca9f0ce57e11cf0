"""Labels as arrays (NaN, text, gaps, -1 and 1, one-hot) are read alike by every function."""
import json
import math
import warnings

import numpy as np
import pytest

import hpgcn
from hpgcn.datasets import convert
from hpgcn.errors import DataError, DataWarning
from hpgcn.graphs.graph import Graph

EDGES = np.array([[0, 1, 2, 3], [1, 2, 3, 4]])
N = 5


def doors(y, tmp_path):
    """Yield (graph, messages) for each function that makes a graph with the labels y."""
    A = np.zeros((N, N))
    A[EDGES[1], EDGES[0]] = 1
    makers = [lambda: Graph.from_scipy(A, y=y, name="g"),
              lambda: Graph.from_edge_index(EDGES, labels=y, name="g")]
    for make in makers:
        with warnings.catch_warnings(record=True, action="always") as caught:
            graph = make()
        yield graph, [str(each.message).removeprefix("g: ") for each in caught]
    if np.asarray(y).dtype.kind == "O":
        return  # object arrays cannot be stored in files or tensors
    np.savez(tmp_path / "g.npz", edge_index=EDGES, num_nodes=N, y=y)
    yield convert.read(tmp_path / "g.npz")
    np.savez(tmp_path / "h.npz", edge_index=EDGES, num_nodes=N)
    np.save(tmp_path / "y.npy", y)
    yield convert.read(tmp_path / "h.npz", labels=tmp_path / "y.npy")


def test_nan_is_unlabeled_and_whole_numbers_are_classes(tmp_path):
    for y in ([0.0, np.nan, 2, 1, -1], np.array([[0], [np.nan], [2], [1], [-1]], np.float32)):
        for graph, _ in doors(y, tmp_path):
            assert graph.labels.tolist() == [0, -1, 2, 1, -1] and graph.labels.dtype == np.int64
    for y, message in (([0, 0.5, np.nan, 1, 1], "vertex 1 is 0.5, expected .* or NaN for unknown"),
                       ([0, np.inf, 0, 1, 1], "label at 1 is inf"),
                       ([[0, 1], [np.nan, 1], *[[1, 0]] * 3], r"label at \(1, 0\) is nan")):
        with pytest.raises(DataError, match=message):
            Graph.from_scipy(np.eye(N), y=y)


@pytest.mark.long
def test_nan_in_tensors_and_attributes():
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.data")
    y = torch.tensor([[0.0], [float("nan")], [2], [1], [1]])
    data = pyg.Data(edge_index=torch.from_numpy(EDGES), y=y, num_nodes=N)
    assert hpgcn.from_pyg(data).labels.tolist() == [0, -1, 2, 1, 1]
    networkx = pytest.importorskip("networkx")
    G = networkx.path_graph(3)
    networkx.set_node_attributes(G, {0: 1.0, 1: float("nan"), 2: 0.0}, "y")
    assert hpgcn.from_networkx(G, labels="y").labels.tolist() == [1, -1, 0]


@pytest.mark.parametrize("y, labels, names", [
    (["b", "a", "", "b", "NA"], [1, 0, -1, 1, -1], ("a", "b")),
    (["10", "2", "nan", "2.0", "01"], [10, 2, -1, 2, 1], None),
    (np.array([b"x", b"y", b"x", b"y", b"?"]), [0, 1, 0, 1, -1], ("x", "y")),
    (np.array(["b", None, "a", np.nan, "b"], object), [1, -1, 0, -1, 1], ("a", "b")),
    (np.array([1, None, 0, np.nan, 1.0], object), [1, -1, 0, -1, 1], None),
    (np.array([["True"], ["False"], ["True"], ["True"], ["None"]]), [1, 0, 1, 1, -1],
     ("false", "true"))], ids=str)
def test_text_is_read_as_in_tables(tmp_path, y, labels, names):
    for graph, _ in doors(y, tmp_path):
        assert graph.labels.tolist() == labels and graph.class_names == names


@pytest.mark.parametrize("y, message", [
    (["a", "1", "a", "a", "a"], "g: labels: vertex 1: label '1', expected numbers alone or names"),
    (np.array([{}, 1, 1, 1, 1], object), "g: label of vertex 0 is a dict, expected a number or"),
    (np.array([["a", "b"]] * N), "labels have dtype <U1, expected integers")])
def test_text_that_is_refused(y, message):
    with pytest.raises(DataError, match=message):
        Graph.from_scipy(np.eye(N), y=y, name="g")


@pytest.mark.parametrize("y, said", [
    ([5, 60000, 7, 1, 1], "60001 classes, 0..60000, but only 4 of them have vertices: "),
    ([5, 40, 7, 1, 1], "41 classes, 0..40, but only 4 of them have vertices: np.unique(y"),
    ([-1, 1, 1, -1, 1], "labels are -1 and 1, but -1 means unlabeled: for two classes pass"),
    (np.eye(N), "labels (5, 5) are one-hot, and are used as multi-label"),
    ([0, 1, 2, 0, -1], None), ([1, 1, 1, 1, 1], None), ([0, 1, 1, 0, -1], None)])
def test_numbers_that_may_not_be_meant_so(tmp_path, y, said):
    for k, (_, messages) in enumerate(doors(y, tmp_path)):
        found = [message for message in messages if said and message.startswith(said)]
        gaps = any("numbered 0..3 in increasing order" in message for message in messages)
        assert len(found) == bool(said) or (k > 1 and gaps), messages
        assert said or not any("classes" in message for message in messages)


RING = np.stack([np.arange(40), (np.arange(40) + 1) % 40])
TARGETS = {
    "ages": [float(18 + k % 7) for k in range(40)], "ratings": [float(k % 5) for k in range(40)],
    "traffic": [15 + k * k * 317 for k in range(40)], "prices": [99 + k // 2 for k in range(40)],
    "unknown": [np.nan, -1] + [float(3 * k) for k in range(38)], "ids": [*range(40)]}
CLASSES = {
    "few": [k % 8 for k in range(40)], "from one": [1 + k % 3 for k in range(40)],
    "binary": [float(k % 2) for k in range(40)], "tail": [*range(4), *[4, 5, 6, 7, 8, 9] * 6],
    "gaps": [10 * (k % 6) for k in range(40)],
    "unknown": [np.nan, *[float(k % 4) for k in range(39)]],
    "most unlabeled": [*range(7), *[-1] * 33], "rare": [*range(20), *[0, 1] * 10][:8] * 5}


def whole(y):
    return [-1 if math.isnan(value) else int(value) for value in y]


def doors_to(y, folder, **options):
    """Return the ways to read a ring with labels y, each a function without arguments."""
    A = np.roll(np.eye(40), 1, axis=1)
    np.savez(folder / "g.npz", edge_index=RING, num_nodes=40)
    np.savez(folder / "h.npz", edge_index=RING, num_nodes=40, y=y)
    np.save(folder / "y.npy", y)
    (folder / "y.txt").write_text("\n".join(["label", *map(str, y)]))
    (folder / "y.csv").write_text("\n".join(["id,label", *(f"{k},{v}" for k, v in enumerate(y))]))
    (folder / "y.json").write_text(json.dumps({str(k): None if math.isnan(v) else v
                                               for k, v in enumerate(y)}))
    yield lambda: Graph.from_scipy(A, y=y, **options)
    yield lambda: Graph.from_edge_index(RING, labels=np.array(y)[:, None], **options)
    yield lambda: convert.read(folder / "h.npz", **options)[0]
    for name in ("y.npy", "y.txt", "y.csv", "y.json"):
        yield lambda name=name: convert.read(folder / "g.npz", labels=folder / name, **options)[0]


@pytest.mark.filterwarnings("ignore::hpgcn.errors.DataWarning")
@pytest.mark.parametrize("kind", TARGETS)
def test_values_to_predict_are_refused(tmp_path, kind):
    y = TARGETS[kind]
    for read in doors_to(y, tmp_path):
        with pytest.raises(DataError, match=r"are they values to predict|all different, expected"):
            read()
    for read in doors_to(y, tmp_path, classes=True):
        graph = read()
        if kind == "traffic":  # its numbers have large gaps
            assert graph.class_names == tuple(map(str, y))
        assert graph.labels.tolist() == (whole(y) if kind != "traffic" else [*range(40)])


@pytest.mark.filterwarnings("ignore::hpgcn.errors.DataWarning")
@pytest.mark.parametrize("kind", CLASSES)
def test_numbers_that_are_classes(tmp_path, kind):
    y = whole(CLASSES[kind])
    for read in doors_to(CLASSES[kind], tmp_path, classes=kind == "most unlabeled"):
        assert read().labels.tolist() == y


def test_large_whole_features_are_said_to_be_rounded(tmp_path):
    X = np.full((N, 2), 1)
    X[1, 1] = 1600000001
    with pytest.warns(DataWarning, match="g: 1 features are beyond 2.24, so float32 rounds"):
        Graph.from_scipy(np.eye(N), X, name="g")
    np.savez(tmp_path / "g.npz", edge_index=EDGES, x=X)
    _, notes = convert.read(tmp_path / "g.npz")
    assert any(note.startswith("1 features are beyond 2^24") for note in notes)

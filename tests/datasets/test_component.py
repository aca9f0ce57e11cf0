"""Option `largest_component` keeps the largest component with its features, labels and masks."""
import numpy as np
import pytest

from hpgcn.datasets.convert import read
from hpgcn.store import load, write_graph


def several(tmp_path):
    """Write an .npz graph with the components 0-4-6 (directed), 1-2, 3-5-7 and 8.

    Return its path.
    """
    edges = np.array([[4, 4, 2, 5, 7], [0, 6, 1, 3, 5]])
    n = 9
    masks = {f"{key}_mask": np.arange(n) % 3 == i
             for i, key in enumerate(("train", "val", "test"))}
    path = tmp_path / "g.npz"
    x = np.arange(2.0 * n).reshape(n, 2)
    np.savez(path, edge_index=edges, x=x, y=np.arange(n) % 4, **masks)
    return path


def test_all_splits_go_along(tmp_path):
    path = several(tmp_path)
    arrays = dict(np.load(path))
    arrays |= {name: np.stack([mask, np.roll(mask, 1)]) for name, mask in arrays.items()
               if name.endswith("_mask")}
    np.savez(path, **arrays)
    graph, _ = read(path, largest_component=True)
    whole, _ = read(path)
    for key, mask in whole.masks.items():
        np.testing.assert_array_equal(graph.masks[key], mask[[0, 4, 6]])


def test_what_belongs_to_the_vertices_goes_along(tmp_path):
    graph, notes = read(several(tmp_path), largest_component=True)
    assert graph.original_ids.tolist() == [0, 4, 6]  # the first of two of 3 vertices
    assert "6 vertices dropped: not in the largest component" in notes
    A = np.zeros((3, 3))
    A[0, 1] = A[2, 1] = 1  # row target aggregates source
    np.testing.assert_array_equal(graph.adjacency.toarray(), A)
    assert graph.features.tolist() == [[0, 1], [8, 9], [12, 13]]
    assert graph.labels.tolist() == [0, 0, 2]
    assert graph.masks["train"].tolist() == [True, False, True]
    assert graph.masks["val"].tolist() == [False, True, False]
    write_graph(tmp_path / "g.h5", graph)
    with load(tmp_path / "g.h5") as stored:
        assert stored.read().original_ids.tolist() == [0, 4, 6]


@pytest.mark.long
@pytest.mark.parametrize("name", ["karate", "digits"])
def test_a_connected_graph_stays_as_it_is(name):
    graph, notes = read(name, largest_component=True)
    whole, _ = read(name)
    connected = "0 vertices dropped: not in the largest component" in notes
    assert connected == (graph.num_rows == whole.num_rows) == (graph.original_ids is None)
    if connected:
        np.testing.assert_array_equal(graph.indices, whole.indices)


def test_a_list_of_edges_keeps_its_ids(tmp_path):
    path = tmp_path / "g.txt"
    path.write_text("10 20\n20 30\n40 50\n")
    graph, _ = read(path, largest_component=True, symmetrize=True)
    assert graph.original_ids.tolist() == [10, 20, 30]
    assert graph.adjacency.toarray().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_a_real_set(data_dir):
    """The largest component of Amazon Computers has the size in Table 1 of Shchur et al. (2018)."""
    graph, _ = read(data_dir / "npz" / "amazon_computers.npz", largest_component=True,
                    symmetrize=True, split="per-class:20/30")
    assert graph.num_rows == 13381
    loops = np.count_nonzero(graph.adjacency.diagonal())
    assert (graph.header.num_edges - loops) // 2 == 245778
    assert [int(graph.masks[key].sum()) for key in ("train", "val")] == [200, 300]

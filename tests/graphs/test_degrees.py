"""If degrees cannot be inverted, rank 0 prints one warning with their number."""
import numpy as np
import pytest
import scipy.sparse as sp
from commands import MPIEXEC, hpgcn

from hpgcn import Config, store, train
from hpgcn.graphs.graph import Graph

pytestmark = pytest.mark.filterwarnings("ignore::hpgcn.errors.DataWarning")
N = 12


def chain(weight, symmetric):
    """Return a graph in which vertex i aggregates i + 1; the last vertex has no neighbors."""
    A = sp.diags_array([np.full(N - 1, float(weight))], offsets=[1], shape=(N, N))
    return graph(A + A.T if symmetric else A)


def pairs(weight):
    """Return a graph in which vertices 2 i and 2 i + 1 aggregate each other."""
    return graph(sp.kron(sp.eye_array(N // 2), [[0, weight], [weight, 0]]))


def graph(A):
    order = np.arange(N)
    masks = (order < 6, (order > 5) & (order < 9), order > 8)
    return Graph.from_scipy(A, np.eye(N, 3), order % 2, masks, name="mine")


ALL = "12 of 12 vertices have a degree of 0 or less, "
CASES = [  # graph, settings, and the expected warning, if any
    (chain(1, False), {"model": "sage"}, "mine: 1 of 12 vertices has a degree of 0 or less: their"),
    (chain(1, False), {"model": "sage", "strategy": "mop"}, "1 of 12 vertices has"),
    (chain(1, False), {"model": "sage", "aggregator": "gcn"}, None),
    (chain(1, False), {}, None),
    (chain(1, True), {"model": "sage"}, None),
    (chain(1, False), {"model": "gin"}, None),
    (graph(sp.coo_array(([-3.0, -3], ([0, 1], [1, 0])), (N, N))), {}, "2 of 12 vertices have"),
    (pairs(-1), {}, f"mine: {ALL}12 because weights cancel or are negative"),
    (pairs(-1), {"strategy": "2d"}, f"{ALL}12 because weights"),
    (pairs(-1), {"model": "sage"}, f"{ALL}12 because weights"),
    (chain(-1, False), {}, f"{ALL}12 because weights"),  # rows, columns or both
    (chain(-1, False), {"model": "sage"}, f"{ALL}11 because weights"),
]


@pytest.mark.long
@pytest.mark.parametrize("source, settings, words", CASES)
def test_one_warning_of_the_users_own_graph(caplog, source, settings, words):
    train(source, Config(epochs=1, **settings))
    said = [record.getMessage() for record in caplog.records if "degree" in record.getMessage()]
    assert len(said) == (words is not None)
    assert all(words in line and "docs/models.md" in line for line in said)


@pytest.mark.long
@pytest.mark.skipif(not MPIEXEC, reason="no mpiexec: pip install '.[mpi,mpich]'")
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("strategy", [pytest.param("1d", marks=pytest.mark.long), "2d"])
def test_rank_0_says_it_for_all(tmp_path, strategy):
    store.write_graph(tmp_path / "g.h5", chain(-1, False))
    grid = ("--grid", "1x2") if strategy == "2d" else ()
    done = hpgcn("train", "g.h5", "--epochs", 1, "--strategy", strategy, *grid, ranks=2,
                 cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"{ALL}12 because weights") == 1

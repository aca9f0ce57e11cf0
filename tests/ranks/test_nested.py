"""A file with nested parts can be read by every number of ranks into which its parts merge."""
import numpy as np
import pytest
from graphs import make
from training import alone

from hpgcn import store, train
from hpgcn.config import Config
from hpgcn.errors import ConfigError
from hpgcn.graphs.partition import Partition
from hpgcn.planning.answers.options import Options
from hpgcn.planning.answers.report import forecast

EACH = 4  # parts of the file that a rank takes


def nested_file(comm, path, graph, nested=True):
    """Write a file with EACH random parts for each rank, also of entries; return its path."""
    path = comm.bcast(path)
    if comm.rank == 0:
        rng = np.random.default_rng(3)
        k = EACH * comm.size
        part, edge_part = (rng.integers(0, k, size) for size in (graph.num_rows,
                                                                 graph.indices.size))
        made = Partition.from_parts(part, k, edge_part=edge_part, nested=nested)
        store.write_partitioned(path, graph, made)
    comm.barrier()
    return path


@pytest.mark.long
@pytest.mark.parametrize("comm", [2, 3], indirect=True)
@pytest.mark.parametrize("strategy", ["p2p", *(
    pytest.param(name, marks=pytest.mark.long) for name in ("cover", "vertex-cut", "1d"))])
def test_it_trains_on_merged_parts(comm, tmp_path, strategy):
    graph = make(directed=True, weighted=True)
    path = nested_file(comm, tmp_path / "nested.h5", graph)
    with store.load(path) as stored:
        assert stored.merges[:2] == (2 * comm.size, comm.size)
        merged = stored.merged(comm.size)
        whole = stored.partition.merged(comm.size)
        found = merged.partition
        for name in ("part", "perm", "offsets", "edge_part"):
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    config = Config(strategy=strategy, epochs=3, dtype="float64", hidden=6, prune=False)
    result = train(path, config, comm.mpi)
    expected, _ = alone(graph, config)
    np.testing.assert_allclose([each["loss"] for each in result.history],
                               [each["loss"] for each in expected], rtol=1e-11)
    assert result["sent_bytes_per_epoch"] == result["predicted_bytes_per_epoch"]

    rows = forecast(path, Options(config=config))["rows"]
    assert {comm.size, 2 * comm.size, EACH * comm.size} <= {row["ranks"] for row in rows}
    told = next(row for row in rows
                if (row["ranks"], row["strategy"]) == (comm.size, strategy))
    assert told["bytes"]["total"] == result["sent_bytes_per_epoch"]


@pytest.mark.parametrize("comm", [2, 3], indirect=True)
def test_others_are_refused(comm, tmp_path):
    path = nested_file(comm, tmp_path / "parts.h5", make(), nested=False)
    with pytest.raises(ConfigError, match=rf"partition has {EACH * comm.size} parts but {comm.size}"
                                          r" ranks? started; run on \d+ ranks, by .* or `mpiexec"):
        train(path, Config(epochs=1), comm.mpi)

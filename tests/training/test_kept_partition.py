"""A run stores the partition that it makes beside the graph, or else in the run directory."""
import logging

import numpy as np
import pytest
from commands import succeed
from graphs import make

from hpgcn import propagation, run_on_ranks, store
from hpgcn.errors import OutputError
from hpgcn.partition.partition_memory import stored_memory
from hpgcn.training.files.run_directory import refuse_existing_run
from hpgcn.training.setup import run_partition


@pytest.fixture
def stored(tmp_path):
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "g.h5"
    store.write_graph(path, make())
    with store.load(path) as graph:
        yield graph


@pytest.fixture
def read_only(tmp_path, monkeypatch):
    """Return a set of folders; writing to one of them raises PermissionError."""
    real = run_partition.temporary_file
    folders = {tmp_path / "data"}

    def refuse(folder):
        if folder in folders:
            raise PermissionError(13, "Permission denied")
        return real(folder)

    monkeypatch.setattr(run_partition, "temporary_file", refuse)
    return folders


def test_it_lies_in_the_run_directory_and_is_found_again(stored, read_only, tmp_path, caplog):
    run = tmp_path / "runs" / "first"
    with caplog.at_level(logging.INFO, "hpgcn"):
        kept = run_partition.kept_partition(stored, 2, "block", run)
        assert run_partition.kept_partition(stored, 2, "block", run) == kept
    path = run / "partitions" / "g.p2.h5"
    assert kept[0] == str(path) and path.exists()
    assert caplog.records[0].levelno == logging.WARNING
    assert caplog.messages[:2] == [
        f"{tmp_path / 'data'} cannot be written; partitioning {stored.path} into 2 parts by block; "
        f"kept as {path}", f"using the partition in {path}"]
    assert run_partition.kept_partition(stored, 2, "random", run, also="block") == kept
    found = run_partition.kept_partition(stored, 2, "random", run)[0]
    assert found == f"{run}/partitions/g.p2-random-0.h5"
    refuse_existing_run(run, overwrite=False)  # a run can still start in this directory
    (run / "config.toml").touch()
    with pytest.raises(OutputError, match="run directory exists"):
        refuse_existing_run(run, overwrite=False)


def test_dry_runs_and_products_keep_none(stored, tmp_path):
    def total(comm):
        with propagation(stored.path, comm) as product:
            return product.forward(np.ones((product.rows.size, 1))).sum()

    expected = total(None)
    before = sorted(tmp_path.rglob("*"))
    assert sum(run_on_ranks(total, 2)) == pytest.approx(expected, rel=1e-6)
    succeed("train", stored.path, "--ranks", 2, "--dry-run", "--strategy", "p2p")
    assert sorted(tmp_path.rglob("*")) == before


def test_it_fits_the_memory(stored, caplog):
    least = stored_memory(stored.header, 2)
    with caplog.at_level(logging.INFO, "hpgcn"):
        kept = run_partition.kept_partition(stored, 2, "best", memory=least)
        assert run_partition.kept_partition(stored, 2, "best", memory=least) == kept
    assert "best, effort fast (the memory allows no more)" in caplog.messages[0]
    assert "passes over the file" in caplog.messages[1]
    assert caplog.messages[-1] == f"using the partition in {kept[0]}"
    with store.load(kept[0]) as made:
        assert made.vertex_partition.title == "best (stream)"


def test_beside_the_graph_it_comes_first(stored, tmp_path):
    kept = run_partition.kept_partition(stored, 2, "block", tmp_path / "run")
    assert kept[0] == str(tmp_path / "data" / "g.p2.h5")
    assert not (tmp_path / "run").exists()


def test_a_partition_that_fails_leaves_nothing(stored, read_only, tmp_path, monkeypatch):
    from hpgcn import partition

    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr(partition, "make_partition", fail)
    with pytest.raises(MemoryError):
        run_partition.kept_partition(stored, 2, "block", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_any_folder_it_is_made_in_memory(stored, read_only, tmp_path, caplog):
    assert run_partition.kept_partition(stored, 2, "block") is None
    read_only.add(tmp_path / "run" / "partitions")
    assert run_partition.kept_partition(stored, 2, "block", tmp_path / "run") is None
    assert caplog.messages == [
        f"{tmp_path / 'data'} cannot be written: the partition is not stored"] * 2
    assert not (tmp_path / "run").exists()

    class Comm:
        size, rank = 2, 0

        def bcast(self, thing):
            return thing

        def extended_timeout(self, _):
            return self

        def collective_errors(self):
            return self

        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass

    made = run_partition.partitioned(stored, Comm(), "block")
    assert len(made.offsets) == 3
    np.testing.assert_array_equal(np.sort(made.vertex), np.arange(stored.header.num_nodes))

"""Strategy auto takes the plan's best strategy.

It sends no more rows than p2p by hypergraph parts.
"""
from contextlib import nullcontext

import pytest
from graphs import make

from hpgcn import store, train
from hpgcn.config import Config
from hpgcn.errors import InternalError, UsageError
from hpgcn.partition import make_partition
from hpgcn.planning.answers import automatic
from hpgcn.planning.answers.options import Options
from hpgcn.planning.answers.report import forecast
from hpgcn.strategies.cover import CoverPlan

SETTINGS = {"epochs": 3, "hidden": 10, "prune": False}


def partitioned(graph, comm, folder, method):
    """Write the graph with one part for each rank, made by `method`; return the file's path."""
    path = comm.bcast(folder / f"{method}.h5")
    if comm.rank == 0:
        store.write_partitioned(path, graph, make_partition(graph, comm.size, method=method))
    comm.barrier()
    return path


@pytest.mark.long
@pytest.mark.parametrize("comm", [1, 2, 4], indirect=True)
@pytest.mark.parametrize("method", ["block", "vertex-cut"])
@pytest.mark.parametrize("directed", [False, True])
def test_a_run_takes_what_the_plan_chooses(comm, tmp_path, method, directed, monkeypatch):
    monkeypatch.setattr(automatic, "SEARCH", 0.0)
    path = partitioned(make(n=400, directed=directed), comm, tmp_path, method)
    config = Config(**SETTINGS)
    chosen = train(path, config, comm.mpi)
    named = train(path, config.replace(strategy=chosen["strategy"]), comm.mpi)
    assert [each["loss"] for each in chosen.history] == [each["loss"] for each in named.history]
    assert (chosen["strategy_choice"] != "") == (comm.size > 1) and not named["strategy_choice"]
    assert chosen.config.strategy == chosen["strategy"]  # which goes into the run's own config.toml

    rows = forecast(path, Options(ranks=(comm.size,), config=config))["rows"]
    limit = min(row["bytes"]["total"] for row in rows if row["strategy"] in ("p2p", "vertex-cut"))
    sparing = [row for row in rows if row["bytes"]["total"] <= limit]
    fastest = min(sparing, key=lambda row: row["seconds"]["epoch"])
    assert chosen["strategy"] == fastest["strategy"]


@pytest.mark.long
@pytest.mark.parametrize("comm", [2, 5], indirect=True)
@pytest.mark.parametrize("kind", [
    {"directed": True}, {"degree": 2},
    *(pytest.param(kind, marks=pytest.mark.long) for kind in ({}, {"n": 60, "degree": 30}))])
def test_no_more_is_sent_than_by_rows_of_a_hypergraph(comm, kind):
    pytest.importorskip("mtkahypar", reason="needs pip install '.[partition]'")
    graph = make(**{"n": 300, **kind})
    ours, rows = (train(graph, Config(strategy=strategy, **SETTINGS), comm.mpi)
                  for strategy in ("auto", "p2p"))
    assert ours["sent_bytes_per_epoch"] == ours["predicted_bytes_per_epoch"]
    assert ours["sent_bytes_per_epoch"] <= rows["sent_bytes_per_epoch"]
    assert ours["final_loss"] == pytest.approx(rows["final_loss"], rel=1e-4)


@pytest.mark.parametrize("comm", [3], indirect=True)
@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_short_runs_search_for_no_holders(comm, seconds, monkeypatch):
    counted = []
    monkeypatch.setattr(automatic, "SEARCH", seconds)
    monkeypatch.setattr(CoverPlan, "of", lambda *arguments: counted.append(arguments) or 1 / 0)
    with pytest.raises(InternalError, match="ZeroDivision") if not seconds else nullcontext():
        train(make(n=400, degree=20), Config(**SETTINGS), comm.mpi)
    assert not (seconds and counted)


@pytest.mark.parametrize("comm", [2], indirect=True)
def test_what_belongs_to_another_strategy_is_refused(comm):
    for settings, taker in (({"balance": 0.1}, "cover"), ({"replication": 1}, "1.5d")):
        with pytest.raises(UsageError, match=f"only for strategy {taker}; add strategy='{taker}'"):
            train(make(), Config(**SETTINGS, **settings), comm.mpi)

"""Memory of links: plans and runs count alike, arrays have these bytes, blocks bound the rest."""
import gc
import json
import tracemalloc
from dataclasses import fields

import numpy as np
import pytest
import scipy.sparse as sp
from commands import refused, succeed
from graphs import make, scattered, with_links
from held import distinct, footprint_of, run_two_epochs

from hpgcn import store
from hpgcn.comm import SerialComm, as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.graphs.graph import Graph
from hpgcn.planning.counts import link_sizes
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.training.setup import rank_links

GIVEN = {"negative": np.random.default_rng(1).integers(0, 90, (37, 2))}
GRAPHS = {"drawn": with_links(make(n=90)), "directed": with_links(make(n=90, directed=True)),
          "given": with_links(make(n=90), **GIVEN)}
KINDS = [{}, {"negatives": "uniform:3", "strict_negatives": True, "decoder": "hadamard:2"},
         {"negatives": "shared:9", "decoder": "distmult", "dtype": "float64"},
         {"evaluation_negatives": "targets:2"}, {"evaluation_negatives": "pairs:3"},
         {"evaluation_negatives": "all", "metric": "mrr"}]


def held_bytes(trainer):
    """Return the bytes of the arrays of links, and rows of messages of the last epoch."""
    links, loss, pairs = trainer.batches.links, trainer.training.loss, trainer.batches.pairs
    blocks = [block for both in links.evaluated.values() for each in both for block in each.blocks]
    plans = [pairs.pulled.plan, *(block[0].plan for block in blocks)]
    arrays = [links.row_of, links.draws.positive, links.draws.numbers, links.draws.known.keys,
              pairs.sources, pairs.targets, pairs.shared, pairs.distinct, pairs.counts,
              links.buffers.owned, links.buffers.ghost, *loss.workspace.arrays.values(),
              *loss.decoder_gradient.values()]
    for each in links.ranked.values():
        arrays += [each.keys, each.sources, *each.rows.workspace.arrays.values()]
    arrays += [array for plan in plans for array in (plan.ghosts, plan.send_rows)]
    arrays += [array for block in blocks for array in block[1:]]
    return distinct(arrays), plans[0].ghosts.size + plans[0].send_rows.size


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("strategy", ["p2p", "1d", "vertex-cut"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("graph", GRAPHS)
def test_plans_and_runs_count_alike(graph, kind, strategy, ranks, monkeypatch):
    for module in (link_sizes, rank_links):
        monkeypatch.setattr(module, "SCORED", 7)
    config = Config(**{"task": "links", "strategy": strategy, "epochs": 2, "output_width": 6,
                       "hidden": 5, "replay": "never", **kind})

    def check(mpi):
        comm = as_comm(mpi)
        source = scattered(GRAPHS[graph], comm)
        footprint = footprint_of(source, config, comm, PlanInput(source, config))
        trainer, _ = run_two_epochs(source, config, comm)
        planned, counted = footprint.links, trainer.batches.links.sizes
        for field in fields(planned):
            expected = getattr(planned, field.name)
            found = getattr(counted, field.name)
            if field.name != "blocks" or comm.size > 1:
                np.testing.assert_array_equal(np.array(found), np.array(expected), field.name)

        # arrays have these bytes; those of messages are bounded
        held, rows = held_bytes(trainer)
        largest = planned.largest[comm.rank].sum() + planned.largest[:, comm.rank].sum()
        assert rows <= largest
        said = planned.stored_bytes(footprint.spec)[comm.rank]
        assert said == held + 8 * (largest - rows)
        trainer.close()

    if ranks == 1:
        check(SerialComm())
    else:
        run_on_ranks(check, ranks)


@pytest.mark.parametrize("kind", [
    {}, {"negatives": "uniform:4", "strict_negatives": True}, {"decoder": "hadamard:3"},
    {"negatives": "shared:200", "dtype": "float64"},
    {"negatives": "shared:40", "decoder": "hadamard:2"},
    {"evaluation_negatives": "all", "metric": "mrr"},
    {"evaluation_negatives": "all", "metric": "mrr", "decoder": "hadamard:2"}], ids=str)
def test_passing_arrays_are_bounded(kind, tmp_path):
    """No more memory is used at once while links are read, in a step, and in an evaluation."""
    n, k = 3000, 60_000
    rng = np.random.default_rng(0)
    A = sp.coo_array((np.ones(k), rng.integers(0, n, (2, k))), shape=(n, n))
    graph = with_links(Graph.from_scipy(A, np.ones((n, 4), np.float32), symmetrize=True))
    store.write_graph(tmp_path / "g.h5", graph)
    config = Config(**{"task": "links", "output_width": 24, "hidden": 4, "replay": "never",
                       "layers": 1, **kind})
    footprint = footprint_of(graph, config, SerialComm(), PlanInput(graph, config))
    sizes, spec = footprint.links, footprint.spec
    tracemalloc.start()
    trainer, _ = run_two_epochs(graph, config, SerialComm())
    kept, _ = tracemalloc.get_traced_memory()
    peaks = []
    for work in (lambda: trainer.train_epoch(3),
                 lambda: trainer.training.loss.evaluate(np.ones((n, 24), spec.dtype))):
        tracemalloc.reset_peak()
        work()
        peaks.append(tracemalloc.get_traced_memory()[1] - kept)
    gc.collect()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    with store.load(tmp_path / "g.h5") as source:
        links = rank_links.RankLinks(source, trainer.shard, config)
    stored, reading = (size - before for size in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    links.close()
    trainer.close()
    for expected, found in ((sizes.block_bytes(spec)[0], max(peaks)),
                            (sizes.set_up_bytes[0], reading - stored)):
        assert 0.5 * expected < found < 1.02 * expected + 50_000


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_plans_of_links(tmp_path, ranks):
    """`hpgcn plan` has the bytes, messages and memory of the run, which needs this --memory."""
    store.write_graph(tmp_path / "g.h5", GRAPHS["drawn"])
    settings = ("--task", "links", "--epochs", 2, "--output-width", 6)
    rows = json.loads(succeed("plan", tmp_path / "g.h5", *settings, "-k", ranks, "--json"))["rows"]
    row = next(row for row in rows if row["strategy"] == ("1d" if ranks > 1 else "p2p"))
    settings += ("--ranks", ranks, "--strategy", row["strategy"])
    report = json.loads(succeed("train", tmp_path / "g.h5", *settings, "--dry-run", "--json"))
    peaks = [each["peak"] for each in report["memory"]]
    assert row["memory"]["max_bytes"] == max(peaks)
    assert min(each["links"] for each in report["memory"]) > 0
    out = ("--out", tmp_path / "run", "--json")
    done = json.loads(succeed("train", tmp_path / "g.h5", *settings, "--memory", max(peaks), *out))
    for name in ("bytes", "messages"):
        assert (row[name]["total"] == report[f"predicted_{name}_per_epoch"]
                == done[f"predicted_{name}_per_epoch"] == done[f"sent_{name}_per_epoch"])

    # a byte less is refused before the run
    line = refused(78, "train", tmp_path / "g.h5", *settings, "--memory", max(peaks) - 1)
    assert f"needs {max(peaks):,} bytes, but --memory is {max(peaks) - 1:,}" in line
    text = succeed("train", tmp_path / "g.h5", *settings, "--dry-run")
    assert "links" in [line.split()[0] for line in text.splitlines() if line]

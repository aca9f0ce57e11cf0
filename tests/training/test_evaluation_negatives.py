"""Negatives of evaluations: drawn pairs, drawn targets, and all vertices, against dense NumPy."""
from dataclasses import replace

import numpy as np
import pytest
from cuda_ranks import cuda, gpu
from graphs import make, with_links
from training import start

import hpgcn
from hpgcn.comm import SerialComm, as_comm, run_on_ranks
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.graphs.links import LinkSet
from hpgcn.model.link_metrics import average_precision, hits
from hpgcn.model.links import all_targets
from hpgcn.model.links.all_targets import AllTargets
from hpgcn.model.links.decoders import Dot
from hpgcn.parallel.layout import RowPartition, split
from hpgcn.parallel.transfers import StagedPlan
from hpgcn.parallel.workspace import Workspace
from hpgcn.sampling.negatives import KnownLinks, UniformTargets, turned

__all__ = ["cuda", "gpu"]
N = 90
GRAPHS = {name: with_links(make(n=N, directed=name == "directed"))
          for name in ("undirected", "directed")}
CONFIG = Config(task="links", epochs=1, hidden=8, output_width=6, lr=0.05, dropout=0.0, seed=3,
                dtype="float64", strategy="p2p")


def links_of(graph, key):
    """Return the links of a set as the run turns them, and the known ones of each source."""
    links = {name: each.positive for name, each in graph.links.items()}
    known = np.concatenate([*links.values()])
    pairs = links[key]
    if not graph.header.directed:
        known = np.concatenate([known, known[:, ::-1]])
        pairs = turned(pairs, np.arange(len(pairs)), CONFIG.seed)
    return pairs, known


def scores_of(graph, result):
    every = [[u, v] for u in range(N) for v in range(N)]
    return hpgcn.predict(graph, result, pairs=every)["score"].reshape(N, N)


def expected_ranks(scores, pairs, known):
    """Return the filtered rank of each link: the mean of the optimistic and pessimistic ones."""
    allowed = ~np.eye(N, dtype=bool)
    allowed[tuple(known.T)] = False
    found = []
    for source, target in pairs:
        others = scores[source][allowed[source]]
        best = 1 + np.count_nonzero(others > scores[source, target])
        worst = 1 + np.count_nonzero(others >= scores[source, target])
        found.append((best + worst) / 2)
    return np.array(found)


@pytest.mark.parametrize("metric", ["mrr", "hits@3"])
@pytest.mark.parametrize("decoder", ["dot", "distmult", "hadamard:2"])
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("targets", [all_targets.TARGETS, 7])
def test_links_are_ranked_among_all_vertices(kind, decoder, metric, targets, monkeypatch):
    monkeypatch.setattr(all_targets, "TARGETS", targets)
    graph = GRAPHS[kind]
    config = CONFIG.replace(decoder=decoder, metric=metric, evaluation_negatives="all")
    result = hpgcn.train(graph, config)
    scores = scores_of(graph, result)
    for key in ("val", "test"):
        rank = expected_ranks(scores, *links_of(graph, key))
        value = np.mean(1 / rank) if metric == "mrr" else np.mean(rank <= 3)
        assert result[f"{key}_{metric}"] == pytest.approx(value, rel=1e-12)
    others = hpgcn.train(graph, config.replace(evaluation_negatives="auto"))
    assert result["best_val_acc"] == result[f"val_{metric}"] != others[f"val_{metric}"]
    assert result["test_auc"] == others["test_auc"]


@pytest.mark.parametrize("ranks", [2, 3, 5])
@pytest.mark.parametrize("strategy", ["p2p", "vertex-cut", "1d"])
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("negatives", ["all", "targets:4", "pairs:3"])
def test_any_ranks_and_strategies_agree(negatives, kind, strategy, ranks):
    config = CONFIG.replace(metric="mrr", evaluation_negatives=negatives, strategy=strategy)

    def evaluated(mpi=None):
        comm = as_comm(mpi) if mpi else SerialComm()
        with start(GRAPHS[kind], config, comm) as trainer:
            metrics = trainer.train_epoch(1)
            trainer.evaluate_epoch(metrics)
            return metrics, comm.counters.total("eval"), trainer.shard.layout.offsets

    expected = evaluated()[0]
    assert {"val_mrr", "test_mrr"} <= {*expected}
    found = run_on_ranks(evaluated, ranks)
    for name in ("val_mrr", "test_mrr", "val_auc", "test_ap"):
        if name in expected:
            assert found[0][0][name] == expected[name]  # the same bits
    if negatives != "all":
        return

    # messages are those of the plan, besides those of pairs
    config = config.replace(evaluation_negatives="auto")
    offsets = found[0][2]
    planned, = StagedPlan(np.diff(offsets)[:, None]).pull(CONFIG.output_width * 8)
    pairs = run_on_ranks(evaluated, ranks)
    for rank in range(ranks):
        sent = np.subtract(found[rank][1], pairs[rank][1])
        np.testing.assert_array_equal(sent, 2 * np.array([planned.bytes[rank, 0],
                                                          planned.messages[rank, 0]]))


@pytest.mark.parametrize("kind", GRAPHS)
def test_drawn_negatives(kind):
    graph = GRAPHS[kind]
    for negatives in ("targets:5", "pairs:5"):
        config = CONFIG.replace(metric="hits@2", evaluation_negatives=negatives)
        result = hpgcn.train(graph, config)
        scores = scores_of(graph, result)
        for key in ("val", "test"):
            pairs, known = links_of(graph, key)
            known = KnownLinks(N, known)
            numbers = np.arange(len(pairs))
            positive = scores[tuple(pairs.T)]
            if negatives == "targets:5":
                sampler = UniformTargets(5, N, 3, strict=True)
                targets = sampler.targets(pairs[:, 0], numbers, known, 1, key)
                assert not np.count_nonzero(
                    known.holds(np.repeat(pairs[:, 0], 5), targets.ravel()))
                others = scores[pairs[:, :1], targets]
            else:
                sampler, numbers = UniformTargets(1, N, 3, strict=True), np.arange(5 * len(pairs))
                sources = sampler.draw(numbers, 0, key)
                targets = sampler.targets(sources, numbers, known, 1, key)[:, 0]
                others = scores[sources, targets]
            found = hits(SerialComm(), positive, others, 2)
            assert result[f"{key}_hits@2"] == pytest.approx(found)
            if others.ndim == 1:
                found = average_precision(SerialComm(), positive, others)
                assert result[f"{key}_ap"] == pytest.approx(found)


@pytest.mark.parametrize("decoder", ["dot", "hadamard:2"])
def test_ranks_on_a_gpu(gpu, decoder):
    config = CONFIG.replace(decoder=decoder, metric="mrr", evaluation_negatives="all")
    comm = SerialComm()
    comm.use(gpu)
    with start(GRAPHS["directed"], config, comm) as trainer:
        metrics = trainer.train_epoch(1)
        trainer.evaluate_epoch(metrics)
    expected = hpgcn.train(GRAPHS["directed"], config)
    assert metrics["test_mrr"] == pytest.approx(expected["test_mrr"], rel=1e-12)


def test_given_negatives_are_replaced():
    graph = GRAPHS["undirected"]
    given = {key: LinkSet(each.positive, negative=np.array([[0, 1], [2, 3]]))
             for key, each in graph.links.items() if key != "train"}
    given = replace(graph, links={**graph.links, **given})
    results = [hpgcn.train(each, CONFIG.replace(evaluation_negatives=negatives))["test_auc"]
               for each, negatives in ((graph, "auto"), (given, "pairs:1"), (given, "auto"))]
    assert results[0] == results[1] != results[2]


@pytest.mark.parametrize("ranks", [1, 3])
def test_equal_rows_tie(ranks):
    rng = np.random.default_rng(0)
    Z = rng.integers(-1, 2, (N, 4)).astype(np.float32) / 3  # many rows are equal
    pairs, known = rng.integers(0, N, (40, 2)), rng.integers(0, N, (200, 2))
    known = np.concatenate([known, pairs, np.stack([np.arange(N)] * 2, axis=1)])

    def count(mpi):
        comm = as_comm(mpi)
        layout = RowPartition(split(N, comm.size), comm.rank)
        own, excluded = (each[(each[:, 0] >= layout.start) & (each[:, 0] < layout.stop)]
                         for each in (pairs, known))
        every = AllTargets(excluded - [layout.start, 0], layout, comm, Workspace(np.float32))
        every = every.of(own[:, 0] - layout.start)
        positive = (Z[own[:, 0]] * Z[own[:, 1]]).sum(axis=1)
        return own, every.ranks(positive, Z[layout.start:layout.stop], Dot(None, {}))

    scores = (Z[:, None] * Z).sum(axis=2)
    for own, rank in run_on_ranks(count, ranks):
        np.testing.assert_array_equal(rank, expected_ranks(scores, own, known))
        assert np.count_nonzero(rank % 1)


@pytest.mark.parametrize("changes, message", [
    ({"evaluation_negatives": "all"}, "'all': only for metric='mrr' and hits@K, not auto"),
    ({"evaluation_negatives": "all", "metric": "ap"}, "not ap"),
    *(({"evaluation_negatives": text}, "expected auto, pairs:Q, targets:Q or all")
      for text in ("some", "pairs", "pairs:0", "targets:x", "all:3"))])
def test_refused_settings(changes, message):
    with pytest.raises(UsageError, match=message):
        hpgcn.train(GRAPHS["directed"], CONFIG.replace(**changes))

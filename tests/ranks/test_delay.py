"""Delayed partial sums of a vertex cut: exact without delay, else equal to a NumPy model."""
import json
import logging
import os
import re
import signal

import numpy as np
import oracle
import pytest
from graphs import make
from held import check_held, footprint_of, run_two_epochs
from once import once
from test_contract import check_against_the_oracle
from training import SETTINGS, on_ranks, start

import hpgcn
from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import ConfigError, DataError, StoppedError, UsageError
from hpgcn.graphs.normalization import NormalizedAdjacency
from hpgcn.model import Parameters
from hpgcn.partition import make_partition
from hpgcn.planning.answers import report
from hpgcn.planning.answers.dry_run import forecast
from hpgcn.planning.answers.options import Options
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.strategies.delayed import DelayedVertexCut
from hpgcn.training.setup.placement import assign_rows, read_slab


def settings(**changes):
    return Config(**{"strategy": "vertex-cut", "layers": 3, "hidden": 20, "dropout": 0.4, "seed": 3,
                     "dtype": "float64", "lr": 0.003, **changes})


@once
def partition(graph, parts, method="vertex-cut"):
    return make_partition(graph, parts, method=method)


def cut(comm, tmp_path, graph, method="vertex-cut"):
    """Write a partition with one part for each rank; return the file's path, equal on all ranks."""
    folder = comm.bcast(str(tmp_path))
    path = f"{folder}/{method}.h5"
    if comm.rank == 0:
        if not os.path.exists(f"{folder}/graph.h5"):
            store.write_graph(f"{folder}/graph.h5", graph)
        with store.load(f"{folder}/graph.h5") as source:
            store.write_partitioned(path, graph, partition(graph, comm.size, method),
                                    source=source)
    comm.barrier()
    return path


@pytest.mark.long
@pytest.mark.parametrize("directed, sparse, method", [
    (True, False, "vertex-cut"), (True, True, "vertex-cut"), (True, False, "random"),
    (False, False, "vertex-cut")])
@pytest.mark.parametrize("model, hidden, input_dropout, layer_norm", [
    ("gcn", 10, -1, False), ("sage-mean", 20, -1, True), ("sage-gcn", 20, 0, False),
    ("sage-mean", 10, 0, False), ("gin", 20, 0, True), ("gin", 10, -1, True)])
def test_without_a_delay_copies_equal_the_serial_oracle(
        comm, tmp_path, monkeypatch, directed, sparse, method, model, hidden, input_dropout,
        layer_norm):
    monkeypatch.setattr(DelayedVertexCut, "own_options", lambda *_: {"delay": 0})
    graph = make(n=100, directed=directed, weighted=not sparse, sparse=sparse)
    config = settings(delay="7", hidden=hidden, input_dropout=input_dropout, layer_norm=layer_norm,
                      **SETTINGS[model])
    with store.load(cut(comm, tmp_path, graph, method)) as stored:
        check_against_the_oracle(graph, stored, config, comm)


class Copies:
    """All copies of all vertices in the order of ranks: owned vertices and replicas."""

    def __init__(self, graph, ranks):
        cut = partition(graph, ranks)
        n = graph.num_rows
        part = np.empty((n, n), int)
        rows = np.repeat(np.arange(n), np.diff(graph.indptr))
        part[rows, graph.indices] = cut.edge_part
        part[np.diag_indices(n)] = cut.part
        A = oracle.normalized(graph)
        self.rank, self.vertex = rank, _ = np.nonzero([
            (cut.part == p) | ((A != 0) & (part == p)).any(1) | ((A != 0) & (part == p)).any(0)
            for p in range(ranks)])
        self.owner = cut.part[self.vertex] == rank
        pair = np.ix_(self.vertex, self.vertex)
        self.A = A[pair] * (part[pair] == rank[:, None]) * (rank[:, None] == rank)
        self.same = self.vertex[:, None] == self.vertex
        place = np.empty(n, int)
        place[cut.perm] = np.arange(n)
        split = np.unique(place[self.vertex[~self.owner]])
        self.turn = np.searchsorted(split, place[self.vertex])
        self.turn[self.same.sum(1) == 1] = -1


@once
def copies_of(graph, ranks):
    return Copies(graph, ranks)


class Delayed:
    """Sums over the copies of a vertex, with delay: r steps at owners, 2 r steps at replicas.

    With `paper`, replicas use the owner's total instead of adding their own share.
    """

    def __init__(self, copies, r, paper=False):
        self.copies, self.r, self.paper = copies, r, paper
        self.given, self.returned, self.sent = [], [], []

    def __call__(self, Z):
        owner, same, r = self.copies.owner, self.copies.same, self.r
        step = len(self.given)
        self.given.append(Z.copy())
        self.returned.append(np.zeros_like(Z))
        total = Z.copy()
        sent = 0
        for row in np.flatnonzero((self.copies.turn >= 0) & (self.copies.turn % r == step % r)):
            if owner[row]:
                if step >= r:
                    total[row] += self.given[step - r][same[row] & ~owner].sum(0)
            else:
                if step >= 2 * r:
                    own = 0 if self.paper else total[row]
                    total[row] = own + self.returned[step - r][row]
                sent += 1 + (step >= r)
        if step >= r:
            for row in np.flatnonzero(~owner & (self.copies.turn % r == step % r)):
                root = np.flatnonzero(same[row] & owner)[0]
                own = 0 if self.paper else self.given[step - r][row]
                self.returned[step][row] = total[root] - own
        self.sent.append(sent * Z.shape[1])
        return total


@once
def simulate(graph, config, ranks, initial, epochs, r, paper=False):
    """Simulate training on all ranks; return losses, and the number of sent elements of each epoch.

    With `paper`, replicas have their own loss, and the backward sends no elements.
    """
    copies = copies_of(graph, ranks)
    delayed = [Delayed(copies, r, paper) for _ in range(3 if paper else 5)] if r else []
    sums = delayed + [lambda Z: Z] * (5 - len(delayed))
    A, vertex = copies.A, copies.vertex
    X = oracle.features(graph)[vertex]
    train = np.flatnonzero((copies.owner | paper) & graph.masks["train"][vertex])
    w = {name: array.astype(np.float64) for name, array in initial.items()}
    mean, square = ({name: np.zeros_like(v) for name, v in w.items()} for _ in range(2))
    losses = []
    for epoch in range(1, epochs + 1):
        def dropped(H, layer, epoch=epoch):
            whole = np.zeros((graph.num_rows, H.shape[1]))
            return oracle.drop(whole, config.dropout, seed=config.seed, epoch=epoch,
                               layer=layer)[vertex]

        H0 = X * dropped(X, 0)
        T = sums[0](A @ H0)  # 13 -> 20: A first
        Z0 = T @ w["W0"] + w["b0"]
        factor1 = dropped(Z0, 1) * (Z0 > 0)
        H1 = Z0 * factor1
        Z1 = sums[1](A @ (H1 @ w["W1"])) + w["b1"]  # 20 -> 20 and 20 -> 5: W first
        factor2 = dropped(Z1, 2) * (Z1 > 0)
        H2 = Z1 * factor2
        Z2 = sums[2](A @ (H2 @ w["W2"])) + w["b2"]
        loss, G = oracle.loss_and_slope(Z2, graph.labels[vertex], train, config)
        losses.append(loss)
        slopes = {"b2": G.sum(0)}
        dY = A.T @ sums[3](G)
        slopes["W2"] = H2.T @ dY
        G = dY @ w["W2"].T * factor2
        slopes["b1"] = G.sum(0)
        dY = A.T @ sums[4](G)
        slopes["W1"] = H1.T @ dY
        G = dY @ w["W1"].T * factor1
        slopes["b0"], slopes["W0"] = G.sum(0), T.T @ G + config.weight_decay * w["W0"]
        for name, g in slopes.items():
            mean[name] += 0.1 * (g - mean[name])
            square[name] += 0.001 * (g * g - square[name])
            w[name] -= config.lr * (mean[name] / (1 - 0.9**epoch)) / (
                np.sqrt(square[name] / (1 - 0.999**epoch)) + 1e-8)
    return losses, np.sum([each.sent for each in delayed], 0) if r else np.zeros(epochs)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("delay, variant", [
    ("none", "own"), ("1", "own"), ("3", "own"), ("2", "paper"), ("none", "paper")])
def test_losses_and_bytes_are_those_of_all_ranks_in_one_process(
        comm, tmp_path, delay, variant, directed):
    graph = make(n=70, directed=directed, weighted=True)
    config = settings(delay=delay, delay_variant=variant)
    r = None if delay == "none" else int(delay)
    epochs = 2 * (r or 0) + 2  # sums return to replicas after 2 r steps
    with store.load(cut(comm, tmp_path, graph)) as stored:
        trainer = start(stored, config, comm)
        initial = Parameters.initial(trainer.shard.spec)
        history = [trainer.train_epoch(epoch) for epoch in range(1, epochs + 1)]
        trainer.close()
    losses, sent = simulate(graph, config, comm.size, initial.arrays, epochs, r,
                            variant == "paper")
    np.testing.assert_allclose([each["loss"] for each in history], losses, rtol=1e-12)
    weights = 2 * trainer.parameters.flat.nbytes * (comm.size - 1)
    assert [each["sent_bytes"] for each in history] == (8 * sent + weights).tolist()


@pytest.mark.long
@on_ranks(1, 3, 5)
@pytest.mark.parametrize("delay", ["none", "1", "3"])
@pytest.mark.parametrize("kind, changes", [
    ({"train": 6}, {"hidden": 10}), ({}, {"delay_variant": "paper"}),
    ({"directed": True, "weighted": True}, {"input_dropout": 0}),
    ({"sparse": True}, {"hidden": 10, "model": "sage"}),
    pytest.param({"sparse": True}, {"dtype": "float32"}, marks=pytest.mark.long),
    ({}, {"model": "gin", "layer_norm": True})], ids=str)
def test_runs_send_and_hold_what_is_forecast(comm, tmp_path, delay, kind, changes):
    config = settings(delay=delay, **changes)
    with store.load(cut(comm, tmp_path, make(n=500, degree=1.5, **kind))) as stored:
        footprint = footprint_of(stored, config, comm, PlanInput(stored, config))
        trainer, history = run_two_epochs(stored, config, comm)
        info = trainer.run_info
        steps = footprint.prediction.period
        for epoch in range(3, 3 * steps + 1):  # all sums are under way in the last period
            history.append(trainer.train_epoch(epoch))
        assert steps == info.period == (1 if delay == "none" else int(delay))
        for what in ("bytes", "messages"):
            sent = sum(each[f"sent_{what}"] for each in history[-steps:])
            total = getattr(footprint.prediction, f"total_{what}")()
            assert total == getattr(info, f"predicted_{what}_per_epoch") == sent // steps
        check_held(footprint, trainer, comm.rank)
        trainer.close()


@pytest.mark.long
def test_products_of_many_steps(comm, tmp_path):
    graph = make(n=60, degree=3)
    config = settings(delay="2")
    copies = copies_of(graph, comm.size)
    sums = [Delayed(copies, 2) for _ in range(2)]
    with store.load(cut(comm, tmp_path, graph)) as stored:
        placed = assign_rows(stored, comm, config)
        slab = read_slab(placed, comm)
        adjacency = NormalizedAdjacency(stored, dtype="float64", slab=slab)
        whole = DelayedVertexCut.build(adjacency, placed.rank_grid, comm)
        made = whole.training_map(40, 40)
        mine = np.flatnonzero(copies.rank == comm.rank)
        mine = mine[np.searchsorted(copies.vertex[mine], whole.replicate_slab(slab).vertex)]
        for step in range(7):  # sums reach replicas in the fifth
            H = np.random.default_rng(step).standard_normal((copies.rank.size, 40))
            np.testing.assert_allclose(made.forward(H[mine]), sums[0](copies.A @ H)[mine],
                                       atol=1e-12)
            np.testing.assert_allclose(made.backward(H[mine]), (copies.A.T @ sums[1](H))[mine],
                                       atol=1e-12)
        made.close()
        whole.close()


def train(comm, path, out, epochs, **changes):
    resume = out if os.path.exists(out) else None
    comm.barrier()
    config = settings(out=str(out), epochs=epochs, checkpoint_every=2)
    callbacks = changes.pop("callbacks", ())
    with store.load(path) as stored:
        return hpgcn.train(stored, config.replace(**changes), comm.mpi, resume=resume,
                           callbacks=callbacks)


def left(result):
    weights = {name: array.tobytes() for name, array in result.weights.items()}
    rows = [(each["loss"], each["val_loss"], each["sent_bytes"]) for each in result.history]
    return weights, rows, result["sent_bytes_per_epoch"], result["test_acc"]


@pytest.mark.long
@on_ranks(3)
@pytest.mark.parametrize("changes", [
    {"delay": "2"}, pytest.param({"delay": "none"}, marks=pytest.mark.long),
    pytest.param({"delay": "5", "model": "sage", "dtype": "float32"}, marks=pytest.mark.long)],
                         ids=str)
def test_a_run_that_goes_on_has_the_bits_of_an_undisturbed_one(comm, tmp_path, changes):
    folder = comm.bcast(tmp_path)
    path = cut(comm, tmp_path, make(n=90, f=9))
    # behind the stop sums that left before it are added, and so are those that return to replicas
    whole = train(comm, path, folder / "whole", 7, **changes)

    def ask(metrics):
        if metrics["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGUSR1)

    with pytest.raises(StoppedError, match="after epoch 3, with a checkpoint"):
        train(comm, path, folder / "stopped", 7, callbacks=[ask], **changes)
    assert left(train(comm, path, folder / "stopped", 7, **changes)) == left(whole)


@pytest.mark.long
@on_ranks(1, 3)
def test_what_another_run_would_be_is_refused(comm, tmp_path):
    out = comm.bcast(tmp_path) / "run"
    path = cut(comm, tmp_path, make(n=90, f=9))
    train(comm, path, out, 2, delay="2")
    for delay in ("none", "3"):
        with pytest.raises(ConfigError, match=f"delay is '{delay}', but the run was started with"):
            train(comm, path, out, 4, delay=delay)
    if comm.size > 1:
        with pytest.raises(ConfigError, match="cd-2 depends on the partition: continue with "
                           f"the {comm.size} ranks"):
            train(comm, cut(comm, tmp_path, make(n=90, f=9), "random"), out, 4, delay="2")
        if comm.rank == 0:
            with pytest.raises(ConfigError, match=f"continue with the {comm.size} ranks"):
                hpgcn.train(str(out.parent / "graph.h5"), resume=out, config=settings(
                    out=str(out), epochs=4, delay="2", checkpoint_every=2))
        comm.barrier()
    for strategy in ("p2p", "1d"):
        with pytest.raises(UsageError, match="delay = '2': only for strategy vertex-cut"):
            train(comm, path, out, 4, delay="2", strategy=strategy)
    for delay in ("-1", "1.5", "all", "", "101"):
        with pytest.raises(UsageError, match=re.escape(f"delay = '{delay}': expected none, ")):
            settings(delay=delay)
    assert settings(delay="05").delay == "5"
    with pytest.raises(UsageError, match="delay = '2': only for training"):
        hpgcn.propagation(path, comm, strategy="vertex-cut", delay="2")


@pytest.mark.long
@on_ranks(1, 3)
def test_a_checkpoint_that_lacks_what_was_under_way_is_refused(comm, tmp_path):
    out = comm.bcast(tmp_path) / "run"
    path = cut(comm, tmp_path, make(n=90, f=9))
    train(comm, path, out, 2, delay="2")
    folder = out / "checkpoints/step-00000002"
    if comm.rank == 0:
        arrays, told = store.read_state(folder / "state.h5")
        size = arrays.pop("lasting", np.empty(0)).size
        assert (size > 0) == (comm.size > 1)
        os.remove(folder / "state.h5")
        of_file = {name: told.pop(name) for name in ("config_toml", "epoch", "creator",
                                                     "created_utc")}
        store.write_state(folder / "state.h5", arrays, config_toml=of_file["config_toml"],
                          epoch=of_file["epoch"], attributes=told)
        manifest = {"files": {"state.h5": {"sha256": store.file_sha256(folder / "state.h5")}}}
        (folder / "manifest.json").write_text(json.dumps(manifest))
    comm.barrier()
    if comm.size > 1:
        with pytest.raises(DataError, match=r"holds 0 numbers of earlier steps, expected [1-9]"):
            train(comm, path, out, 4, delay="2")


@pytest.mark.long
@on_ranks(1, 3)
@pytest.mark.parametrize("delay, title, num_monitored_steps", [
    ("none", "vertex-cut 0c", 5), ("3", "vertex-cut cd-3", 6)])
def test_how_far_it_is_off_is_said(comm, tmp_path, caplog, delay, title, num_monitored_steps):
    out = comm.bcast(tmp_path) / "run"
    graph = make(n=90)
    path = cut(comm, tmp_path, graph)
    with caplog.at_level(logging.INFO, "hpgcn"):
        result = train(comm, path, out, 9, delay=delay)
    exact = [each.get("exact_loss") for each in result.history]
    assert [each is not None for each in exact] == [epoch <= num_monitored_steps or epoch == 9
                                                    for epoch in range(1, 10)]
    with store.load(path) as stored:
        trainer = start(stored, settings(), comm)
        first = trainer.train_epoch(1)["loss"]
        trainer.close()
    assert exact[0] == pytest.approx(first, rel=1e-12)  # losses of the same weights and dropout
    off = [abs(each["loss"] - other) for each, other in zip(result.history, exact) if other]
    assert comm.size == 1 or min(off) > 1e-6
    if comm.rank == 0:
        text = (f"{title} is approximate: training loss off by at most {max(off):.3g} in the first "
                f"{num_monitored_steps} epochs, by {off[-1]:.3g} in epoch 9")
        assert caplog.messages.count(text) == 1
        assert sum("all rows are computed" in message for message in caplog.messages) == 1
        summary = json.loads((out / "summary.json").read_text())
        assert summary["strategy"] == title
        rows = (out / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(row).get("exact_loss") for row in rows] == exact

    # what is evaluated and predicted is the model itself
    found = hpgcn.predict(path, str(out), comm)
    with store.load(path) as stored:
        planned = forecast(assign_rows(stored, comm, settings(delay=delay)), settings(delay=delay),
                           comm)
    assert planned["strategy"] == title
    if comm.rank == 0:
        expected = oracle.logits("gcn", oracle.normalized(graph), oracle.features(graph),
                                 result.weights, 3)
        np.testing.assert_allclose(found["logits"], expected, atol=1e-10)
        right = expected.argmax(1)[graph.masks["test"]] == graph.labels[graph.masks["test"]]
        assert right.mean() == result["test_acc"]
        asked = Options.parse(delay=delay, dtype="float64", widths="13,20,20,5")
        rows = report.forecast(path, asked)["rows"]
        named = {row["strategy"]: row for row in rows}
        assert comm.size == 1 or named[title]["bytes"]["total"] == planned[
            "predicted_bytes_per_epoch"] == result["predicted_bytes_per_epoch"]
    comm.barrier()

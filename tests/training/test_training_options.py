"""Optimizers, schedules, clipping and loss targets, compared with NumPy, PyTorch and by hand."""
import numpy as np
import oracle
import pytest
from graphs import make, several_labels
from training import loss_and_gradient, run, start

import hpgcn
from hpgcn.config import Config
from hpgcn.errors import DataError, InputNotFoundError, UsageError
from hpgcn.model import Parameters, Targets
from hpgcn.model.targets import read_weights
from hpgcn.training.steps.schedules import SCHEDULES, LearningRate

EVERYTHING = {"optimizer": "adamw", "weight_decay": 0.1, "decay_layers": "all", "clip_norm": 0.05,
              "schedule": "cosine", "warmup": 5, "label_smoothing": 0.2, "class_weight": "FILE"}
OPTIONS = [
    {"optimizer": "adamw", "weight_decay": 0.3}, {"schedule": "cosine"}, {"warmup": 7},
    {"schedule": "step:4:0.5", "warmup": 3},
    {"optimizer": "sgd", "lr": 0.5, "clip_norm": 0.1}, {"clip_norm": 1e9},
    {"label_smoothing": 0.2}, {"class_weight": "balanced"}, EVERYTHING]
WEIGHTS = [0.5, 3, 0, 1e-1, 2]  # one class has weight 0


@pytest.fixture
def settings(tmp_path):
    """Return a function that makes settings of twenty epochs.

    "FILE" becomes a file of class weights.
    """
    def of(**changes):
        path = tmp_path / "weights.txt"
        path.write_text("".join(f"{weight}\n" for weight in WEIGHTS))
        given = {key: str(path) if value == "FILE" else value for key, value in changes.items()}
        return Config(**{"epochs": 20, "dtype": "float64", "hidden": 7, "lr": 0.01, **given})

    return of


def losses(history, key="loss"):
    return [metrics[key] for metrics in history]


@pytest.mark.long
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
def test_twenty_epochs_equal_the_oracle(settings, changes):
    graph, config = make(weighted=True), settings(dropout=0.4, **changes)
    trainer = start(graph, config)
    expected, first = oracle.losses(graph, config, Parameters.initial(trainer.shard.spec), 20)
    _, gradient = loss_and_gradient(trainer)
    assert np.linalg.norm(gradient - first) < 1e-12 * np.linalg.norm(first)
    history, _ = run(graph, config, epochs=20)
    np.testing.assert_allclose(losses(history), expected, rtol=1e-11)
    plain, _ = oracle.losses(graph, settings(dropout=0.4),
                             Parameters.initial(trainer.shard.spec), 20)
    same = changes == {"clip_norm": 1e9}
    # the option changes something
    assert (np.abs(expected - plain) <= 1e-8 + 1e-6 * np.abs(plain)).all() == same


def of_torch(graph, config, initial):
    """Train with PyTorch's own functions; return training and validation losses."""
    torch = pytest.importorskip("torch")
    A, X, y = (torch.from_numpy(np.asarray(each)) for each in (
        oracle.normalized(graph), oracle.features(graph), graph.labels))
    rows, others = (torch.from_numpy(graph.masks[key]) for key in ("train", "val"))
    w = {name: torch.tensor(array, requires_grad=True) for name, array in initial.arrays.items()}
    decayed = [v for name, v in w.items()
               if v.ndim == 2 and (config.decay_layers == "all" or name == "W0")]
    rest = [v for v in w.values() if not any(v is one for one in decayed)]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    optimizer = kind[config.optimizer](
        [{"params": decayed, "weight_decay": config.weight_decay},
         {"params": rest, "weight_decay": 0.0}], lr=config.lr)
    rates, N = torch.optim.lr_scheduler, config.warmup
    form, *words = config.schedule.split(":")
    after = {"constant": lambda: rates.ConstantLR(optimizer, 1.0),
             "cosine": lambda: rates.CosineAnnealingLR(optimizer, config.epochs - N),
             "step": lambda: rates.StepLR(optimizer, int(words[0]), float(words[1]))}
    schedule = after[form]()
    if N:
        schedule = rates.SequentialLR(optimizer, [
            rates.LinearLR(optimizer, 1 / N, 1.0, N - 1), after[form]()], [N])

    def logits():
        return A @ torch.relu(A @ X @ w["W0"] + w["b0"]) @ w["W1"] + w["b1"]

    if y.ndim == 2:
        loss_of = torch.nn.BCEWithLogitsLoss()
        plain, y = loss_of, y.double()
        soft = y * (1 - config.label_smoothing) + config.label_smoothing / 2
    else:
        weights = torch.from_numpy(oracle.class_weights(
            config, graph.labels, np.flatnonzero(graph.masks["train"]), w["b1"].numel()))
        loss_of = torch.nn.CrossEntropyLoss(weights.double(),
                                            label_smoothing=config.label_smoothing)
        plain, soft = torch.nn.CrossEntropyLoss(), y
    found = []
    for _ in range(config.epochs):
        optimizer.zero_grad()
        loss = loss_of(logits()[rows], soft[rows])
        loss.backward()
        if config.clip_norm:
            torch.nn.utils.clip_grad_norm_(w.values(), config.clip_norm)
        optimizer.step()
        schedule.step()
        found.append((loss.item(), plain(logits()[others], y[others]).item()))
    return np.array(found).T


@pytest.mark.long
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
@pytest.mark.parametrize("several", [False, True])
def test_twenty_epochs_equal_pytorch(settings, changes, several):
    graph = several_labels(make(), 5) if several else make()
    if several:
        changes = {key: value for key, value in changes.items() if key != "class_weight"}
    config = settings(dropout=0.0, **changes)
    expected, validation = of_torch(graph, config, Parameters.initial(
        start(graph, config).shard.spec))
    history, _ = run(graph, config, epochs=20)
    np.testing.assert_allclose(losses(history), expected, rtol=1e-12)
    # neither smoothed nor weighted
    np.testing.assert_allclose(losses(history, "val_loss"), validation, rtol=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_of_batches_count_steps(schedule):
    epochs = LearningRate(0.1, schedule, warmup=2, epochs=5, step_every=2, step_factor=0.1, steps=3)
    steps = LearningRate(0.1, schedule, warmup=6, epochs=15, step_every=6, step_factor=0.1)
    assert [epochs(number) for number in range(1, 16)] == [
        steps(number) for number in range(1, 16)]


def test_learning_rates_by_hand():
    def rates(schedule="constant", warmup=0, step_every=1, step_factor=1.0):
        rate = LearningRate(8.0, schedule, warmup, 6, step_every, step_factor)
        return [rate(number) for number in range(1, 7)]

    assert rates() == [8] * 6
    assert rates(warmup=4) == [2, 4, 6, 8, 8, 8]
    assert rates(warmup=8) == [1, 2, 3, 4, 5, 6]
    assert rates(schedule="step", step_every=2, step_factor=0.5) == [8, 8, 4, 4, 2, 2]
    assert rates(schedule="step", step_every=1, step_factor=0.5, warmup=2) == [4, 8, 8, 4, 2, 1]
    half = 8 * np.cos(np.arange(6) * np.pi / 12) ** 2
    np.testing.assert_allclose(rates(schedule="cosine"), half)
    quarters = [8, 8, 8 * np.cos(np.pi / 8) ** 2, 4, 8 * np.sin(np.pi / 8) ** 2]
    np.testing.assert_allclose(rates(schedule="cosine", warmup=2)[1:], quarters)
    for name in SCHEDULES:
        assert rates(schedule=name, warmup=6) == pytest.approx([8 * t / 6 for t in range(1, 7)])


def test_balanced_weights_by_hand():
    counts = np.array([2.0, 0.0, 6.0])
    assert Targets(0.0, "balanced").weights(counts).tolist() == [8 / 6, 0, 8 / 18]
    table = Targets(0.3).table(np.array([1.0, 2.0]))
    np.testing.assert_allclose(table, [[0.7, 1.4], [0.15, 0.3], [1.15, 1.85]])


@pytest.mark.parametrize("text, message", [
    ("1\n2\nx\n4\n5\n", r"weights.txt: line 3 is 'x', expected a number from 0"),
    ("1\n2\n\n4\n5\n", "line 3 is '', expected"), ("1\n-2\n3\n4\n5\n", "line 2 is '-2'"),
    ("1\n2\n3\n4\nnan\n", "line 5 is 'nan'"), ("inf\n2\n3\n4\n5\n", "line 1 is 'inf'"),
    ("1 2 3 4 5\n", "line 1 is '1 2 3 4 5'"),
    ("1\n2\n3\n4\n", "4 lines, expected one weight for each of 5 classes"),
    ("1\n2\n3\n4\n5\n6\n", "6 lines"), ("", "0 lines"), ("0\n" * 5, "all classes of the")])
def test_a_file_of_weights_that_is_refused(tmp_path, text, message):
    path = tmp_path / "weights.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=message) as found:
        hpgcn.train(make(), Config(epochs=1, class_weight=path))
    assert found.value.code == 65


def test_weights_of_classes_by_name(tmp_path):
    names = ("a b", "c,d", "1")
    path = tmp_path / "weights.txt"
    for text, expected in (
            ("1,3\na b,1\nc,d,2\n", [1, 2, 3]), ('1,3\n"a b",1\n"c,d",2\n', [1, 2, 3]),
            ("1\t3\nc,d\t2\na b\t1e0\n", [1, 2, 3]),
            ("a b 1\n1 0\nc,d,.5\n", [1, .5, 0]), ("3\n2\n1\n", [3, 2, 1])):
        path.write_text(text)
        assert read_weights(path, 3, names).tolist() == expected
    for text, message in (
            ("a b,1\nx,2\n1,3\n", "line 2 is 'x,2', expected a number from 0 after the name of"),
            ("a b,1\na b,2\n1,3\n", "line 2: class 'a b' occurs twice"),
            ("a b,1\n1,-3\n", "line 2 is '1,-3'"), ("a b,1\n1,3\n", "2 lines, expected"),
            ("a b,1\n2\n1,3\n", "line 1 is 'a b,1', expected a number from 0")):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_weights(path, 3, names)


def test_classes_that_cannot_weigh():
    with pytest.raises(InputNotFoundError, match=r"none\.txt"):
        hpgcn.train(make(), Config(epochs=1, class_weight="none.txt"))
    with pytest.raises(UsageError, match=r"class_weight='balanced': .* several labels"):
        hpgcn.train(several_labels(make()), Config(epochs=1, class_weight="balanced"))


def test_a_gradient_that_is_not_finite_is_not_clipped_away():
    graph = make()
    with pytest.raises(hpgcn.errors.DivergedError):
        hpgcn.train(graph, Config(optimizer="sgd", lr=1e30, epochs=50, dropout=0, clip_norm=1e25,
                                  eval_every=0))

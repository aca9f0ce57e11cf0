"""The benchmark of drift, which compares bf16 with float32: counts and messages."""
import json

import numpy as np
import pytest
from commands import refused, succeed
from graphs import make

from benchmarks import drift, run
from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import UsageError


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp("graph") / "made.h5"
    store.write_graph(path, make())
    return path


@pytest.mark.long
def test_each_seed_is_trained_by_both_types(graph):
    text = succeed("drift", graph, "--seeds", "0..1", "--epochs", 12, "--hidden", 6,
                   "--threads", 1, "--json", program=run.main)
    report = json.loads(text, parse_constant=pytest.fail)
    assert [(row["seed"], row["dtype"]) for row in report["rows"]] == [
        (seed, dtype) for seed in "01" for dtype in ("float32", "bf16")]
    assert [line["epoch"] for line in report["losses"]] == [1, 2, 3, 10, 12]
    first = [row["first_loss"] for row in report["rows"]]
    assert report["losses"][0]["float32_loss"] == pytest.approx(np.mean(first[::2]))
    away = np.abs(np.subtract(first[1::2], first[::2]))
    assert report["losses"][0]["most_off_error"] == pytest.approx(away.max())
    assert all(0 < line["off_error"] <= line["most_off_error"] < 1e-2
               for line in report["losses"])


@pytest.mark.long
def test_in_words(graph):
    text = succeed("drift", graph, "--epochs", 2, "--hidden", 6, "--threads", 1,
                   program=run.main)
    assert "most off error" in text and "test accuracy, best epoch" in text
    assert "bf16" in text and "%" in text


def test_what_there_is_nothing_to_hold_against_is_refused(graph):
    with pytest.raises(UsageError, match="dtype = float32: is the reference"):
        drift.measure(graph, Config())
    refused(2, "drift", graph, "--dtype", "float32", program=run.main)


def test_accuracies_are_compared_seed_by_seed():
    rows = [{"dtype": dtype, "test_acc": acc, "last_test_acc": None}
            for dtype, acc in (("float32", 0.8), ("bf16", 0.81), ("float32", 0.7), ("bf16", 0.7))]
    assert drift.summarise("made", rows, "bf16") == {
        "graph": "made", "test accuracy, best epoch":
        "float32 75.00 ± 7.07%, bf16 75.50 ± 7.78%, difference +0.50%"}

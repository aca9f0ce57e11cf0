"""The benchmark of training epochs on a fake GPU: equal losses, and sums of times."""
import json
import types

import pytest
from cuda_ranks import cuda, gpu

from benchmarks import cuda_epoch, run
from hpgcn.errors import InternalError

pytestmark = pytest.mark.long

__all__ = ["cuda", "gpu"]


@pytest.fixture
def settings(gpu, cuda, monkeypatch):
    if cuda is None:
        pytest.skip("the GPU is real: run.py cuda-epoch measures it")
    fake = types.SimpleNamespace(xp=gpu.xp, release=lambda: None,
                                 describe=lambda: {"caches": [], "versions": {}})
    monkeypatch.setattr("benchmarks.gpu.Gpu", lambda: fake)
    monkeypatch.setattr(cuda_epoch, "FEATURES", 20)
    monkeypatch.setattr(cuda_epoch, "EDGE_FACTOR", 20)
    return {"scale_down": 1 << 12, "repeats": 2}


def test_epochs_are_compared_and_taken_apart(settings):
    report = run.measure(run.settings_of("cuda-epoch", widths="16,5", **settings))
    report = json.loads(json.dumps(report), parse_constant=pytest.fail)
    assert [row["hidden"] for row in report["rows"]] == [16, 5]
    for row in report["rows"]:
        assert (row["vertices"], row["features"], row["classes"], row["epochs"]) == (227, 20, 41, 2)
        assert 0 <= row["loss_error"] < 1e-4
        assert 0 < row["spmm_share"] < row["spmm_share"] + row["dense_share"] <= 1
        assert 0 < row["least_ms"] <= row["epoch_ms"]
    assert "gpu bytes" in run.format_report(report)


def test_losses_that_differ_are_an_error(settings, monkeypatch):
    train = cuda_epoch.train

    def other(graph, config, device, epochs):
        losses, *rest = train(graph, config, device, epochs)
        return losses * (1 + 2e-4 * (device.name == "cuda")), *rest

    monkeypatch.setattr(cuda_epoch, "train", other)
    message = r"cuda-epoch 3: losses differ from those of the CPU by 0\.0002"
    with pytest.raises(InternalError, match=message):
        run.measure(run.settings_of("cuda-epoch", widths="3", **settings))


def test_the_default_widths():
    assert run.settings_of("cuda-epoch").widths == (16, 512)

"""The benchmark of training epochs on a GPU, with a fake one: what is compared, what adds up. No timing is judged."""
import json
import types

import pytest
from cuda_ranks import cuda, gpu

from hpgcn import bench
from hpgcn.bench import cuda_epoch
from hpgcn.errors import InternalError, UsageError

__all__ = ["cuda", "gpu"]


@pytest.fixture
def stub(gpu, cuda, monkeypatch):
    """A benchmark that finds the fake GPU."""
    if cuda is None:
        pytest.skip("the GPU is real: hpgcn bench cuda-epoch measures it")
    monkeypatch.setattr(cuda_epoch, "Gpu", lambda: types.SimpleNamespace(
        xp=gpu.xp, describe=lambda: {"gpu": "none"}, release=lambda: None))
    monkeypatch.setattr(cuda_epoch, "FEATURES", 20)
    monkeypatch.setattr(cuda_epoch, "EDGE_FACTOR", 20)


def test_epochs_are_compared_and_taken_apart(stub):
    report = bench.run("cuda-epoch", widths="16,5", scale_down=1 << 12, repeats=2)
    report = json.loads(json.dumps(report), parse_constant=pytest.fail)
    assert [row["hidden"] for row in report["rows"]] == [16, 5]
    for row in report["rows"]:
        assert (row["vertices"], row["features"], row["classes"], row["epochs"]) == (227, 20, 41, 2)
        assert 0 <= row["loss_error"] < 1e-4
        assert 0 < row["spmm_share"] < 1
        lines = [line for line in report["kernels"] if line["hidden"] == row["hidden"]]
        assert sum(line["share"] for line in lines) == pytest.approx(1)
        calls = {line["kernel"]: line["calls"] for line in lines}
        assert calls["softmax_cross_entropy"] == calls["adam"] == 1
        assert sum(number for name, number in calls.items() if name in ("spmm_thread", "spmm_carries")) >= 4
    text = bench.table(report)
    assert "softmax_cross_entropy" in text
    assert "gpu bytes" in text


def test_losses_that_differ_are_an_error(stub, monkeypatch):
    train = cuda_epoch.train

    def other(graph, config, device, epochs):
        losses, *rest = train(graph, config, device, epochs)
        return losses * (1 + 2e-4 * (device.name == "cuda")), *rest

    monkeypatch.setattr(cuda_epoch, "train", other)
    with pytest.raises(InternalError, match=r"cuda-epoch 3: losses differ from those of the CPU by 0\.0002"):
        bench.run("cuda-epoch", widths="3", scale_down=1 << 12, repeats=1)


def test_settings():
    assert bench.check("cuda-epoch").widths == (16, 512)
    with pytest.raises(UsageError, match="takes no --graphs"):
        bench.check("cuda-epoch", "dense")

"""A malformed checkpoint is named in a message and skipped for an older one."""
import json
import re

import numpy as np
import pytest
from resuming import left_behind, lines, settings

import hpgcn
from hpgcn import store
from hpgcn.errors import DataError
from hpgcn.training.saved.checkpoint import Checkpoints


def attribute(**changes):
    """Return a function that changes attributes of a checkpoint's state; None deletes one."""
    def change(_, told):
        told.update(changes)
        for name in changes:
            if told[name] is None:
                del told[name]

    return change


def changed(row, changes):
    """Return the JSON line `row` of an epoch with changed fields; None deletes a field."""
    row = {**json.loads(row), **changes}
    return json.dumps({name: value for name, value in row.items() if value is not None})


def metrics(which="metrics", **changes):
    """Return a function that changes fields of the metrics line stored in a state."""
    return lambda _, told: told.update({which: changed(told[which], changes)})


def array(name, make):
    """Return a function that replaces the array `name` by `make(array)`.

    If `make` returns None, the array is deleted.
    """
    def change(arrays, _):
        arrays[name] = make(arrays.get(name))
        if arrays[name] is None:
            del arrays[name]

    return change


def filled(value):
    return lambda old: np.where(np.arange(old.size).reshape(old.shape) == 1, np.float32(value), old)


DEEP = "[" * 100_000
REHASHED = [  # what is changed, and what the warning names; the SHA-256 of the manifest is right
    (attribute(max_sent_bytes=None), "state.h5: max_sent_bytes is missing,"),
    (attribute(max_sent_bytes=float("nan")), "max_sent_bytes is nan,"),
    (attribute(max_sent_bytes="many"), "max_sent_bytes is 'many', expected"),
    (attribute(metrics=None), "metrics is missing, expected an object"),
    (attribute(metrics="[1]"), "metrics: list, expected one JSON object"),
    (attribute(metrics=DEEP), "metrics: not JSON that hpgcn writes: nested"),
    (attribute(metrics="{"), "metrics: not JSON: Expecting"),
    (metrics(epoch_s=None), "metrics: epoch_s is missing, expected a"),
    (metrics(val_acc=7), "metrics: val_acc is 7, expected a number of at"),
    (metrics(epoch=11), "metrics is of epoch 11, expected 12"),
    (attribute(best_metrics=None), "best_metrics is missing"),
    (attribute(best_metrics="{}"), "best_metrics: epoch is missing"),
    (metrics("best_metrics", val_loss=None), "best_metrics: val_loss is"),
    (attribute(best_epoch=-1), "best_epoch is -1, expected an integer of"),
    (attribute(best_epoch=13), "best_metrics is of epoch"),
    (attribute(epoch=-12), "epoch is -12, expected an integer >= 0"),
    (attribute(source_sha256=None), "source_sha256 is missing, expected text"),
    (attribute(config_toml="hiden = 3"), "attribute config_toml: key"),
    (attribute(config_toml="hidden = 0"), "attribute hidden = 0: expected 1 to"),
    (attribute(config_toml="hidden = 7"), r"weights has widths \[9, 6, 5\],"),
    (array("weights/W0", filled(np.nan)), r"weights/W0 at \(0, 1\) is nan,"),
    (array("best/b1", filled(np.inf)), "best/b1 at 1 is inf, expected a finite number"),
    (array("optimizer/variance/W1", filled(-1)), "optimizer/variance/W1 is"),
    (array("weights/W0", lambda old: old[:, :5]), "weights: weights/W0 has shape"),
    (array("best/W0", lambda old: old[:, :5]), "best: weights/W0 has shape"),
    (array("optimizer/mean/W0", lambda old: old[:8]), r"optimizer/mean has widths \[8, 6, 5\], "),
    (array("best/b1", lambda _: None), "best: weights/b1 is missing"),
    (array("optimizer/variance/W1", lambda _: None), "weights/W1 is missing"),
    (array("weights/W0", np.float64), "weights/W0 has dtype float64,"),
    (array("weights/W2", lambda _: np.ones((5, 5), np.float32)), "weights/W2 has shape"),
    (array("wieghts/W0", lambda _: np.ones(3, np.float32)), "array wieghts/W0 is unknown")]


def rehash(folder, change):
    """Change the state in a checkpoint folder, and update its SHA-256 in the manifest."""
    path = folder / "state.h5"
    arrays, told = store.read_state(path)
    change(arrays, told)
    given = {name: told.pop(name) for name in ("config_toml", "epoch")}
    path.unlink()
    store.write_state(path, arrays, **given, attributes={
        name: value for name, value in told.items() if name not in ("creator", "created_utc")})
    manifest = {"files": {"state.h5": {"sha256": store.file_sha256(path)}}}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.long
@pytest.mark.parametrize("change, words", REHASHED)
def test_a_state_that_cannot_be_gone_on_from_is_passed_over(graph, out, caplog, change, words):
    rehash(out / "checkpoints/step-00000012", change)
    assert Checkpoints(out, graph).load().epoch == 8
    assert re.search(f"falling back to step-00000008: .*step-00000012.*{words}",
                     caplog.text), caplog.text


def test_weights_for_another_width_than_the_graph_has_are_passed_over(graph, out, two, caplog):
    def wider(arrays, _):
        for name in [name for name in arrays if name.endswith("W0")]:
            arrays[name] = np.zeros((10, 6), np.float32)

    rehash(out / "checkpoints/step-00000012", wider)
    hpgcn.train(graph, settings(out, epochs=16), resume=out)
    assert "weights are for 10 features and 5 classes, expected 9 and 5" in caplog.text
    assert left_behind(out) == left_behind(two / "whole")


@pytest.mark.parametrize("manifest",
                         [DEEP, "[1]", "{}", '{"files": 1}', '{"files": {"state.h5": {}}}', "\xff",
                          "NaN", '{"files": {"state.h5": {"sha256": 1}}}', '{"a": 1, "a": 2}',
                          " " * (1 << 21)], ids=lambda text: text[:40])
def test_a_manifest_of_any_kind_is_passed_over(graph, out, caplog, manifest):
    (out / "checkpoints/step-00000012/manifest.json").write_text(manifest, encoding="latin-1")
    assert Checkpoints(out, graph).load().epoch == 8
    assert re.search("falling back to step-00000008: .*step-00000012", caplog.text)


LINES = [  # line 3 of metrics.jsonl, and what the warning says
    ({"epoch_s": None}, "line 3: epoch_s is missing, expected a number"),
    ({"epoch_s": float("nan")}, "line 3: epoch_s is nan, expected a number"),
    ({"epoch_s": "1"}, "line 3: epoch_s is '1', expected a number"),
    ({"peak_rss_bytes": "1"}, "line 3: peak_rss_bytes is '1', expected an"),
    ({"epoch": 2}, "line 3: epoch 2 after epoch 2"),
    ({"epoch": float("nan")}, "line 3: epoch is nan, expected an integer"),
    (DEEP, "line 3: not JSON that hpgcn writes"), ('{"epoch": 3, ', "line 3: not JSON")]


@pytest.mark.long
@pytest.mark.parametrize("change, words", LINES, ids=[words for _, words in LINES])
def test_a_malformed_line_of_metrics_is_left_out_with_a_warning(graph, out, caplog, change, words):
    text = (out / "metrics.jsonl").read_text().splitlines()
    text[2] = changed(text[2], change) if isinstance(change, dict) else change
    (out / "metrics.jsonl").write_text("\n".join(text) + "\n")
    hpgcn.train(graph, settings(out, epochs=13), resume=out)
    assert f"metrics.jsonl: has only 10 of the 11 earlier epochs; {words}" in caplog.text
    assert [line["epoch"] for line in lines(out)] == [1, 2, *range(4, 14)]
    assert json.loads((out / "summary.json").read_text())["epochs"] == 13


@pytest.mark.parametrize("change, words", [
    ({"epochs": "12"}, "epochs is '12', expected an integer"),
    ({"best_epoch": -1}, "best_epoch is -1"),
    ({"test_acc": 10**400}, r"test_acc is 10+\.\.\. \(401 characters\), expected a number")],
    ids=["text", "negative", "huge"])
def test_a_malformed_summary_of_a_finished_run_is_named(graph, out, change, words):
    summary = {**json.loads((out / "summary.json").read_text()), **change}
    (out / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(DataError, match=f"summary.json: {words}"):
        hpgcn.train(graph, resume=out)

"""Read and check the records of a run: metrics.jsonl and summary.json."""
from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from hpgcn.errors import DataError
from hpgcn.graphs.validation import SPLIT
from hpgcn.runtime.clock import PARTS
from hpgcn.setting_words import LINK_METRIC, TARGET_METRICS
from hpgcn.store import Field, check_fields, parse_json, read_json, read_lines

MOST = 2**63 - 1
COUNT = Field(int, 0, MOST)
FROM_ONE = Field(int, 1, MOST)
SECONDS = Field(float, 0, 1e12)
ACCURACY = Field(float, 0, 1, optional=True)
FINITE = Field(float, -1e300, 1e300)
SCORE = FINITE._replace(optional=True)
TEXT = Field(str)
METRICS = {
    "epoch": FROM_ONE, "loss": FINITE, "train_acc": ACCURACY, "val_acc": ACCURACY,
    "test_acc": ACCURACY, "val_loss": SCORE, "epoch_s": SECONDS,
    "eval_s": SECONDS, "spmm_s": SECONDS, "dense_s": SECONDS, "comm_s": SECONDS, "wait_s": SECONDS,
    "sent_bytes": COUNT, "sent_messages": COUNT, "peak_rss_bytes": COUNT}
# fields of graphs with targets, whose metrics are not shares
TARGET_FIELDS = {f"{key}_{name}": SCORE for key in SPLIT for name in TARGET_METRICS}
SCORES = dict.fromkeys(("train_acc", "val_acc", "test_acc"), SCORE)
PART_SECONDS = {f"mean_{part}_s": SECONDS for part in PARTS}  # missing in older runs
OPTIONAL = {**PART_SECONDS, "exact_loss": FINITE, "steps": FROM_ONE, "asked_bytes": COUNT,
            "masked_additions": COUNT, "bytes_between_nodes": COUNT,
            "messages_between_nodes": COUNT}
SUMMARY = {
    "graph": TEXT, "strategy": TEXT, "grid": TEXT, "replication": COUNT, "ranks": FROM_ONE,
    "threads": FROM_ONE, "device": TEXT, "epochs": FROM_ONE, "final_loss": FINITE,
    "best_epoch": COUNT, "best_val_acc": ACCURACY, "test_acc": ACCURACY, "epoch_s_median": SECONDS,
    "setup_s": SECONDS, "setup_bytes": COUNT, "sent_bytes_per_epoch": COUNT,
    "sent_messages_per_epoch": COUNT, "predicted_bytes_per_epoch": COUNT,
    "predicted_messages_per_epoch": COUNT, "max_rank_sent_bytes_per_epoch": Field(float, 0, MOST),
    "peak_rss_bytes": COUNT, "out": TEXT, "versions": Field(dict)}


def read_history(run: Any, before: int = math.inf) -> tuple[list, str]:
    """Read metrics.jsonl of a run up to the epoch `before`, which is excluded.

    Return the lines, a list of dict, whose accuracies and val_loss are None without an
    evaluation. Also return the error of the first line that was left out, malformed or
    out of order; it is empty if all were read.
    """
    # collect lines in the order of epochs; skip those that are malformed
    path = Path(run) / "metrics.jsonl"
    history = []
    wrong = ""
    last = 0
    for number, line in read_lines(path) if os.path.lexists(path) else ():
        where = f"line {number}"
        try:
            row = parse_json(line, where)
            check_metrics(row, where)
            if row["epoch"] >= before:
                break
            if row["epoch"] <= last:
                raise DataError(f"{where}: epoch {row['epoch']} after epoch {last}")
        except DataError as error:
            wrong = wrong or str(error)
            continue
        last = row["epoch"]
        history.append(row)
    return history, wrong


def check_metrics(row: dict[str, Any], where: str) -> None:
    """Raise a DataError with the line number for an invalid line of metrics.jsonl."""
    targets = TARGET_FIELDS.keys() <= row.keys()
    links = dict.fromkeys(link_fields(row), ACCURACY)
    check_fields(row, METRICS | links | (TARGET_FIELDS | SCORES if targets else {}), where)
    check_fields(row, OPTIONAL, where, whole=False)
    if row["val_acc"] is not None and row["val_loss"] is None:
        raise DataError(f"{where}: val_loss is None, expected a number, like val_acc")


def link_fields(row: dict[str, Any]) -> list[str]:
    """Return the fields that are metrics of links, such as val_auc."""
    return [name for name in row
            if name.startswith(("val_", "test_")) and LINK_METRIC.fullmatch(name.partition("_")[2])]


def read_summary(run: Any, *, whole: bool = True) -> dict[str, Any]:
    """Return the summary of a run directory; None if the run is not finished.

    With `whole` all fields of SUMMARY are required. Errors as `hpgcn.store.read_json`
    and `check_fields`.
    """
    path = Path(run) / "summary.json"
    if not os.path.lexists(path):
        return None
    summary = read_json(path)
    targets = summary.get("metric") in TARGET_METRICS
    scores = {"best_val_acc": SCORE, "test_acc": SCORE} if targets else {}
    check_fields(summary, SUMMARY | scores, path, whole=whole)
    return summary

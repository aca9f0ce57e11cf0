"""The state of the training loop, shared by epochs, checkpoints and resumed runs."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpgcn.kernels.host.accesses import accessed
from hpgcn.model import goodness
from hpgcn.runtime.clock import PARTS
from hpgcn.store import Field
from hpgcn.training.files.records import COUNT, FINITE, SECONDS

if TYPE_CHECKING:
    from hpgcn.kernels import Array


CLOCKED = ("spmm", "dense", "comm", "wait")


@dataclass
class EpochSums:
    """Sums over the steps of an incomplete epoch, equal on all ranks.

    Seconds are those of the slowest rank. A checkpoint within an epoch stores these
    fields by name.
    """

    steps: int = 0
    loss: float = 0.0  # sum over training vertices, not divided by their number
    seconds: float = 0.0
    spmm: float = 0.0
    dense: float = 0.0
    comm: float = 0.0
    wait: float = 0.0
    sent_bytes: int = 0
    sent_messages: int = 0
    between_bytes: int = 0  # bytes and messages to other nodes whose receivers are known
    between_messages: int = 0
    asked_bytes: int = 0  # bytes sent to build batches
    masked_additions: int = 0  # additions of products whose results a mask set to 0
    max_sent: float = 0.0  # bytes, the largest per-rank figure of each step
    resident: int = 0  # bytes, the largest figure so far
    parts: dict = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))  # means over ranks

    def add(self, **amounts: Any) -> None:
        """Add the numbers of a step to the fields of these names."""
        for name, amount in amounts.items():
            setattr(self, name, getattr(self, name) + amount)

    def metrics(self, epoch: int, norm: int) -> dict[str, float | None]:
        """Return the fields of an epoch in metrics.jsonl that are known before its evaluation.

        Dividing the sum of losses by `norm` gives their mean.
        """
        optional = {"masked_additions": self.masked_additions} if self.masked_additions else {}
        if self.between_messages:
            optional |= {"bytes_between_nodes": self.between_bytes,
                         "messages_between_nodes": self.between_messages}
        return {"epoch": epoch, "loss": self.loss / norm, "train_acc": None, "val_acc": None,
                "test_acc": None, "val_loss": None, "epoch_s": self.seconds, "eval_s": 0.0,
                "spmm_s": self.spmm, "dense_s": self.dense, "comm_s": self.comm,
                "wait_s": self.wait, "sent_bytes": self.sent_bytes,
                "sent_messages": self.sent_messages, "peak_rss_bytes": self.resident, **optional,
                **{f"mean_{part}_s": seconds for part, seconds in self.parts.items()}}


SUMS = {"steps": COUNT, "loss": FINITE, "seconds": SECONDS, **dict.fromkeys(CLOCKED, SECONDS),
        **dict.fromkeys(("sent_bytes", "sent_messages", "asked_bytes", "resident"), COUNT),
        "max_sent": Field(float, 0)}
# missing from checkpoints of earlier versions
LATER_SUMS = dict.fromkeys(("masked_additions", "between_bytes", "between_messages"), COUNT)
SUMMED_PARTS = dict.fromkeys(PARTS, SECONDS)  # fields of `EpochSums.parts`, likewise


class BestEpoch:
    """The best epoch so far.

    It has the best validation metric, then the lowest loss, then the lowest number.
    """

    def __init__(self) -> None:
        self.epoch = 0  # 0 before the first evaluation
        self.metrics = {}
        self.weights = None  # flat, on the device
        self.key = None

    def update_if_better(self, epoch: int, metrics: dict[str, Any], flat: Array,
                         metric: str = "accuracy") -> None:
        """Store a copy of the weights if the epoch is the best by a metric.

        Without validation vertices every epoch is the best.
        """
        key = None
        if metrics["val_acc"] is not None:
            key = (goodness(metric, metrics["val_acc"]), -metrics["val_loss"])
        if self.key is None or key is None or key > self.key:
            self.epoch = epoch
            self.metrics = metrics
            accessed((flat,))
            self.weights = flat.copy()
            self.key = key


@dataclass(eq=False)
class LoopState:
    """The progress of a run, equal on all ranks.

    The Trainer has the parameters and moments.
    """

    epoch: int = 0  # the last complete one
    steps: int = 0  # training steps taken, including those before the run was resumed
    sums: EpochSums = field(default_factory=EpochSums)  # sums of the epoch that is not complete
    best: BestEpoch = field(default_factory=BestEpoch)
    history: list = field(default_factory=list)  # metrics of complete epochs
    max_sent_bytes: float = 0.0  # per step the largest of ranks, summed over the last epoch
    pending_signal: int = 0  # signal that a rank received before the end of the last step

    @property
    def within_epoch(self) -> bool:
        """Whether an epoch has begun and is incomplete."""
        return self.sums.steps > 0

    @property
    def last_metrics(self) -> dict[str, float]:
        """Metrics of the last complete epoch; {} before the first one."""
        return self.history[-1] if self.history else {}

    def complete_epoch(self, metrics: dict[str, Any]) -> None:
        """Append the metrics of a complete epoch to the history, and start new sums."""
        self.epoch = metrics["epoch"]
        self.history.append(metrics)
        self.max_sent_bytes = self.sums.max_sent
        self.sums = EpochSums()

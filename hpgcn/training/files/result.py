"""The result of training: a summary, the history and the weights."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hpgcn.graphs.contents import NAMED
from hpgcn.runtime.text_table import html_list
from hpgcn.setting_words import score
from hpgcn.store import SCALE
from hpgcn.training.files.records import read_history
from hpgcn.training.files.run_directory import read_run

if TYPE_CHECKING:
    import numpy as np

    from hpgcn.config import Config


class Result(dict[str, Any]):
    """The result of training, equal on all ranks.

    It is the summary, as in summary.json, with the trained model as attributes.

    Attributes
    ----------
    config : hpgcn.Config
    weights : dict of str -> ndarray
        Weights of the best epoch, by name ("W0", "b0", ...). With the setting `embedding`,
        "embedding" has the learned rows, (n, embedding) in ORIGINAL order, on rank 0.
    history : list of dict
        The metrics of each epoch, by the names of metrics.jsonl.
    class_names : tuple of str (c,), or None
        Names of the classes of the training graph.
    feature_names : tuple of str (f,), or None
        Names of its columns of features.
    target_names : tuple of str (t,), or None
        Names of its targets.
    target_mean : (t,) float64, or None
        Scale of the targets: predictions are outputs * target_deviation + target_mean.
    target_deviation : (t,) float64, or None
        Standard deviation of the targets that training knows.
    vertex_ids : (n,) array, or None
        What the input calls the vertices of learned rows, on rank 0.

    Examples
    --------
    >>> A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))  # two triangles
    >>> y, masks = [0, 0, 0, 1, 1, 1], ([0, 3], [1, 4], [2, 5])
    >>> graph = hpgcn.Graph.from_scipy(A, np.eye(6), y, masks)
    >>> result = hpgcn.train(graph, hpgcn.Config(hidden=4, epochs=3))
    >>> result["epochs"], len(result.history)
    (3, 3)
    >>> {name: array.shape for name, array in result.weights.items()}
    {'W0': (6, 4), 'W1': (4, 2), 'b0': (4,), 'b1': (2,)}
    """

    def __init__(self, summary: Mapping[str, Any], config: Config,
                 weights: dict[str, np.ndarray], history: list[dict[str, Any]],
                 class_names: tuple[str, ...] | None = None,
                 feature_names: tuple[str, ...] | None = None,
                 target_names: tuple[str, ...] | None = None,
                 target_mean: np.ndarray | None = None,
                 target_deviation: np.ndarray | None = None,
                 vertex_ids: np.ndarray | None = None) -> None:
        super().__init__(summary)
        self.config = config
        self.weights = weights
        self.history = history
        self.class_names = class_names
        self.feature_names = feature_names
        self.target_names = target_names
        self.target_mean = target_mean
        self.target_deviation = target_deviation
        self.vertex_ids = vertex_ids

    def __repr__(self) -> str:
        names = ("graph", "epochs", "best_epoch", "final_loss", "best_val_acc", "test_acc", "ranks")
        return f"Result({', '.join(f'{name}={self.get(name)!r}' for name in names)})"

    def _repr_html_(self) -> str:
        return html_list(f"run on {self.get('graph')}", summary_pairs(
            lambda name: self.get(name, getattr(self.config, name, None)), self["epochs"]))


def read_result(config: Config, summary: Mapping[str, Any]) -> Result:
    """Read the Result of a finished run from its directory, config.out.

    Errors as `read_run`.
    """
    weights, _, attributes = read_run(config.out)
    about = {name: attributes.get(name) for name in (*NAMED, *SCALE, "vertex_ids")}
    return Result(summary, config, weights, read_history(config.out)[0], **about)


def summary_pairs(get: Callable, epochs: int) -> list[tuple]:
    """Return (label, value) pairs of a summary.

    `get` maps a name to its value, or None.
    """
    sent, predicted = get("sent_bytes_per_epoch"), get("predicted_bytes_per_epoch")
    seconds = get("epoch_s_median")
    metric = get("metric") or "accuracy"

    return [
        ("graph", get("graph")),
        ("model", get("model")),
        ("strategy", get("strategy")),
        ("ranks", f"{get('ranks')} x {get('threads')} threads" if get("ranks") else None),
        ("device", get("device")),
        ("epochs", epochs),
        ("best epoch", get("best_epoch")),
        (f"validation {metric}", score(get("best_val_acc"), metric)),
        (f"test {metric}", score(get("test_acc"), metric)),
        ("seconds per epoch", None if seconds is None else f"{seconds:.4g}"),
        ("bytes sent per epoch", None if sent is None else f"{sent:,} ({predicted:,} predicted)"),
        ("results", get("out"))]

"""The result of a training: its summary, history and weights."""
from __future__ import annotations

from hpgcn.training.records import read_history
from hpgcn.training.run_directory import read_run


class Result(dict):
    """The summary of a training, as in summary.json, and what was trained; equal on all ranks.

    Attributes
    ----------
    config : hpgcn.Config
    weights : dict of str -> ndarray
        Of the best epoch, by name ("W0", "b0", ...).
    history : list of dict
        The metrics of each epoch, by the names of metrics.jsonl.
    """

    def __init__(self, summary, config, weights, history):
        super().__init__(summary)
        self.config = config
        self.weights = weights
        self.history = history

    @staticmethod
    def read(config, summary):
        """Return the Result of a finished run from its directory, config.out; as `read_run`."""
        weights, _, _ = read_run(config.out)
        return Result(summary, config, weights, read_history(config.out)[0])

    def __repr__(self):
        names = ("graph", "epochs", "best_epoch", "final_loss", "best_val_acc", "test_acc", "ranks")
        return f"Result({', '.join(f'{name}={self.get(name)!r}' for name in names)})"

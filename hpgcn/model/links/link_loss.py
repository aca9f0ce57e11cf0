"""The loss of links: cross-entropy of the scores of links and of negatives.

It is the mean of log(1 + exp(-s)) over links plus the mean of log(1 + exp(s)) over negatives.
`GAE.recon_loss` of PyG has the same loss, except for its 1e-15 in each logarithm (Kipf and
Welling 2016). So do the examples of OGB.
"""
from __future__ import annotations

import operator
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpgcn import kernels
from hpgcn.comm.repeated import computed
from hpgcn.kernels.host.record import ALL, repeat
from hpgcn.model.link_metrics import link_metric, rank_metric
from hpgcn.parallel.workspace import Workspace

if TYPE_CHECKING:
    from hpgcn.comm.communicator import SerialComm
    from hpgcn.kernels import Array
    from hpgcn.model.links.decoders import Dot
    from hpgcn.model.parameters import Parameters
    from hpgcn.parallel.pulled_rows import PulledRows

BLOCK = 1 << 22  # numbers of the rows of pairs that are in memory at a time
SCORED = ("auc", "ap")  # metrics that are always given, unless each link has its own negatives


class TrainingPairs(NamedTuple):
    """Pairs of a training step on this rank; places are rows of a PulledRows, on the device.

    The first `positives` pairs are links, and the others negatives. Each of the `distinct`
    sources of links, (u,), has the `shared` negatives as well. Links have it `counts` times,
    (u, 1) float64. `totals` are the numbers of links and of negatives over all ranks, and `share`
    is that of these links among the links of an epoch.
    """

    pulled: PulledRows
    sources: Array  # (k,)
    targets: Array  # (k,)
    positives: int
    distinct: Array
    counts: Array
    shared: Array  # (M,)
    totals: tuple[int, int]
    share: float = 1.0

    def restricted(self, rows: Array, on_host: np.ndarray) -> TrainingPairs:
        """Return the pairs of a step that computes only some own rows, (m',) int64 increasing.

        The rows are on the device, and `on_host`. They include all rows that pairs read.
        """
        m = self.pulled.plan.layout.num_rows

        def renumbered(places: Array) -> Array:
            return np.where(places < m, np.searchsorted(rows, places), places - m + rows.size)

        names = "sources", "targets", "distinct", "shared"
        return self._replace(pulled=self.pulled.restricted(on_host),
                             **{name: renumbered(getattr(self, name)) for name in names})


class ScoredPairs(NamedTuple):
    """Pairs of an evaluation on this rank, in blocks of bounded size.

    `blocks` are tuples of a PulledRows, sources and targets, (k,) places in its rows. All
    ranks have the same number of blocks. Scores have the shape `shape`.
    """

    blocks: list
    shape: tuple

    def scores(self, own: Array, decoder: Dot, workspace: Workspace, comm: SerialComm) -> Array:
        """Return the scores of all pairs by own rows, (m, d), on the host; collective."""
        found = [np.empty(0, own.dtype)]
        for pulled, sources, targets in self.blocks:
            rows = pulled.array("rows", own, workspace)
            pulled.pull(own, rows)
            gather = kernels.backend(rows).gather
            for place in blocks_of(sources.size, own.shape[1]):
                P = gather(rows, sources[place]) * gather(rows, targets[place])
                found.append(comm.device.get(decoder.forward(P)[0]))
        return np.concatenate(found).reshape(self.shape)


class LinkLoss:
    """The loss of the pairs of a step, and the metrics of an evaluation.

    Parameters
    ----------
    decoder : Dot or another decoder
    comm : SerialComm
    metric : str
        The word of --metric.
    evaluated : dict of (ScoredPairs, ScoredPairs)
        Links and negatives under "val" and "test".
    workspace : Workspace
        Arrays of rows and sums, apart from those of the encoder.
    ranked : dict of AllTargets, optional
        Sets whose links are ranked among all vertices, by the metric of the run.
    """

    norm = 1  # `gradient` returns terms of a mean

    def __init__(self, decoder: Dot, comm: SerialComm, metric: str, evaluated: dict,
                 workspace: Workspace, ranked: dict | None = None) -> None:
        self.decoder = decoder
        self.comm = comm
        self.metric = metric
        self.evaluated = evaluated
        self.workspace = workspace
        self.ranked = ranked or {}
        self.pairs: TrainingPairs | None = None
        self.decoder_gradient = {name: array * 0 for name, array in decoder.arrays.items()}

    def of_pairs(self, pairs: TrainingPairs) -> LinkLoss:
        """Return the training loss of some pairs."""
        part = copy(self)
        part.pairs = pairs
        return part

    def of_set(self, key: str) -> LinkLoss:
        """Return the loss that evaluates one set, "val" or "test"."""
        part = copy(self)
        part.evaluated = {name: pairs for name, pairs in self.evaluated.items() if name == key}
        return part

    def gradient(self, own: Array, out: Array | None = None) -> tuple:
        """Return this rank's terms of the loss, and the gradient of its rows, (m, d); collective.

        The terms have the share of the pairs in an epoch; the gradient is that of their mean.
        The gradients of the decoder are left for `add_parameters`.
        """
        total = self.comm.device.xp.zeros((), np.float64)
        grad = np.empty_like(own) if out is None else out
        self._fill(own, grad, total)
        return total, grad

    @computed
    def _fill(self, own: Array, grad: Array, loss: Array) -> None:
        """Fill the results of `gradient`; each step has other pairs."""
        pairs = self.pairs
        for array in self.decoder_gradient.values():
            array[...] = 0
        rows = pairs.pulled.array("rows", own, self.workspace)
        sums = pairs.pulled.array("sums", grad, self.workspace)
        pairs.pulled.pull(own, rows)
        sums[...] = 0

        # links, and negatives of their own
        links, negatives = (1 / max(total, 1) for total in pairs.totals)
        total = 0
        cut = pairs.positives
        for first, last, sign, share in ((0, cut, 1, links), (cut, pairs.sources.size, -1,
                                                              negatives)):
            for place in blocks_of(last - first, own.shape[1]):
                place = slice(first + place.start, first + place.stop)
                total = total + self._add_pairs(rows, sums, place, sign, share)

        # negatives that all sources share
        if pairs.shared.size and pairs.distinct.size:
            total = total + self._add_shared(rows, sums, negatives)

        pairs.pulled.push(sums, grad)
        loss[...] = total * pairs.share

    def _add_pairs(self, rows: Array, sums: Array, place: slice, sign: int, share: float) -> Any:
        """Add the gradients of a block of pairs to `sums`, and return its loss."""
        ops = kernels.backend(rows)
        sources, targets = self.pairs.sources[place], self.pairs.targets[place]
        H, T = ops.gather(rows, sources), ops.gather(rows, targets)
        scores, backward = self.decoder.forward(H * T)
        loss, slopes = logistic(scores, sign)
        dP = backward((slopes * share).astype(rows.dtype), self.decoder_gradient)
        ops.scatter_add(dP * T, sources, sums)
        ops.scatter_add(dP * H, targets, sums)
        return loss.sum() * share

    def _add_shared(self, rows: Array, sums: Array, share: float) -> Any:
        """Add the gradients of shared negatives to `sums`, and return their loss."""
        ops = kernels.backend(rows)
        pairs = self.pairs
        T = ops.gather(rows, pairs.shared)
        dT = T * 0
        width = pairs.shared.size * (1 if self.decoder.linear else T.shape[1])
        total = self.comm.device.xp.zeros((), np.float64)
        for place in blocks_of(pairs.distinct.size, width):
            sources, counts = pairs.distinct[place], pairs.counts[place]
            scores, backward = self.decoder.outer(ops.gather(rows, sources), T)
            loss, slopes = logistic(scores, -1)
            total = total + (loss * counts).sum() * share
            dH, part = backward((slopes * (counts * share)).astype(rows.dtype),
                                self.decoder_gradient)
            dT += part
            ops.scatter_add(dH, sources, sums)
        ops.scatter_add(dT, pairs.shared, sums)
        return total

    def add_parameters(self, gradient: Parameters) -> None:
        """Write the gradients of the decoder that `gradient` computed."""
        for name, array in self.decoder_gradient.items():
            repeat(operator.setitem, gradient.arrays[name], ALL, array)

    def evaluate(self, own: Array) -> dict[str, Any]:
        """Return val_loss, and metrics of each set, a dict; collective.

        val_acc and test_acc have the metric of the run. Other names are those of metrics, such
        as val_auc and test_auc.
        """
        found: dict[str, Any] = {"train_acc": None, "val_acc": None, "test_acc": None,
                                 "val_loss": None}
        for key, pairs in self.evaluated.items():
            given = (own, self.decoder, self.workspace, self.comm)
            positive, negative = (each.scores(*given) for each in pairs)
            names = dict.fromkeys([self.metric, *SCORED] if negative.ndim == 1 else [self.metric])
            for name in names:
                flat = name in SCORED and negative.ndim == 2
                values = negative.ravel() if flat else negative
                found[f"{key}_{name}"] = link_metric(name)(self.comm, positive, values)
            if key in self.ranked:
                rank = self.ranked[key].ranks(positive, own, self.decoder)
                found[f"{key}_{self.metric}"] = rank_metric(self.metric)(self.comm, rank)
            found[f"{key}_acc"] = found[f"{key}_{self.metric}"]
            if key == "val":
                sums = [each for scores, sign in ((positive, 1), (negative, -1))
                        for each in (logistic(scores, sign)[0].sum(), scores.size)]
                loss, count, other, others = self.comm.sum(sums)
                found["val_loss"] = float(loss / max(count, 1) + other / max(others, 1))
        return found


def logistic(scores: Array, sign: int) -> tuple[Array, Array]:
    """Return log(1 + exp(-sign s)) of scores s, float64, and the derivatives.

    Examples
    --------
    >>> from hpgcn.model.links.link_loss import logistic
    >>> [each.round(3).tolist() for each in logistic(np.array([0., 2.]), 1)]
    [[0.693, 0.127], [-0.5, -0.119]]
    """
    x = sign * scores.astype(np.float64)
    with np.errstate(over="ignore"):
        return np.logaddexp(0, -x), -sign / (1 + np.exp(x))


def blocks_of(count: int, width: int) -> list[slice]:
    """Return the slices of `count` rows of `width` numbers, at most BLOCK numbers each."""
    step = max(1, BLOCK // max(width, 1))
    return [slice(first, min(first + step, count)) for first in range(0, count, step)]

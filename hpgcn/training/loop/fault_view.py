"""Faults within a training step, for tests: around it, which itself knows nothing of them."""
from __future__ import annotations

import math

from hpgcn.runtime import faults


def with_faults(view, columns):
    """Return a view and columns that meet the faults asked for: the same ones if there are none."""
    if not faults.requested_fault():
        return view, columns
    view = view._replace(model=_FaultyModel(view.model), loss=_FaultyLoss(view.loss))
    return view, _FaultyColumns(columns)


class _Around:
    """Does as another object does."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class _FaultyModel(_Around):
    def forward(self, features, step):
        faults.point("forward")
        logits, backward = self.inner.forward(features, step)
        if faults.point("loss"):
            logits[...] = math.nan
        return logits, backward


class _FaultyLoss(_Around):
    def gradient(self, logits, out):
        loss, G = self.inner.gradient(logits, out)
        if faults.point("backward"):
            G[...] = math.nan
        return loss, G


class _FaultyColumns(_Around):
    def reduce(self, gradient):
        faults.point("update")
        self.inner.reduce(gradient)

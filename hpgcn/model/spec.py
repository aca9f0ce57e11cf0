"""What a model is, before any rank holds a part of it: its layers' widths, and how they are put together."""
from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpgcn.errors import UsageError


@dataclass(frozen=True)
class ModelSpec:
    """A model of some widths, as one of MODELS.

    Attributes
    ----------
    architecture : str
        One of hpgcn.model.MODELS.
    widths : tuple of L + 1 int
        Features, hidden widths, classes.
    dtype : str
    sparse_features : bool
        Layer 1 multiplies by W first, so that X stays sparse.
    precomputed : bool
        A X was formed once, before the first step: layer 1 multiplies by neither A nor A^T.
    multilabel : bool
        The loss is a sigmoid cross-entropy, which needs no sums over the columns of a row.
    layer_norm : bool
        Between each hidden layer and its ReLU.
    drop_AX : bool
        The A H of layers that multiply by A first is not kept for the gradient of W, which is H^T (A^T G) then.
    first_dropout, dropout : float
        Before the first layer, before the others.
    seed : int

    Raises
    ------
    UsageError
        Fewer than two widths, one that is not positive, or sparse features that are precomputed.
    """

    architecture: str
    widths: tuple[int, ...]
    dtype: str = "float32"
    sparse_features: bool = False
    precomputed: bool = False
    multilabel: bool = False
    layer_norm: bool = False
    drop_AX: bool = False
    first_dropout: float = 0.0
    dropout: float = 0.0
    seed: int = 0

    def __post_init__(self):
        widths = tuple(map(int, self.widths))
        object.__setattr__(self, "widths", widths)
        if len(widths) < 2 or min(widths) < 1:
            raise UsageError(f"widths {','.join(map(str, widths))}: expected two or more positive numbers "
                             "(features, hidden widths, classes)")
        if self.sparse_features and self.precomputed:
            raise UsageError("sparse_features and precomputed exclude each other: "
                             "A X is formed once for dense X alone")

    @property
    def itemsize(self):
        """Bytes of a number."""
        return np.dtype(self.dtype).itemsize

    @property
    def layers(self):
        """Pairs (fan_in, fan_out), one a layer."""
        return list(pairwise(self.widths))

    @property
    def num_layers(self):
        """L."""
        return len(self.widths) - 1

"""What one training step multiplies and sends, whatever the strategy: products with A and W, in which order."""
from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hpgcn.errors import DataError, UsageError

SUM_BYTES = 8  # sums over the columns of a row are added in float64
MODELS = ("gcn", "sage-mean", "sage-gcn", "gin")


@dataclass(frozen=True)
class Product:
    """One product with A or with A^T.

    Attributes
    ----------
    layer : int
        From 0.
    width : int
        Columns of the dense matrix.
    masked : bool
        The result is masked (S-SpMM).
    """

    layer: int
    width: int
    masked: bool = False


@dataclass(frozen=True)
class Step:
    """One training step of a model.

    Attributes
    ----------
    widths : tuple of L + 1 int
        Features, hidden widths, classes.
    itemsize : int
        Bytes of a number: 4 or 8.
    sparse_features : bool
        Layer 1 multiplies by W first, so that X stays sparse.
    constant : bool
        A X was formed once, before the first step: layer 1 multiplies by neither A nor A^T.
    directed : bool
        A is not symmetric: A^T is another matrix.
    model : str
        One of MODELS.
    multilabel : bool
        The loss is a sigmoid cross-entropy, which needs no sums over the columns of a row.
    layer_norm : bool
        Between each hidden layer and its ReLU.
    rows : tuple of L + 1 int
        Rows of each level: what layer l reads, and layer l - 1 computes; () where they are all the same.
    lean : bool
        The T = A H of layers that multiply by A first is not kept for the gradient of W, H^T (A^T G) then.

    Raises
    ------
    UsageError
        Fewer than two widths, one that is not positive, another itemsize or model, or sparse features that are
        constant.
    """

    widths: tuple[int, ...]
    itemsize: int = 4
    sparse_features: bool = False
    constant: bool = False
    directed: bool = False
    model: str = "gcn"
    multilabel: bool = False
    layer_norm: bool = False
    rows: tuple[int, ...] = ()
    lean: bool = False

    def __post_init__(self):
        widths = tuple(map(int, self.widths))
        object.__setattr__(self, "widths", widths)
        if len(widths) < 2 or min(widths) < 1:
            raise UsageError(f"widths {','.join(map(str, widths))}: expected two or more positive numbers "
                             "(features, hidden widths, classes)")
        if self.itemsize not in (4, 8):
            raise UsageError(f"itemsize {self.itemsize}: expected 4 (float32) or 8 (float64)")
        if self.model not in MODELS:
            raise UsageError(f"model {self.model}: expected one of {', '.join(MODELS)}")
        if self.sparse_features and self.constant:
            raise UsageError("sparse_features and constant exclude each other: A X is formed once for dense X alone")

    @property
    def layers(self):
        """Pairs (fan_in, fan_out), one a layer."""
        return list(pairwise(self.widths))

    @property
    def parameters(self):
        """Shapes of all parameters by name; see `shapes`."""
        return shapes(self.widths, self.model, self.layer_norm)

    @property
    def forward(self):
        """Products with A, in order; tuple of Product."""
        return tuple(Product(layer, fan_in if self.aggregates_first(layer) else self.inner(layer))
                     for layer, (fan_in, _) in enumerate(self.layers) if layer or not self.constant)

    @property
    def backward(self):
        """Products with A^T, from the last layer to the first; tuple of Product.

        The first layer's backward multiplies by A^T only if W came first: its input needs no gradient. If A came
        first, the result is the gradient of the layer's input and takes that input's mask (ReLU and dropout); not so in
        sage-mean and gin, where the vertex's own share is added before the mask.
        """
        alone = self.model in ("gcn", "sage-gcn")
        return tuple(Product(product.layer, product.width, True) if alone and self.keeps_T(product.layer) else
                     Product(product.layer, product.width if self.keeps_T(product.layer) else self.inner(product.layer))
                     for product in reversed(self.forward) if product.layer or not self.aggregates_first(0))

    @property
    def linear(self):
        """Products with W, in order: pairs (level, width of the result).

        Level l are the rows that layer l reads, and that layer l - 1 computes: all rows, or those that matter.
        """
        found = []
        for layer, (_, fan_out) in enumerate(self.layers):
            neighbour = layer + self.aggregates_early(layer), self.inner(layer)
            own = layer + 1, fan_out
            found += {"sage-mean": [own, neighbour], "gin": [neighbour, own]}.get(self.model, [neighbour])
        return tuple(found)

    @property
    def gathered(self):
        """Gradients that are needed with all their columns, from the last layer: pairs (level, width).

        sage-mean has two where T is not kept: G for its own weights, A^T G for those of the neighbours.
        """
        found = []
        for layer, (_, fan_out) in reversed(list(enumerate(self.layers))):
            kept = self.keeps_T(layer)
            neighbour = [(layer + kept, self.inner(layer))]
            if self.model == "gin":
                again = self.aggregates_early(layer) and not kept
                neighbour = [(layer + 1, fan_out)] + [(layer + 1, self.inner(layer))] * again + neighbour
            elif self.model == "sage-mean" and not kept:
                neighbour.insert(0, (layer + 1, fan_out))
            found += neighbour
        return tuple(found)

    @property
    def row_sums(self):
        """(phase, level, bytes a row) of each sum or maximum over the columns of a row, where ranks share rows.

        Softmax: the maximum, then the sum. Layer norm: the mean, then the variance; backward, two sums at once.
        """
        last = len(self.layers)
        found = [] if self.multilabel else [("forward", last, self.itemsize), ("forward", last, SUM_BYTES)]
        for level in range(1, last if self.layer_norm else 1):
            found += [("forward", level, SUM_BYTES)] * 2 + [("backward", level, 2 * SUM_BYTES)]
        return tuple(found)

    def inner(self, layer):
        """Width of H W, for the W that follows the product with A or comes before it."""
        return gin_inner(self.widths, layer) if self.model == "gin" else self.widths[layer + 1]

    def aggregates_first(self, layer):
        """Whether a layer multiplies by A before W, A X formed once aside."""
        fewer = bool(self.rows) and self.rows[layer + 1] < self.rows[layer]
        return aggregate_first(self.widths[layer], self.inner(layer), self.sparse_features and layer == 0, fewer)

    def keeps_T(self, layer):
        """Whether a layer keeps T = A H, so that the gradient of W is T^T G; the first always does where A is first."""
        return self.aggregates_early(layer) and not (self.lean and layer)

    def aggregates_early(self, layer):
        """Whether the product with A comes before W, be it formed aside."""
        return self.aggregates_first(layer) or (self.constant and layer == 0)


def make_step(name, header, config, widths=None):
    """The Step of a run on a graph; DataError if it has no features or classes and no widths are given."""
    if widths is None:
        for what, count in (("features", header.num_features), ("classes", header.num_classes)):
            if not count:
                raise DataError(f"{name}: no {what}; give --widths, e.g. --widths 128,{config.hidden},40")
        widths = (header.num_features, *[config.hidden] * (config.layers - 1), header.num_classes)
    sparse = header.sparse_features and widths[0] == header.num_features
    constant = config.precompute and config.first_dropout == 0 and not sparse
    return Step(widths, np.dtype(config.dtype).itemsize, sparse, constant, header.directed, config.architecture,
                header.multilabel and widths[-1] == header.num_classes, config.layer_norm)


def aggregate_first(fan_in, fan_out, sparse=False, fewer=False):
    """Whether a layer multiplies by A before W: the narrower side is exchanged (mg-gcn-2021, section 4.4).

    Sparse input goes through W first, so that it stays sparse; at equal widths W goes first too, unless the result has
    `fewer` rows than the input: then W multiplies those alone.
    """
    return fan_in < fan_out + fewer and not sparse


def gcn_exchanges(widths, sparse_features=False, constant=False):
    """Widths of the products with A, then with A^T, of one training step of a GCN; lists of int, in order of layers.

    Parameters
    ----------
    widths : sequence of L + 1 int
    sparse_features, constant : bool
        As `Step`.
    """
    step = Step(widths, sparse_features=sparse_features, constant=constant)
    return [product.width for product in step.forward], [product.width for product in reversed(step.backward)]


def shapes(widths, model="gcn", layer_norm=False):
    """Names and shapes of a model's parameters: matrices first, in order of layers, then vectors.

    Parameters
    ----------
    widths : sequence of L + 1 int
    model : str
        One of MODELS.

    Returns
    -------
    dict of str -> tuple of int
        Of layer l from f to f': gcn and sage-gcn W{l} (f, f'), b{l} (f',); sage-mean W{l}_self and W{l}_neighbour
        (f, f'), b{l}; gin, with i from `gin_inner`, W{l}_a (f, i), W{l}_b (i, f'), b{l}_a (i,), b{l}_b (f',),
        eps{l} (1,). With layer norm each hidden layer has gain{l} and shift{l} (f',), too.
    """
    matrices, vectors = {}, {}
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
        if model == "gin":
            inner = gin_inner(widths, layer)
            matrices |= {f"W{layer}_a": (fan_in, inner), f"W{layer}_b": (inner, fan_out)}
            vectors |= {f"b{layer}_a": (inner,), f"b{layer}_b": (fan_out,), f"eps{layer}": (1,)}
        elif model == "sage-mean":
            matrices |= {f"W{layer}_self": (fan_in, fan_out), f"W{layer}_neighbour": (fan_in, fan_out)}
            vectors[f"b{layer}"] = (fan_out,)
        else:
            matrices[f"W{layer}"], vectors[f"b{layer}"] = (fan_in, fan_out), (fan_out,)
        if layer_norm and layer + 2 < len(widths):
            vectors |= {f"gain{layer}": (fan_out,), f"shift{layer}": (fan_out,)}
    return matrices | vectors


def gin_inner(widths, layer):
    """Width between the two linear maps of a layer of gin: that of the hidden layer next to it.

    In the last layer that is its input (classes may be few, and a ReLU of few units dies easily); in a single layer,
    which has none, the number of classes.
    """
    return widths[min(layer + 1, len(widths) - 2)] if len(widths) > 2 else widths[1]


def num_parameters(widths, model="gcn", layer_norm=False):
    """Elements of all parameters of a model, one of MODELS."""
    return sum(map(math.prod, shapes(widths, model, layer_norm).values()))

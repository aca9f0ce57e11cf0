"""What one training step of a GCN multiplies, whatever the strategy: which products with A, in which order."""
from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hpgcn.errors import UsageError


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
    """One training step of a GCN.

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

    Raises
    ------
    UsageError
        Fewer than two widths, one that is not positive, another itemsize, or sparse features that are constant.
    """

    widths: tuple[int, ...]
    itemsize: int = 4
    sparse_features: bool = False
    constant: bool = False
    directed: bool = False

    def __post_init__(self):
        widths = tuple(map(int, self.widths))
        object.__setattr__(self, "widths", widths)
        if len(widths) < 2 or min(widths) < 1:
            raise UsageError(f"widths {','.join(map(str, widths))}: expected two or more positive numbers "
                             "(features, hidden widths, classes)")
        if self.itemsize not in (4, 8):
            raise UsageError(f"itemsize {self.itemsize}: expected 4 (float32) or 8 (float64)")
        if self.sparse_features and self.constant:
            raise UsageError("sparse_features and constant exclude each other: A X is formed once for dense X alone")

    @property
    def layers(self):
        """Pairs (fan_in, fan_out), one a layer."""
        return list(pairwise(self.widths))

    @property
    def forward(self):
        """Products with A, in order; tuple of Product."""
        return tuple(Product(layer, fan_in if self._first(layer) else fan_out)
                     for layer, (fan_in, fan_out) in enumerate(self.layers) if layer or not self.constant)

    @property
    def backward(self):
        """Products with A^T, from the last layer to the first; tuple of Product.

        The first layer's backward multiplies by A^T only if W came first: its input needs no gradient. If A came
        first, the result is the gradient of the layer's input and takes that input's mask (ReLU and dropout).
        """
        return tuple(Product(product.layer, product.width, self._first(product.layer))
                     for product in reversed(self.forward) if product.layer or not self._first(0))

    def _first(self, layer):
        return aggregate_first(*self.layers[layer], self.sparse_features and layer == 0)


def aggregate_first(fan_in, fan_out, sparse=False):
    """Whether a layer multiplies by A before W: the narrower side is exchanged (mg-gcn-2021, section 4.4).

    Sparse input goes through W first, so that it stays sparse; at equal widths W goes first too.
    """
    return fan_in < fan_out and not sparse


def gcn_exchanges(widths, sparse_features=False, constant=False):
    """Widths of the products with A, then with A^T, of one training step; lists of int, in order of layers.

    Parameters
    ----------
    widths : sequence of L + 1 int
    sparse_features, constant : bool
        As `Step`.
    """
    step = Step(widths, sparse_features=sparse_features, constant=constant)
    return [product.width for product in step.forward], [product.width for product in reversed(step.backward)]


def num_parameters(widths):
    """Elements of all weights and biases of a GCN."""
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(widths))

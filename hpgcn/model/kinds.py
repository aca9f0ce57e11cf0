"""Which layer a model is made of, and which matrix it multiplies by."""
from __future__ import annotations

from dataclasses import dataclass

from hpgcn.model.gcn import GraphConvolution
from hpgcn.model.gin import GraphIsomorphism
from hpgcn.model.layer import Layer
from hpgcn.model.sage import SageMean


@dataclass(frozen=True)
class Kind:
    """One model.

    Attributes
    ----------
    layer : type
        Subclass of hpgcn.model.layer.Layer.
    norm : "sym", "row" or "none"
        As hpgcn.operator.Operator.
    self_loops : bool
        A loop of weight 1 is added where a vertex has none.
    """

    layer: type[Layer]
    norm: str
    self_loops: bool


MODELS = {
    "gcn": Kind(GraphConvolution, "sym", True),
    "sage-mean": Kind(SageMean, "row", False),
    "sage-gcn": Kind(GraphConvolution, "row", True),
    "gin": Kind(GraphIsomorphism, "none", False),
}

"""The models by name: of each, the class of its layers."""
from __future__ import annotations

from hpgcn.errors import UsageError
from hpgcn.model.gcn import GraphConvolution, MeanConvolution
from hpgcn.model.gin import GraphIsomorphism
from hpgcn.model.sage import SageMean

MODELS = {"gcn": GraphConvolution, "sage-mean": SageMean, "sage-gcn": MeanConvolution, "gin": GraphIsomorphism}
DEFAULT_AGGREGATOR = "mean"


def find_model(config):
    """Return the name of the model that the settings name: MODEL-AGGREGATOR, or MODEL where that takes none.

    Raises
    ------
    UsageError
        There is none of this name, or it takes no aggregator.
    """
    name = f"{config.model}-{config.aggregator}"
    if name in MODELS:
        return name
    if config.model in MODELS:
        if config.aggregator != DEFAULT_AGGREGATOR:
            raise UsageError(f"aggregator = {config.aggregator}: model {config.model} takes none")
        return config.model
    aggregators = [each.partition("-")[2] for each in MODELS if each.startswith(f"{config.model}-")]
    if aggregators:
        raise UsageError(f"aggregator = {config.aggregator!r}: expected one of {', '.join(aggregators)}")
    raise UsageError(f"model = {config.model!r}: expected one of {', '.join(model_kinds())}")


def model_kinds():
    """The words that --model takes, list of str."""
    return list(dict.fromkeys(name.partition("-")[0] for name in MODELS))

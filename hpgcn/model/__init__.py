"""Models as lists of layers with explicit gradients: forward returns its backward."""
from hpgcn.model.buffers import Buffers
from hpgcn.model.kinds import MODELS, Kind
from hpgcn.model.model import Model
from hpgcn.model.parameters import Parameters, keyed_uniform

__all__ = ["MODELS", "Buffers", "Kind", "Model", "Parameters", "keyed_uniform"]

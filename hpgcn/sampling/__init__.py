"""Mini-batches: samplers, one a file, and what a rank makes of a batch of theirs."""
from hpgcn.sampling.neighbours import Neighbours
from hpgcn.sampling.parts import Parts
from hpgcn.sampling.request import FULL, Request, parse
from hpgcn.sampling.sampler import Sampler
from hpgcn.sampling.vertices import Vertices

SAMPLERS = {each.name: each for each in (Vertices, Parts, Neighbours)}

__all__ = ["FULL", "SAMPLERS", "Neighbours", "Parts", "Request", "Sampler", "Vertices", "parse"]

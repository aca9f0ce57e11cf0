"""Mini-batches: samplers, one a file, and what a rank makes of a batch of theirs."""
from hpgcn.sampling.batch_request import FULL, Request, parse, smallest
from hpgcn.sampling.drawn import Drawn
from hpgcn.sampling.held import Held
from hpgcn.sampling.induced import Induced
from hpgcn.sampling.neighbours import Neighbours
from hpgcn.sampling.part_batches import Parts
from hpgcn.sampling.sampler import Sampler
from hpgcn.sampling.vertices import Vertices

SAMPLERS = {each.name: each for each in (Vertices, Parts, Neighbours)}

__all__ = ["FULL", "SAMPLERS", "Drawn", "Held", "Induced", "Neighbours", "Parts", "Request",
           "Sampler", "Vertices", "parse", "smallest"]

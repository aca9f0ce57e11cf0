"""Mini-batches: samplers, one a file, and what a rank makes of a batch of theirs."""
from hpgcn.sampling.batch_request import FULL, BatchRequest, parse, smallest
from hpgcn.sampling.induced_builder import InducedBatchBuilder
from hpgcn.sampling.local_matrix import LocalMatrix
from hpgcn.sampling.neighbour_builder import NeighbourBatchBuilder
from hpgcn.sampling.neighbours import NeighbourSampler
from hpgcn.sampling.part_batches import PartSampler
from hpgcn.sampling.sampler import Sampler
from hpgcn.sampling.vertices import VertexSampler

SAMPLERS = {each.name: each for each in (VertexSampler, PartSampler, NeighbourSampler)}

__all__ = ["FULL", "SAMPLERS", "BatchRequest", "InducedBatchBuilder", "LocalMatrix",
           "NeighbourBatchBuilder", "NeighbourSampler", "PartSampler", "Sampler", "VertexSampler",
           "parse", "smallest"]

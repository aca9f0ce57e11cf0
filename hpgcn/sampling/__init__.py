"""Mini-batches: one sampler per file, and the builders of a rank's share of a batch.

SAMPLERS holds the samplers by the name that --batch begins with. The rest of the
package uses nothing else.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpgcn.errors import UsageError, assigned
from hpgcn.sampling.batch_request import FULL, BatchRequest
from hpgcn.sampling.induced_builder import InducedBatchBuilder
from hpgcn.sampling.keyed_draws import key_of
from hpgcn.sampling.link_batches import LinkSampler
from hpgcn.sampling.local_matrix import LocalMatrix
from hpgcn.sampling.neighbor_builder import NeighborBatchBuilder
from hpgcn.sampling.neighbors import NeighborSampler
from hpgcn.sampling.part_batches import PartSampler
from hpgcn.sampling.sampler import Sampler
from hpgcn.sampling.submatrix_kernels import sample_entries
from hpgcn.sampling.vertices import VertexSampler

SAMPLERS: dict[str, Any] = {
    each.name: each for each in (VertexSampler, PartSampler, NeighborSampler, LinkSampler)}


def parse(text: str) -> BatchRequest | None:
    """Return the BatchRequest of a setting `batch`, None for "full".

    Raise a UsageError if the setting is invalid.
    """
    if text == FULL:
        return None
    name, *words = text.split(":")
    if name in SAMPLERS:
        try:
            return SAMPLERS[name].parse(words)
        except ValueError:
            pass  # the error below lists the forms of all samplers

    forms = [FULL, *(f"{name}:{form}" for name, kind in SAMPLERS.items() for form in kind.forms)]
    examples = [f"{name}:{kind.example}" for name, kind in SAMPLERS.items()]
    raise UsageError(f"{assigned('batch', text)}: expected {_either(forms)}, e.g. "
                     f"{_either(examples)}")


def smallest(text: str) -> str:
    """Return a setting `batch` that runs the same code on three vertices."""
    request = parse(text)
    if request is None:
        return FULL
    kind = SAMPLERS[request.name]
    if kind.samples_parts:  # no partition is needed to induce a matrix
        kind = VertexSampler
    return f"{kind.name}:{kind.smallest}"


def _either(words: Sequence[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}"


__all__ = ["FULL", "SAMPLERS", "BatchRequest", "InducedBatchBuilder", "LinkSampler",
           "LocalMatrix", "NeighborBatchBuilder", "NeighborSampler", "PartSampler", "Sampler",
           "VertexSampler", "key_of", "parse", "sample_entries", "smallest"]

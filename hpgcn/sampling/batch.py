"""A rank's share of a mini-batch: its rows, and the maps between them."""
from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from hpgcn.parallel.receptive_field import Hop, ReceptiveField, layer_bounds, self_rows

if TYPE_CHECKING:
    from hpgcn.model.links.link_loss import TrainingPairs
    from hpgcn.runtime.device import Host
    from hpgcn.strategies.rows import RowStrategy


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows of a training step at each level, and the maps that multiply by parts of A-hat.

    Attributes
    ----------
    maps : list of hpgcn.strategies.RowStrategy
        Map of each product with A.
    rows : list of (m_l,) int64
        Numbers within this rank's block, before the first product and after each.
    totals : list of int
        Numbers of these rows over all ranks.
    share : float
        The chance of a training vertex to be in the batch: its loss is divided by that.
    request_bytes : int
        Bytes that this rank sent to make the batch.
    pairs : hpgcn.model.links.link_loss.TrainingPairs or None
        The links and negatives that the loss reads, if units are links.
    """

    maps: list
    rows: list
    totals: list
    share: float
    request_bytes: int = 0
    pairs: TrainingPairs | None = None

    def field(self, strategy: RowStrategy, products: list[int], device: Host) -> ReceptiveField:
        """Return the ReceptiveField of the batch.

        `products` has the number of products with A of each layer.
        """
        bounds = layer_bounds(products)
        sizes = [rows.size for rows in self.rows]
        hops = []
        for first, last in pairwise(bounds):
            narrows = first != last and self.rows[first] is not self.rows[last]
            own = self_rows(self.rows[first], self.rows[last]) if narrows else None
            hops.append(Hop(self.maps[first:last], sizes[first:last + 1], device.put(own), narrows))
        rows, totals, sizes = ([each[place] for place in bounds]
                               for each in (self.rows, self.totals, sizes))
        return ReceptiveField(strategy, rows, totals, sizes, hops)


"""What a graph in memory or in a file is in other libraries."""
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    import dgl
    import networkx as nx
    from torch_geometric.data import Data


class Conversions:
    """The conversions of Graph and of StoredGraph, which reads all rows for them, once.

    The class that derives from it has `_whole`, a Graph with all rows.
    """

    def to_pyg(self) -> Data:
        """Return a `torch_geometric.data.Data`: see `hpgcn.interop.pyg.to_pyg`."""
        from hpgcn.interop import pyg

        return pyg.to_pyg(self._whole)

    def to_dgl(self) -> dgl.DGLGraph:
        """Return a `dgl.DGLGraph`: see `hpgcn.interop.dgl.to_dgl`."""
        from hpgcn.interop import dgl

        return dgl.to_dgl(self._whole)

    def to_networkx(self) -> nx.Graph:
        """Return a `networkx.Graph`, or DiGraph: see `hpgcn.interop.networkx.to_networkx`."""
        from hpgcn.interop import networkx

        return networkx.to_networkx(self._whole)

    def to_scipy(self) -> tuple[sp.csr_array, np.ndarray | sp.csr_array | None,
                                np.ndarray | None, dict[str, np.ndarray] | None]:
        """Return A, X, y and masks of the whole graph, in its ORIGINAL order.

        Returns
        -------
        (scipy.sparse.csr_array, features, labels, dict)
            As `from_scipy` takes them; None for what the graph does not have.
        """
        graph = self._whole.in_original_order()
        return graph.adjacency, graph.features, graph.labels, graph.masks

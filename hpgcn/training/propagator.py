"""Products with A and its transpose, for methods of the user.

`propagation` makes an object with these products.
"""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hpgcn.comm import as_comm
from hpgcn.comm.collective_errors import CollectiveClose
from hpgcn.config import Config
from hpgcn.errors import UsageError, assigned
from hpgcn.graphs.normalization import NORMS, NormalizedAdjacency
from hpgcn.runtime.device import choose
from hpgcn.strategies import find_strategy, read_options, strategy_setting
from hpgcn.training.setup.placement import assign_rows, opened, read_slab, same_everywhere

if TYPE_CHECKING:
    import scipy.sparse as sp
    from mpi4py.MPI import Comm
    from numpy.typing import DTypeLike

    from hpgcn.comm import SerialComm
    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.graph_source import GraphSource
    from hpgcn.graphs.header import Header
    from hpgcn.strategies import Strategy


class Sent(NamedTuple):
    """Bytes and messages that this rank has sent in products.

    hpgcn.parallel.counts defines what is counted.
    """

    bytes: int
    messages: int


class Propagator(CollectiveClose):
    """The normalized adjacency A-hat of a graph on distributed rows, made by `propagation`.

    Close it with `close`, or use it as a context manager.

    Attributes
    ----------
    rows : (m,) int64
        ORIGINAL numbers of the rows that this rank owns: its part of a matrix H
        of all rows is H[rows].
    features, labels, masks
        Features, labels (or targets) and masks of these rows, as a Graph holds them; None where the
        graph has none.
    header : hpgcn.graphs.graph.Header
        Header of the whole graph.
    num_rows : int
        n, the number of rows of all ranks.
    dtype : numpy dtype
        Type of the values of A-hat, and of the matrices that it multiplies.
    strategy, comm : hpgcn.strategies.Strategy, hpgcn.comm.SerialComm
        The strategy that multiplies, and the communicator.

    Examples
    --------
    >>> graph = hpgcn.Graph.from_edge_index([[0], [1]])
    >>> with hpgcn.propagation(graph, norm="none", self_loops=False) as product:
    ...     forward = product.forward(np.array([[1.0], [3.0]]))
    ...     backward = product.backward(np.array([[1.0], [3.0]]))
    >>> forward.ravel(), backward.ravel()
    (array([0., 1.], dtype=float32), array([3., 0.], dtype=float32))
    """

    rows: np.ndarray
    features: np.ndarray | sp.csr_array | None
    labels: np.ndarray | None
    masks: dict[str, np.ndarray] | None
    header: Header

    def __init__(self, strategy: Strategy, comm: SerialComm, slab: Graph,
                 dtype: DTypeLike) -> None:
        self.strategy = strategy
        self.comm = comm
        self.rows = slab.vertex
        self.features, self.masks = slab.features, slab.masks
        self.labels = slab.labels if slab.targets is None else slab.targets
        self.header = slab.header
        self.num_rows = int(strategy.layout.offsets[-1])
        self.dtype = dtype

    def columns(self, width: int) -> slice:
        """Return which of `width` matrix columns this rank owns.

        It owns all of them unless the grid divides columns.
        """
        return self.strategy.layout.columns_of(width)

    def forward(self, H: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return this rank's rows and columns of A H; all ranks call this together.

        Parameters
        ----------
        H : (m, f) array
            This rank's rows, and its columns, of any number: buffers grow with
            the widest. A copy is made where the type, or the order in memory,
            is another. NumPy's, or CuPy's where the device is a GPU.
        out : (m, f) array, optional
            Receives the result: of `dtype`, in C order, not overlapping H.

        Returns
        -------
        (m, f) array

        Raises
        ------
        UsageError
            H or `out` has another shape, or H no real numbers.
        """
        return self.strategy.forward(self._checked(H, "H"), out=self._result(out, H))

    def backward(self, G: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return this rank's rows and columns of A^T G; parameters as `forward`."""
        return self.strategy.backward(self._checked(G, "G"), out=self._result(out, G))

    def _checked(self, H: np.ndarray, name: str) -> np.ndarray:
        xp = self.comm.device.xp
        H = xp.asarray(H)
        if H.dtype.kind in "OUSMmc":  # a sparse matrix is an object
            raise UsageError(f"{name} has dtype {H.dtype}, expected a dense array of real numbers")
        H = xp.ascontiguousarray(H, self.dtype)
        if H.ndim != 2 or H.shape[0] != self.rows.size:
            raise UsageError(f"{name} has shape {H.shape}, expected ({self.rows.size}, f): one row "
                             "for each row that this rank owns")
        return H

    def _result(self, out: np.ndarray | None, H: np.ndarray) -> np.ndarray | None:
        if out is None:
            return None
        fits = out.shape == np.shape(H) and out.dtype == self.dtype and out.flags.c_contiguous
        if not fits:
            raise UsageError(f"out has shape {out.shape} and dtype {out.dtype}, expected "
                             f"{np.shape(H)} and {self.dtype} in C order")
        return out

    @property
    def traffic(self) -> Sent:
        """Bytes and messages that this rank has sent in all products so far."""
        return Sent(*self.comm.counters.total("propagation"))

    def close(self) -> None:
        self.strategy.close()


def propagation(graph: GraphSource | str | os.PathLike[str], comm: Comm | None = None, *,
                strategy: str = Config.strategy, norm: str = "sym", self_loops: bool = True,
                device: str = "auto", dtype: str = "float32", **settings: Any) -> Propagator:
    """Return a Propagator for the normalized adjacency of a graph.

    All ranks of `comm` call this together.

    Parameters
    ----------
    graph : hpgcn.Graph, hpgcn.store.StoredGraph, str or path-like
        As for `hpgcn.train`; features, labels and masks are not needed.
    comm : mpi4py communicator, optional
        None: this process alone; no MPI is needed.
    strategy : str
        One of hpgcn.strategies.STRATEGIES; auto: the first of them, because there is no
        model to plan for.
    norm : "sym", "in", "row" or "none"
        D^-1/2 A D^-1/2, D^-1 A or A; a degree that is not positive gives the factor 0.
    self_loops : bool
        Add a loop of weight 1 where a vertex has none, before normalizing.
    device : "auto", "cpu" or "cuda"
    dtype : "float32" or "float64"
    settings
        Other fields of hpgcn.Config that it reads: grid, replication, pipeline_batches,
        split_index, comm_timeout.

    Returns
    -------
    Propagator

    Raises
    ------
    UsageError, ConfigError, DataError, MissingError
        On all ranks together: an unknown strategy or norm; as `hpgcn.train`.

    Examples
    --------
    >>> graph = hpgcn.Graph.from_edge_index([[0, 1], [1, 0]])
    >>> with hpgcn.propagation(graph, norm="row") as product:
    ...     print(product.forward(np.array([[1.0], [3.0]])))
    [[2.]
     [2.]]
    """
    # check the settings
    if norm not in NORMS:
        raise UsageError(f"{assigned('norm', norm)}: expected one of {', '.join(NORMS)}")
    config = Config(strategy=strategy, device=device, dtype=dtype, **settings)
    if config.dtype != config.number_dtype:
        raise UsageError(f"{assigned('dtype', config.dtype)}: only for training; expected float32 "
                         "or float64")
    options = read_options(config)
    kind = find_strategy(options)
    if kind.num_monitored_steps:
        raise UsageError(f"{assigned('delay', config.delay)}: only for training; these products "
                         "are exact")
    config = config.replace(strategy=strategy_setting(kind.name, options))

    # choose the ranks and the device, and open the graph
    ranks = as_comm(comm, config.comm_timeout)
    if reason := kind.unsupported_reason([0], ranks.size):
        raise UsageError(f"{assigned('strategy', kind.name)}: {reason}")
    with opened(graph, ranks) as source:
        same_everywhere(source, config, ranks)
        ranks.use(choose(config.updates_on, ranks))
        ranks.counters.phase = "setup"

        # read the rows of this rank, and build what multiplies by A
        with assign_rows(source, ranks, config, keep=False) as placed:
            slab = read_slab(placed, ranks, config.split_index)
            adjacency = NormalizedAdjacency(placed.source, norm=norm, self_loops=self_loops,
                                            dtype=dtype, slab=slab)
            made = kind.build(adjacency, placed.rank_grid, ranks)
    ranks.counters.phase = "propagation"
    return Propagator(made, ranks, slab, np.dtype(dtype))

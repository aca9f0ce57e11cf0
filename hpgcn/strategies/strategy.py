"""Base class of all strategies to compute A H, and the settings that strategies read.

A new strategy derives from it, or from RowStrategy.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpgcn.config import Config
from hpgcn.errors import ConfigError, UsageError, agreed, assigned
from hpgcn.parallel.layout import balanced, divisors
from hpgcn.setting_words import SettingWords
from hpgcn.strategies.plan import Plan

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from hpgcn.comm.communicator import SerialComm
    from hpgcn.graphs.graph import Graph
    from hpgcn.graphs.graph_source import AdjacencySource
    from hpgcn.graphs.normalization import NormalizedAdjacency
    from hpgcn.kernels import Array
    from hpgcn.runtime.clock import Clock
    from hpgcn.runtime.device import Host
    from hpgcn.strategies.attention import Attention, Heads
    from hpgcn.strategies.messages import RowMessages
    from hpgcn.strategies.plan import Product, RankGrid, Traffic


@dataclass(frozen=True)
class StrategyOptions:
    """Settings that strategies read: a Config, and the words of its setting `strategy`.

    `hpgcn.strategies.read_options` reads these words.
    """

    config: Config
    strategy: str  # without its words
    grid: str = SettingWords.grid
    replication: int = SettingWords.replication
    balance: float = SettingWords.balance
    pipeline_batches: int = SettingWords.pipeline_batches


class Strategy:
    """Base class of strategies: products of A, and of A^T, with dense matrices.

    The dense matrices are distributed.

    Class attributes
    ----------------
    name : str
        Name that --strategy accepts.
    Plan : type
        Subclass of hpgcn.strategies.plan.Plan: messages and memory of all ranks, pure.
    axes : str
        Names of the axes of its grid of ranks, joined by x.
    options : tuple of str
        Fields of StrategyOptions that only this strategy reads.
    word : str
        The option whose value may follow the name and a colon; "" for none.
    accepts_partition, requires_partition : bool
        Ranks own the parts of a partitioned file; a file without parts is partitioned first.
    accepts_nonzero_owners : bool
        Nonzeros are held by the parts that a partition of nonzeros gives them.
    returns_batches : bool
        `forward` and `backward` complete rows of their result batch by batch, and call
        `rows_done`.
    spools : bool
        Rows of a product pass through a Spool if the ranks have one.
    sends_own_rows : bool
        So do own rows: a product reads rows before it waits, and writes sums after its
        last wait.
    spools_matrix : bool
        The matrix lies in the file of the Spool if the ranks have one.
    supports_pruning : bool
        `restrict` can leave out rows that no later layer reads.
    supports_attention : bool
        The strategy computes `attention`.
    supports_edge_features : bool
        The strategy computes `messages`, which read features of edges.
    attention_home : str
        Where a rank has arrays of the heads that it computes of all rows: "device", or "host"
        beside a GPU. "": it attends by rows.
    supports_bf16 : bool
        The strategy multiplies rows stored in 16 bits, and adds partial sums in float32.
    supports_minibatches : bool
        The strategy trains on mini-batches: `submap` makes maps of some rows and
        nonzeros, and Plan is a RowPlan.
    needs_entries : bool
        Plan reads each entry of A; counts of blocks are not enough.
    supports_nodes : tuple of str
        What the strategy computes by a node-aware exchange: "products", "attention".
    num_monitored_steps : int
        Number of first training steps whose losses are compared with exact ones. 0: all
        losses are exact, and equal to those of one rank up to rounding.

    Attributes
    ----------
    layout : hpgcn.parallel.layout.BlockLayout
        Owners of the elements of A H and of G; each has exactly one owner.
    layout_in : hpgcn.parallel.layout.BlockLayout
        Owners of the elements of H and of A^T G: `layout`, unless the map is
        restricted.
    rows_done : function or None
        Set before a product of a map that `returns_batches`, and for one product. It is
        called with the result and ranges (first, last) of this rank's rows as soon as
        these are computed, and may overwrite H then.
    """

    name: str
    Plan: type = Plan
    axes = "P"
    options: tuple[str, ...] = ()
    word = ""
    accepts_partition = requires_partition = accepts_nonzero_owners = False
    method = "best"  # by which a graph without parts is partitioned
    supports_pruning = True
    returns_batches = spools = sends_own_rows = spools_matrix = False
    supports_attention = supports_minibatches = supports_bf16 = False
    supports_edge_features = needs_entries = False
    supports_nodes: tuple[str, ...] = ()
    num_monitored_steps = 0
    attention_home = ""
    replication = 1  # ranks that hold the same rows of A
    rows_done = None

    @classmethod
    def title(cls, options: StrategyOptions) -> str:
        """Return the name that tables and files show for a run with these StrategyOptions."""
        return cls.name

    @classmethod
    def default_shape(cls, ranks: int) -> tuple[int, ...]:
        """Return the default grid for a number of ranks.

        The product of its numbers is `ranks`.
        """
        return (ranks,)

    @classmethod
    def block_grid(cls, shape: tuple[int, ...]) -> tuple[int, int]:
        """Return (row blocks, column blocks) of dense matrices on a grid of ranks."""
        return int(np.prod(shape)), 1

    @classmethod
    def row_offsets(cls, shape: tuple[int, ...], indptr: np.ndarray) -> np.ndarray:
        """Cut the rows into blocks for the ranks; by default of nearly equal nonzeros.

        Parameters
        ----------
        indptr : (n + 1,) integers
            Row pointers of A + I.

        Returns
        -------
        (B + 1,) int64
        """
        return balanced(indptr, cls.block_grid(shape)[0])

    @classmethod
    def choose_shape(cls, options: StrategyOptions, ranks: int) -> tuple[int, ...]:
        """Return the grid of ranks: from StrategyOptions, or `default_shape`.

        Raises
        ------
        ConfigError, collective
            The grid does not fit the number of ranks.
        """
        if options.grid:
            try:
                return cls.check_shape(ranks, grid_axes(options.grid))
            except UsageError as error:
                given = assigned("strategy", f"{cls.name}:{options.grid}")
                raise agreed(ConfigError(f"{given}: {error}")) from None
        return cls.default_shape(ranks)

    @classmethod
    def check_shape(cls, ranks: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Check that a grid fits the strategy and the ranks; return a tuple of int.

        Raises
        ------
        UsageError
            Wrong number of axes, an axis below 1, or a product that is not P.
        """
        text = "x".join(map(str, shape))
        if len(shape) != len(cls.axes.split("x")):
            raise UsageError(f"grid {text}: strategy {cls.name} takes {cls.axes}")
        if any(int(axis) != axis or axis < 1 for axis in shape):
            raise UsageError(f"grid {text}: every axis must be a whole number of at least 1")
        product = int(np.prod([int(axis) for axis in shape], dtype=object))
        if product != ranks:
            example = "x".join(map(str, cls.default_shape(ranks)))
            raise UsageError(
                f"grid {text} has {product} ranks, but there are {ranks}: expected {cls.axes} with "
                f"product {ranks}, e.g. {example}")
        return tuple(map(int, shape))

    @classmethod
    def mask_slices(cls, shape: tuple[int, ...]) -> int:
        """Return how many ranks divide the columns of a masked product.

        0: each result is a sum over ranks, so a mask spares no part of it.
        """
        return 0

    @classmethod
    def own_options(cls, options: StrategyOptions, device: Host) -> dict:
        """Return the strategy's own settings as a dict, the `options` of its RankGrid."""
        return {}

    @classmethod
    def build(cls, adjacency: NormalizedAdjacency, rank_grid: RankGrid, comm: SerialComm, *,
              width: int = 0) -> Strategy:
        """Read this rank's part of A and return the strategy.

        All ranks call this together.

        Parameters
        ----------
        adjacency : hpgcn.graphs.normalization.NormalizedAdjacency
        rank_grid : hpgcn.strategies.plan.RankGrid
        comm : hpgcn.comm.SerialComm or MpiComm
        width : int
            Widest H to make room for now; wider ones make buffers grow.
        """
        raise NotImplementedError

    def forward(self, H: Array, *, mask: Array | None = None,
                out: Array | None = None) -> Array:
        """Return this rank's block of A H.

        Parameters
        ----------
        H : (m_in, f_j), C order
        mask : (m, ceil(f_j / 8)) uint8, optional
            Bits of the result to keep (S-SpMM), in the order of
            `hpgcn.kernels.pack_mask`.
        out : (m, f_j), optional
            Receives the result, C order; must not be H. It has the dtype of H; if H has
            16 bits, it may be float32, and the result is not rounded.

        Returns
        -------
        (m, f_j)
        """
        raise NotImplementedError

    def backward(self, G: Array, *, mask: Array | None = None,
                 out: Array | None = None) -> Array:
        """Return this rank's block of A^T G, (m_in, f_j), of G (m, f_j); see `forward`."""
        raise NotImplementedError

    def expect(self, H: Array, *, backward: bool = False) -> None:
        """Note that `forward` (`backward`) follows the next product, and multiplies H.

        The next product's `rows_done` completes the rows of H. By default nothing is
        done before the call.
        """

    def replicate_slab(self, slab: Graph) -> Graph:
        """Return `slab` extended to the rows of `layout`.

        `slab` is a Graph of the rows assigned to this rank. By default both have the
        same rows, and `slab` is returned. All ranks call this together.
        """
        return slab

    def map_for_product(self, number: int) -> Strategy:
        """Return the unrestricted map for product `number` with A, from 0.

        Default: self.
        """
        return self

    def training_map(self, *widths: int) -> Strategy:
        """Return the map for one product of a training step.

        It is called once for each product. `widths` are the columns of H, then of G if
        A^T is multiplied as well, over all ranks. Default: self. Another map may keep
        state between steps; it is closed before self.
        """
        return self

    def persistent_arrays(self) -> list:
        """Return the arrays of earlier steps that later steps read, a list.

        Pending messages are waited for. The arrays are on the device. A resumed run
        fills them with their saved content.
        """
        return []

    def resume_at_step(self, steps: int) -> None:
        """Resume after `steps` training steps, once `persistent_arrays` have been filled."""

    @classmethod
    def waits(cls, product: Product) -> int:
        """Return how often a Product waits for rows or sums of other ranks: once or twice."""
        return 1

    def matrix_arrays(self, product: Product) -> list[Array]:
        """Return the arrays that a Product reads after it has waited, if it sends own rows."""
        raise NotImplementedError

    @classmethod
    def unsupported_reason(cls, heads: list[int], ranks: int, edges: bool = False) -> str:
        """Return why the strategy cannot compute a model's products, "" if it can.

        heads : list of int
            Attention heads of each product of a forward pass; 0: no attention.
        edges : bool
            The products sum messages that read edge features.
        """
        if edges and not cls.supports_edge_features:
            return "it reads no edge features"
        return "it computes no attention" if any(heads) and not cls.supports_attention else ""

    def attention(self, heads: Heads) -> Attention:
        """Return the attention.Attention of this map; all ranks call it together.

        heads : hpgcn.strategies.attention.Heads
        """
        raise NotImplementedError

    def messages(self, dtype: DTypeLike) -> RowMessages:
        """Return the messages.RowMessages of this map, for one layer and rows of `dtype`."""
        raise NotImplementedError

    def read_edge_features(self, source: AdjacencySource, dtype: DTypeLike) -> None:
        """Read the features of the entries that this rank stores, as `dtype`.

        The map was built from a NormalizedAdjacency of the AdjacencySource `source` with
        `numbered`; the values of its blocks become rows of these features.
        """
        raise NotImplementedError

    def restrict(self, rows_out: np.ndarray, rows_in: np.ndarray) -> Strategy:
        """Return the map of the submatrix A[rows_out][:, rows_in].

        All ranks call this together. Rows and columns of the submatrix are renumbered
        without gaps and keep their owners. The map shares the buffers of self: only one
        of them may multiply at a time. It is closed before self.

        Parameters
        ----------
        rows_out, rows_in : (n,) bool
            Over all rows in the distributed order, equal on all ranks.
        """
        raise NotImplementedError

    def traffic(self) -> Traffic:
        """Return the Traffic of this map's products; all ranks call this together."""
        raise NotImplementedError

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers for messages and partial results.

        0 for a restricted map.
        """
        return 0

    def reserve(self, width: int) -> None:
        """Allocate the buffers for products of `width` columns."""

    def close(self) -> None:
        """Free the MPI objects."""


def grid_axes(grid: str) -> tuple[int, ...]:
    """Return the axes of a grid written as RxC or RxCxL, a tuple of int."""
    try:
        return tuple(int(axis) for axis in grid.split("x"))
    except ValueError:
        raise UsageError(f"grid {grid}: expected RxC or RxCxL, e.g. 2x2") from None


def product_name(clock: Clock) -> str:
    """Return the name that error messages use for the product being timed by a Clock."""
    return clock.detail or "a product with A"


def most_square(ranks: int) -> tuple[int, int]:
    """Return (R, C) with R C = P and R >= C, as close to each other as possible."""
    small = max(d for d in divisors(ranks) if d * d <= ranks)
    return ranks // small, small



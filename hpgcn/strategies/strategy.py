"""Base class of all ways to compute A H, and the settings that they read.

A new one derives from it, or from RowStrategy.
"""
from dataclasses import dataclass

import numpy as np

from hpgcn.config import Config
from hpgcn.errors import ConfigError, UsageError, agreed, setting
from hpgcn.parallel.layout import balanced, divisors
from hpgcn.strategies.plan import Plan


@dataclass(frozen=True)
class StrategyOptions:
    """Fields and properties of hpgcn.Config, by the same names; `Config.select` makes it."""

    strategy: str
    grid: str
    replication: int
    balance: float
    delay: str
    delay_variant: str
    pipeline_batches: int
    aggregate_on: str
    update_on: str
    updates_on: str
    aggregates_on_host: bool


class Strategy:
    """The linear map A, and its transpose, on distributed dense matrices.

    Class attributes
    ----------------
    name : str
        What --strategy calls it.
    Plan : type
        Subclass of hpgcn.strategies.plan.Plan: what all ranks send and hold, pure.
    axes : str
        Names of the axes of its grid of ranks, with an x between.
    options : tuple of str
        Settings of hpgcn.Config that are its own.
    accepts_partition, requires_partition : bool
        Ranks own the parts of a partitioned file; a file without parts is partitioned first.
    accepts_nonzero_owners : bool
        Nonzeros are held by the parts that a partition of nonzeros gives them.
    updates_in_batches : bool
        `forward` and `backward` take `update`, a function of (first, last). It is called
        for ranges of own rows as soon as they are computed, and may overwrite H then.
    supports_pruning : bool
        It leaves out rows that no later layer reads, by `restrict`.
    supports_attention : bool
        It computes `attention`.
    supports_bf16 : bool
        It takes rows stored in 16 bits, and adds partial sums in float32.
    supports_minibatches : bool
        It trains on mini-batches: it makes maps of some rows and nonzeros by `submap`,
        and its Plan is a RowPlan.
    num_monitored_steps : int
        First training steps whose losses are held against exact ones; 0: all of them
        are exact, and equal to one rank's but for rounding.

    Attributes
    ----------
    layout : hpgcn.parallel.layout.BlockLayout
        Who owns which element of A H and of G; each has exactly one owner.
    layout_in : hpgcn.parallel.layout.BlockLayout
        Who owns which element of H and of A^T G: `layout`, unless the map is
        restricted.
    """

    name: str
    Plan = Plan
    axes = "P"
    options: tuple[str, ...] = ()
    accepts_partition = requires_partition = accepts_nonzero_owners = False
    method = "best"  # by which a graph without parts is partitioned
    supports_pruning = True
    updates_in_batches = False
    supports_attention = supports_minibatches = supports_bf16 = False
    num_monitored_steps = 0
    replication = 1  # ranks that hold the same rows of A

    @classmethod
    def title(cls, options):
        """Return the name of a run by these StrategyOptions in tables and files."""
        return cls.name

    @classmethod
    def default_shape(cls, ranks):
        """Return the grid of P ranks, a tuple of int whose product is P."""
        return (ranks,)

    @classmethod
    def block_grid(cls, shape):
        """Return (row blocks, column blocks) of dense matrices on a grid of ranks."""
        return int(np.prod(shape)), 1

    @classmethod
    def row_offsets(cls, shape, indptr):
        """Cut the stored order of rows into the blocks that ranks own, here by nonzeros.

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
    def choose_shape(cls, options, ranks):
        """Return the grid of ranks: from StrategyOptions, or `default_shape`.

        Raises
        ------
        ConfigError, collective
            It does not fit the number of ranks, or a setting is another strategy's.
        """
        for option in ("grid", "replication"):
            given = getattr(options, option)
            if given and option not in cls.options:
                raise agreed(ConfigError(
                    f"{option} = {given}: does not apply to strategy {options.strategy}"))
        if options.grid:
            try:
                return cls.check_shape(ranks, grid_axes(options.grid, f"grid {options.grid}"))
            except UsageError as error:
                raise agreed(ConfigError(str(error))) from None
        return cls.default_shape(ranks)

    @classmethod
    def check_shape(cls, ranks, shape):
        """Return a grid as a tuple of int.

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
    def mask_slices(cls, shape):
        """Return the ranks of a grid that divide the columns of a masked product.

        0: a result is a sum over ranks, so a mask spares none of its parts.
        """
        return 0

    @classmethod
    def own_options(cls, options, device):
        """Return the options of a RankGrid from the StrategyOptions of a run on a device."""
        return {}

    @classmethod
    def build(cls, adjacency, rank_grid, comm, *, width=0):
        """Read and arrange the local matrix; all ranks call this together.

        Parameters
        ----------
        adjacency : hpgcn.graphs.normalization.NormalizedAdjacency
        rank_grid : hpgcn.strategies.plan.RankGrid
        comm : hpgcn.comm.SerialComm or MpiComm
        width : int
            Widest H to make room for now; wider ones make buffers grow.
        """
        raise NotImplementedError

    def forward(self, H, *, mask=None, out=None):
        """Return this rank's block of A H.

        Parameters
        ----------
        H : (m_in, f_j), C order
        mask : (m, ceil(f_j / 8)) uint8, optional
            Bits of the result to keep (S-SpMM), in the order of
            `hpgcn.kernels.pack_mask`.
        out : (m, f_j), optional
            Receives the result, C order; must not be H. Of H's dtype; where that is of
            16 bits, maybe of float32, and not rounded then.

        Returns
        -------
        (m, f_j)
        """
        raise NotImplementedError

    def backward(self, G, *, mask=None, out=None):
        """Return this rank's block of A^T G, (m_in, f_j), of G (m, f_j); see `forward`."""
        raise NotImplementedError

    def replicate_slab(self, slab):
        """Return a slab, a Graph of the rows that this rank was assigned, on the rows of `layout`.

        All ranks call this together. Default: these are the same.
        """
        return slab

    def map_for_product(self, number):
        """Return the map of all rows of a product with A, numbered from 0; by default this one."""
        return self

    def training_map(self, *widths):
        """Return the map of one product of a training step; called once for each product.

        widths: columns of H, then of G if A^T is multiplied as well; over all ranks.
        Default: itself. Another is closed before this one, and may keep something
        between steps.
        """
        return self

    def persistent_arrays(self):
        """Wait for pending messages; return the arrays of earlier steps that later steps read.

        A list of arrays on the device, into which a run that goes on puts what they
        held.
        """
        return []

    def resume_at_step(self, steps):
        """Resume at a step, once the arrays of `persistent_arrays` were filled."""

    @classmethod
    def unsupported_reason(cls, heads, ranks):
        """Return why it cannot compute products with A of these numbers of heads; "" if it can.

        heads : list of int
            Of each product of a step forward; 0 where it computes no attention.
        """
        return "it computes no attention" if any(heads) and not cls.supports_attention else ""

    def attention(self, heads):
        """Return the attention.Attention of this map; all ranks call it together.

        heads : hpgcn.strategies.attention.Heads
        """
        raise NotImplementedError

    def restrict(self, rows_out, rows_in):
        """Return the map A[rows_out][:, rows_in], with its own plan; all ranks call this together.

        Its rows and columns are numbered anew without gaps, and owned by the ranks that
        own them here. It uses this strategy's buffers: no two products may be under way
        at once, and it is closed first.

        Parameters
        ----------
        rows_out, rows_in : (n,) bool
            Over all rows in the distributed order, equal on all ranks.
        """
        raise NotImplementedError

    def traffic(self):
        """Return the Traffic that the run executes; all ranks call this together."""
        raise NotImplementedError

    @property
    def buffer_bytes(self):
        """Memory of messages and partial results; 0 if restricted: it borrows."""
        return 0

    def reserve(self, width):
        """Make the buffers for products of this width."""

    def close(self):
        """Free the MPI objects."""


def grid_axes(grid, named):
    """Return the axes of a grid written as RxC or RxCxL; `named` begins the text of a
    UsageError.
    """
    try:
        return tuple(int(axis) for axis in grid.split("x"))
    except ValueError:
        raise UsageError(f"{named}: expected RxC or RxCxL, e.g. 2x2") from None


def product_name(clock):
    """Return the name in errors of the product that a Clock measures."""
    return clock.detail or "a product with A"


def check_options(strategy, options):
    """Refuse StrategyOptions that are another strategy's; UsageError."""
    for option in ("balance", "delay", "delay_variant", "aggregate_on", "update_on"):
        given = getattr(options, option)
        if given != getattr(Config, option) and option not in strategy.options:
            raise UsageError(f"{option} = {given}: does not apply to strategy {options.strategy}")
    if options.delay_variant != Config.delay_variant and options.delay == Config.delay:
        raise UsageError(f"delay_variant = {options.delay_variant}: sums are exact, expected "
                         f"{setting('delay', 'R')}")


def most_square(ranks):
    """Return (R, C) with R C = P and R >= C, as close to each other as possible."""
    small = max(d for d in divisors(ranks) if d * d <= ranks)
    return ranks // small, small



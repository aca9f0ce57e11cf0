"""Skip elements of a product with A that dropout sets to 0 (S-SpMM).

Elements are skipped only if that saves time.

A product A (H W) is followed by bias, activation and dropout. Dropout masks are keyed,
so that they can be computed before the product. Elements that dropout sets to 0 need
not be summed.

A kernel skips a unit of the result only if dropout sets all of it to 0. On a CPU a unit
is a whole row. On a GPU it is 8 columns, which are one byte of the mask and the
smallest memory access. (The sparse unit of mixgcn, section 3.2.1, skips single
numbers.) A masked product thus avoids a share of the reads, and costs

- one bit for each number that it reads: 1 / (8 s) of the bytes for numbers of s bytes;
- three passes over the rows of the mask: it is drawn, and read by two kernels.

The backward always uses the mask, because applying it afterwards would cost another
pass.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from hpgcn.model.model_parts import blocks_of

if TYPE_CHECKING:
    from hpgcn.model.model_parts import LayerBlock
    from hpgcn.model.spec import ModelSpec

ROW, SECTOR = 1 << 24, 8  # columns that a kernel on a CPU, and on a GPU, skips together
PASSES = 3  # over the mask


def skipped_share(dropped: float, width: int, together: int) -> float:
    """Return the expected share of a row in units that dropout sets to 0 completely.

    Units are `together` columns of a row of `width`; the last one may be narrower.
    """
    unit = min(together, width)
    whole, rest = divmod(width, unit)
    return (whole * unit * dropped**unit + rest * dropped**rest) / width


def saves(dropped: float, width: int, together: int, itemsize: int, row_entries: float) -> bool:
    """Return whether skipping dropped elements saves more than its cost.

    The cost is reading the mask. `row_entries` is the mean number of entries in a row
    of A.
    """
    share = skipped_share(dropped, width, together)
    return share >= 1 / (8 * itemsize) and share * row_entries >= PASSES


def masked_layers(spec: ModelSpec, setting: str, slices: int, row_entries: float, *,
                  on_gpu: bool = False) -> tuple:
    """Return for each layer whether its product with A skips elements.

    The result is a tuple of bool. Dropout sets the skipped elements to 0.

    Parameters
    ----------
    spec : hpgcn.model.ModelSpec
    setting : str
        `Config.masked_products`.
    slices : int
        Ranks that divide the columns of a product; 0 if a result is a sum over ranks,
        whose parts no mask spares.
    row_entries : float
        Mean number of entries in a row of A.
    on_gpu : bool
        Whether a GPU multiplies by A.
    """
    together = SECTOR if on_gpu else ROW

    def masked(block: LayerBlock) -> bool:
        # dropout acts on the product itself, not on a sum or a norm of it
        elementwise = not block.residual and (block.norm == "none" or block.norm_first)
        if not (block.kind.masks_result and elementwise and not block.ffn and block.dropout):
            return False
        width = -(-block.fan_out // slices)
        return setting == "always" or saves(block.dropout, width, together, spec.row_itemsize,
                                            row_entries)

    if setting == "never" or not slices:
        return (False,) * spec.num_layers
    return tuple(map(masked, blocks_of(spec)))

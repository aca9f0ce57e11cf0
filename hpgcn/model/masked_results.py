"""Skip elements of a product with A that dropout sets to 0 (S-SpMM), if that saves
time.

A (H W) is followed by bias, activation and dropout. The bits of dropout are keyed, so
they are known before the product. Numbers that dropout sets to 0 need no sum.

A kernel skips what it reads together only if no bit of it is kept. On a CPU this is a
whole row of the result. On a GPU it is 8 columns: a byte of the mask, and the least
that memory gives. (The sparse unit of mixgcn, section 3.2.1, skips single numbers.) So
a masked product saves a share of what it reads, and costs

- one bit for each number that it reads: 1 / (8 s) of the bytes for numbers of s bytes;
- three passes over the rows of the mask: it is drawn, and read by two kernels.

The backward needs no rule: there the mask would otherwise be a pass of its own.
"""
from hpgcn.model.model_parts import blocks_of

ROW, SECTOR = 1 << 24, 8  # columns that a kernel of a CPU, and of a GPU, skips together
PASSES = 3  # over the mask


def skipped_share(dropped, width, together):
    """Return the expected share of a row in units that dropout sets to 0 completely.

    Units are `together` columns of a row of `width`; the last one may be narrower.
    """
    unit = min(together, width)
    whole, rest = divmod(width, unit)
    return (whole * unit * dropped**unit + rest * dropped**rest) / width


def saves(dropped, width, together, itemsize, row_entries):
    """Return whether skipping the elements that dropout sets to 0 saves more than the
    mask costs.

    `row_entries` is the mean number of entries in a row of A.
    """
    share = skipped_share(dropped, width, together)
    return share >= 1 / (8 * itemsize) and share * row_entries >= PASSES


def masked_layers(spec, setting, slices, row_entries, *, on_gpu=False):
    """Return for each layer whether its product with A skips elements that dropout sets
    to 0; tuple of bool.

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

    def masked(block):
        elementwise = not block.residual and (block.norm == "none" or block.norm_first)
        if not (block.kind.masks_result and elementwise and not block.ffn and block.dropout):
            return False
        width = -(-block.fan_out // slices)
        return setting == "always" or saves(block.dropout, width, together, spec.row_itemsize,
                                            row_entries)

    if setting == "never" or not slices:
        return (False,) * spec.num_layers
    return tuple(map(masked, blocks_of(spec)))

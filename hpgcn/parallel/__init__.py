"""Who owns what, and how rows travel between owners: layouts, blocks, transfers, levels."""

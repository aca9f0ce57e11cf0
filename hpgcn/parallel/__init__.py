"""Who owns what, and how rows travel between owners: layouts, sparse blocks, transfers, receptive fields."""

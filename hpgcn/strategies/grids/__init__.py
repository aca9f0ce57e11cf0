"""Strategies `2d` and `3d`: products on grids of ranks, in broadcast stages."""

"""Strategies on grids of ranks in broadcast stages."""

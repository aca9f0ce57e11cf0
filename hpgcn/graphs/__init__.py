"""Graphs in memory: validation, normalization, reordering, identity."""

"""Graphs in memory: validation, normalisation, reordering, identity."""

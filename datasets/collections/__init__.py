"""Readers of published collections of graphs, and graphs that need no file."""

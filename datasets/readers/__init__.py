"""Readers of graphs in one file, one per format."""

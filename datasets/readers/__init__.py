"""Readers of graphs in single files, one for each format."""

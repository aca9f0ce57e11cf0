"""Layers, one file each: forward returns its backward."""

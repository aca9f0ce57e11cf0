"""Partitions of rows, and their refinement."""

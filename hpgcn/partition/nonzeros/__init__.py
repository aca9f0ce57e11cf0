"""Partitions of nonzeros, and their refinement."""

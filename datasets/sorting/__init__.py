"""Conversion of edge lists into CSR, in memory or on disk."""

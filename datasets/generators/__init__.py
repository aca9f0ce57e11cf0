"""Generators of synthetic graphs."""

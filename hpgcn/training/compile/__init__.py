"""Compile kernels before the first epoch."""

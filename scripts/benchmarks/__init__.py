"""Benchmarks for developers: hpgcn beside other libraries and the limits of a machine (run.py)."""

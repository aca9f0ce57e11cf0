"""Benchmarks for developers.

Compare hpgcn with other libraries and with the limits of a machine (run.py).
"""

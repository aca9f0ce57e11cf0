"""Answers to `hpgcn plan`: comparisons, choices, dry runs."""

"""The answers of `hpgcn plan`: comparisons, choices and dry runs."""

"""The entries of an adjacency: their features, and their order."""

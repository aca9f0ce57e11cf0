"""Other libraries: their graphs, their tensors, their weights; each is imported when it is used."""

"""Exchange graphs, tensors and weights with other libraries, which are imported only when used."""

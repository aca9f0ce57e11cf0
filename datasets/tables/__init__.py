"""Tables of labels, features and splits beside a graph, and the vertices that their rows are of."""

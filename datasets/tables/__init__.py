"""Tables of labels, features and splits beside a graph, and the vertices of their rows."""

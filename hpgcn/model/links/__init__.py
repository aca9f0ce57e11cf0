"""Scores of pairs of vertices, by the rows of an encoder, and the loss of links."""

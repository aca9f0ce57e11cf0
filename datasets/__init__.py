"""Readers (one per input format), generators, and `convert.read`: any input becomes a Graph.

Imported as hpgcn.datasets. To add a reader: one file, as `formats` says, and a line in
`formats.READERS`; in `formats.STREAMED`, too, if its edges come block by block.
"""

"""Readers (one per input format), generators, and `convert.read`: any input becomes a Graph.

Imported as hpgcn.datasets. To add a reader: write one file, as `formats` says, and add
a line to `convert_options.READERS`. If its edges come block by block, add it to
`formats.STREAMED` as well.
"""

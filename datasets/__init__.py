"""Readers (one per input format), generators, and `convert.read`, which turns any input into a Graph.

Imported as hpgcn.datasets. To add a reader: one file with `read(source, memory) -> Raw`, and a line in
`formats.READERS`; one whose edges come block by block has `stream` too, and a line in `formats.STREAMS`.
"""

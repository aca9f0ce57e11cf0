"""Arrays of files in blocks, for graphs that are larger than memory."""

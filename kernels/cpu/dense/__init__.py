"""Dense products on CPU threads."""

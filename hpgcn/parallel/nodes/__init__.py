"""Exchanges in which each row crosses to a node once."""

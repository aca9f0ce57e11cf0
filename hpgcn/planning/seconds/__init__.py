"""Seconds of a run on a machine, forecast."""

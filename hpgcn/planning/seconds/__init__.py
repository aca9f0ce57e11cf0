"""Forecast the seconds of a run on a machine."""

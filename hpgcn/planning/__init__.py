"""Forecast traffic, memory and seconds of training before it runs."""

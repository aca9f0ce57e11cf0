"""Forecast of training: plans summed over a model's layers, before it runs."""

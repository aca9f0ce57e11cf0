"""Runs: directories, checkpoints, results, prediction."""

"""Runs of training: directories, checkpoints, results and predictions."""

"""Training and inference.

Owners of rows, the training loop, checkpoints and run directories.
"""

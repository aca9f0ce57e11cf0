"""Training and inference.

The room has the owners of rows, the training loop, checkpoints and run directories.
"""

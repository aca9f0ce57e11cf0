"""Training and inference: owners of rows, the training loop, checkpoints and run
directories.
"""

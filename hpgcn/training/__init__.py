"""Training and inference: owners of rows, the loop, checkpoints, run directories."""

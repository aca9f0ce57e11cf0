"""Training and inference: who owns what, the loop, checkpoints, run directories."""

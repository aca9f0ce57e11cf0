"""Set-up of a run on each rank: placement of rows, partition, kernels."""

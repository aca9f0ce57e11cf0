"""Set-up of a run on each rank: owners of rows, partition, kernels."""

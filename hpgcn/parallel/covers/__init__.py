"""Find minimum vertex covers of blocks, and take sums back from ranks beyond a limit."""

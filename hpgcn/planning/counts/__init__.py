"""Traffic and memory of a run, counted."""

"""Count the traffic and memory of a run."""

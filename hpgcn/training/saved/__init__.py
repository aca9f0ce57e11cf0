"""Checkpoints, and the state from which a run resumes."""

"""The training loop: steps, epochs, optimizers, and the state that a run resumes from."""

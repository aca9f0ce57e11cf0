"""Training steps, epochs, optimizers, and the state of the loop."""

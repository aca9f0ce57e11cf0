"""The training loop: steps, epochs, optimizers, and the state from which a run
resumes.
"""

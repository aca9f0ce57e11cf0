"""The layers of the models, one file each; each forward returns its backward function."""

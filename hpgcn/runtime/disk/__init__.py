"""Arrays in files: which of them are in memory, and the folder where they are."""

"""External partitioners, each run in a child process."""

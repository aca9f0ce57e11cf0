"""Arrays whose data are files."""

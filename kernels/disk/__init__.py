"""Arrays whose data are files."""
from contextvars import ContextVar

# the FileArrays (file_arrays.py) of this thread, or None: arrays are in memory
current_files = ContextVar("current_files", default=None)

# whether this thread allocates new arrays in memory although it has FileArrays
in_memory = ContextVar("in_memory", default=False)

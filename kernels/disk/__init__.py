"""Arrays whose data are files."""
from contextvars import ContextVar

# the hpgcn.kernels.disk.file_arrays.FileArrays of this thread; None: arrays are in memory
current_files = ContextVar("current_files", default=None)

# whether this thread allocates new arrays in memory all the same
in_memory = ContextVar("in_memory", default=False)

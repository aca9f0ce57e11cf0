"""Direct reads and writes of files, which bypass the page cache."""
import fcntl
import os
from contextlib import suppress

DIRECT = getattr(os, "O_DIRECT", 0)  # flag of open, Linux only


def use_directly(file):
    """Let reads and writes of an open file bypass the page cache; return whether they do.

    Some file systems have only reads and writes through the page cache.
    """
    with suppress(OSError):
        flags = fcntl.fcntl(file, fcntl.F_GETFL)
        fcntl.fcntl(file, fcntl.F_SETFL, flags | DIRECT)
        return DIRECT > 0
    return False

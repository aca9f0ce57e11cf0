"""Gather rows of a file by direct reads of their pages.

An access to an array in a file would read more pages, which have many other rows if these
are random.
"""
import errno

from hpgcn.kernels.disk import c_library as c
from hpgcn.kernels.disk.c_library import INT, PAGE
from hpgcn.kernels.host.jit import jit

MOST_READ = 1 << 18  # bytes of a read
LONGEST = MOST_READ - 2 * PAGE  # bytes of a row
GAP = 1 << 14  # bytes between two pages: to read them as well takes less time than another read
READS = 16  # reads at a time


@jit()
def gather(descriptor, offset, row_bytes, rows, out):
    """Copy rows of an array in a file, which nothing changes in the meantime.

    Linux first writes what has changed in memory.

    Parameters
    ----------
    descriptor : int
        File for direct reads.
    offset : int
        Where row 0 is.
    row_bytes : int
        At most LONGEST.
    rows : (r,) int64 ndarray
        Numbers of rows. Increasing ones with less than GAP bytes between their pages are
        read at once.
    out : int
        Address of the copy.

    Returns
    -------
    int
        0, or the errno of a failed read.
    """
    buffer = c.mmap(0, MOST_READ, INT(c.ACCESS), INT(c.NO_FILE), INT(-1), 0)
    if buffer == c.FAILED:
        return errno.ENOMEM

    k = failed = 0
    while k < rows.size and not failed:
        # the rows of the next read
        first = (offset + rows[k] * row_bytes) // PAGE * PAGE
        end, last = first, k
        while last < rows.size:
            begin = offset + rows[last] * row_bytes
            stop = (begin + row_bytes + PAGE - 1) // PAGE * PAGE
            if begin < first or begin // PAGE * PAGE > end + GAP or stop - first > MOST_READ:
                break
            end = max(end, stop)
            last += 1

        # the read, and the copies
        done = 0
        while done < end - first and not failed:
            count = c.pread(INT(descriptor), buffer + done, end - first - done, first + done)
            if count < 0:
                failed = c.int_at(c.place_of_errno())
                failed = 0 if failed == errno.EINTR else failed
            elif count == 0:
                failed = errno.EIO
            done += max(count, 0)
        for i in range(k, last):
            c.memcpy(out + i * row_bytes, buffer + offset + rows[i] * row_bytes - first, row_bytes)
        k = last

    c.munmap(buffer, MOST_READ)
    return failed

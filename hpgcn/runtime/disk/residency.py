"""Move arrays of ranks in one process between memory and files, as the ranks take turns.

After each turn of a rank, the pages that it touched are written to their files and
leave the memory. While a rank runs, the pages that the next rank touched at the same
place before are read. Pages that a turn touched are found in the page table. Linux maps
a page at its first touch, and after each turn the mappings are removed.
"""
import ctypes
import mmap
import os
import queue
import threading
import time
from bisect import bisect
from collections import deque
from contextlib import suppress
from typing import NamedTuple

import numpy as np

PAGE = mmap.PAGESIZE
PRESENT = np.uint64(1 << 63)  # bit of an entry of /proc/self/pagemap: the page is mapped
GAP = 64  # pages: nearer ranges of an array are joined
WRITE, WRITE_AND_WAIT = 2, 7  # flags of sync_file_range
CONTEXT = 4  # waits of a rank by which its next turn is recognized
POPULATE_READ = 22  # advice of madvise: map all pages for reading
WINDOW = 128 << 10  # bytes that one call of `readahead` reads at most on most disks
FAILED = ctypes.c_void_p(-1).value  # MAP_FAILED

libc = ctypes.CDLL(None, use_errno=True)
_address, _length, _offset, _int = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long, ctypes.c_int
for _name, _kinds in {
        "mmap": (_address, _length, _int, _int, _int, _offset), "munmap": (_address, _length),
        "madvise": (_address, _length, _int), "readahead": (_int, _offset, _length),
        "sync_file_range": (_int, _offset, _offset, _int)}.items():
    if hasattr(libc, _name):  # the last two are Linux only
        getattr(libc, _name).argtypes = _kinds
libc.mmap.restype = _address


class Range(NamedTuple):
    """Pages of an array of a rank."""

    slot: int  # number of the array in FileArrays
    nbytes: int  # bytes of the array
    first: int  # bytes from its begin
    size: int


class Residency:
    """Moves pages between memory and disk as the ranks of this process take turns.

    The pages of three turns are in memory: the last one is written, one runs, and the
    next one is read.

    Parameters
    ----------
    files : list of hpgcn.kernels.disk.file_arrays.FileArrays
        The arrays of the first ranks. Those of later ranks are in memory.
    ranks : int
        Number of all ranks.

    Attributes
    ----------
    waited : dict
        Seconds that ranks waited for the disk, to "read" and to "write".
    """

    def __init__(self, files, ranks):
        self.files = files
        self.ranks = ranks
        self.waited = {"read": 0.0, "write": 0.0}
        self._events = [[] for _ in range(ranks)]  # (name, begin, end) of what a rank's pages did
        self._touched = {}  # Ranges of the turns of a rank, by rank and its last waits
        self._waits = [deque(maxlen=CONTEXT) for _ in range(ranks)]  # by rank
        self._copied = []  # arrays of messages and sums of this turn, of any rank
        self._pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        self._writer, self._reader = _Worker("write to disk"), _Worker("read from disk")

    def note(self, *arrays):
        """Note that the rank that runs reads or writes arrays of other ranks."""
        self._copied += [(array.ctypes.data, array.nbytes) for array in arrays]

    def switch(self, leaving, entering, place):
        """Exchange pages between the turns of two ranks.

        Parameters
        ----------
        leaving, entering : int
            The rank that has run, and the rank that runs now.
        place : hashable
            For what the first one waits now; it says at which place of an epoch it is.
        """
        # pages of the turn that ends
        out = []
        if leaving < len(self.files):
            mine = self.files[leaving].slots()
            ranges = [each for slot, array in mine.items() for each in self._mapped(slot, array)]
            self._touched[leaving, tuple(self._waits[leaving])] = [
                each for each in ranges
                if mine[each.slot].address not in self.files[leaving].left_out]
            out = self._unmap(ranges, mine)
        out += self._unmap_copied(leaving, entering)
        self._waits[leaving].append(place)

        # the last turn is on disk before the pages of another one are read
        begin = time.perf_counter()
        self.waited["write"] += self._writer.finish()
        self._writer.put(_write_out, out, self._events[leaving])
        self.waited["read"] += self._reader.finish()
        self._events[leaving].append(("wait for disk", begin, time.perf_counter()))

        # pages of the turn after the one that begins now; of two ranks those just written
        following = (entering + 1) % self.ranks
        if following < len(self.files) and following != entering:
            if following == leaving:
                self._reader.put(self._writer.wait_for_all, (), [])
            known = self._touched.get((following, tuple(self._waits[following])), ())
            arrays = self.files[following].slots()
            self._reader.put(_read_in, [
                (arrays[each.slot].descriptor, each.first, each.size) for each in known
                if each.slot in arrays and arrays[each.slot].nbytes == each.nbytes],
                self._events[following])

    def take_events(self, rank):
        """Return the events of a rank since the last call, a list of (name, begin, end)."""
        found, self._events[rank][:] = [*self._events[rank]], []
        return found

    def _mapped(self, slot, array):
        """Yield the Ranges of an array whose pages are mapped to this process."""
        count = -(-array.nbytes // PAGE)
        entries = np.frombuffer(os.pread(self._pages, 8 * count, array.address // PAGE * 8),
                                np.uint64)
        pages = np.flatnonzero(entries & PRESENT)
        if pages.size == 0:
            return
        ends = np.flatnonzero(np.diff(pages) > GAP)
        firsts = pages[np.concatenate(([0], ends + 1))] * PAGE
        lasts = (pages[np.concatenate((ends, [pages.size - 1]))] + 1) * PAGE
        for first, last in zip(firsts.tolist(), lasts.tolist()):
            yield Range(slot, array.nbytes, first, last - first)

    def _unmap(self, ranges, arrays):
        """Remove the mappings of Ranges; return (descriptor, first, size) of each."""
        places = []
        for each in ranges:
            array = arrays[each.slot]
            libc.madvise(array.address + each.first, each.size, mmap.MADV_DONTNEED)
            places.append((array.descriptor, each.first, each.size))
        return places

    def _unmap_copied(self, leaving, entering):
        """Remove the mappings of other ranks' arrays that this turn touched; return their places.

        Those of the rank that runs next stay.
        """
        places = []
        copied, self._copied = sorted(set(self._copied)), []
        for rank, files in enumerate(self.files):
            if rank in (leaving, entering) or not copied:
                continue
            arrays = files.slots()
            for slot, array in arrays.items():
                last = bisect(copied, (array.address + array.nbytes,))
                ranges = []
                for address, size in copied[bisect(copied, (array.address,)):last]:
                    first = (address - array.address) // PAGE * PAGE
                    ranges.append(Range(slot, array.nbytes, first,
                                        address + size - array.address - first))
                places += self._unmap(ranges, arrays)
        return places

    def close(self):
        """Wait for the disk."""
        for worker in (self._writer, self._reader):
            worker.put(None, (), [])
            worker.join()
        os.close(self._pages)


class _Worker(threading.Thread):
    """A thread that moves the pages of one turn after the other."""

    def __init__(self, name):
        super().__init__(name=name, daemon=True)
        self._jobs = queue.Queue()
        self.start()

    def put(self, move, places, events):
        """Queue a call of `move(places)`, which adds to the list `events`."""
        self._jobs.put((move, places, events))

    def wait_for_all(self, _):
        """Wait until all calls have returned, in a call of another worker."""
        self._jobs.join()

    def finish(self):
        """Wait until all calls have returned; return the seconds."""
        begin = time.perf_counter()
        self._jobs.join()
        return time.perf_counter() - begin

    def run(self):
        while True:
            move, places, events = self._jobs.get()
            if move is None:
                self._jobs.task_done()  # the other worker may still wait for all
                return
            begin = time.perf_counter()
            move(places)
            if places:
                events.append((self.name, begin, time.perf_counter()))
            self._jobs.task_done()


# An array may end while its pages are moved. Then a call fails, or moves pages of another
# file, which costs time only.

def _write_out(places):
    """Write pages, all at once, then let the system take their memory."""
    for flags in (WRITE, WRITE_AND_WAIT):
        for descriptor, first, size in places:
            libc.sync_file_range(descriptor, first, size, flags)
    for descriptor, first, size in places:
        with suppress(OSError):
            os.posix_fadvise(descriptor, first, size, os.POSIX_FADV_DONTNEED)


def _read_in(places):
    """Read pages by other mappings than those of the arrays, which show the touched pages.

    Linux then reads any length, in large pages; `readahead` stops at the window of the
    disk, and reads small ones.
    """
    for descriptor, first, size in places:
        pages = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, first)
        if pages == FAILED:
            continue
        if libc.madvise(pages, size, POPULATE_READ):  # before Linux 5.14
            for begin in range(first, first + size, WINDOW):
                libc.readahead(descriptor, begin, WINDOW)
        libc.munmap(pages, size)

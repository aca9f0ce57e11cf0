"""The CPU as the device of a benchmark, with the same methods as `benchmarks.gpu.Gpu`."""

import numpy as np

from benchmarks import peers
from hpgcn.bench.host import BenchHost, copy_array
from hpgcn.kernels.cpu.chunks import evenly


class Processors(BenchHost):
    """The processors that this process may use; its arrays are NumPy's."""

    xp = np

    def need(self, size, purpose, gpu_size=0):
        """Raise UsageError if `size` bytes exceed the memory.

        `gpu_size` only matters on a GPU.
        """
        super().need(size, purpose)

    def allocates(self, size):
        """Return whether stores to an array first read its cache lines.

        The array has `size` bytes.
        """
        return size > self.cache_bytes

    def product_peers(self, A, threads, absent):
        """Return functions of other libraries that multiply by A."""
        return peers.products_on_cpu(A, threads, absent)

    def put(self, array):
        return array

    def get(self, array):
        """Return an array of NumPy or torch as a NumPy array."""
        return np.asarray(array)

    def copy(self, target, source):
        """Copy a contiguous array to another on all threads; return the target."""
        copy_array(target.size, target.reshape(-1), source.reshape(-1), evenly(target.size))
        return target

    def release(self):
        """Do nothing, because memory is freed together with its arrays."""

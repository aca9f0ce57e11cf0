"""Compiled kernels in a cache that many processes fill at once."""
import multiprocessing

import numpy as np
from numba.core.caching import IndexDataCacheFile

from hpgcn.kernels.jit import jit, save_one_by_one


def save(folder, number, start):
    cache = IndexDataCacheFile(str(folder), "kernel", 0)
    save_one_by_one(cache)
    start.wait()
    cache.save(number, f"code {number}")


def test_no_process_takes_the_number_of_another(tmp_path):
    context = multiprocessing.get_context("fork")
    for turn in range(5):
        folder = tmp_path / str(turn)
        folder.mkdir()
        start = context.Barrier(8)
        processes = [context.Process(target=save, args=(folder, number, start))
                     for number in range(8)]
        for each in processes:
            each.start()
        for each in processes:
            each.join()
            assert each.exitcode == 0
        cache = IndexDataCacheFile(str(folder), "kernel", 0)
        assert [cache.load(number) for number in range(8)] == [f"code {number}"
                                                                for number in range(8)]


def test_kernels_are_saved_so():
    @jit()
    def twice(x):
        return 2 * x

    assert twice._cache._cache_file.save.__name__ == "save_alone"
    assert twice(np.float64(2)) == 4

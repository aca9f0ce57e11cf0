"""Vector code for CPUs with narrower registers, and the choices made before code is emitted."""
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hpgcn.kernels.cpu.emit import emitter, row_product
from hpgcn.kernels.cpu.emit.row_passes import aligned_rows, is_packed, pass_width
from hpgcn.kernels.cpu.tuning import last_level_cache

HERE = Path(__file__).parent
OLDER = {"AVX2": ("haswell", "+avx,+avx2,+fma"), "128 bits": ("x86-64", "")}


@pytest.mark.long
@pytest.mark.parametrize("name", [  # all other tests run on the registers of this CPU
    name for name, size in (("AVX2", 32), ("128 bits", 16)) if size < emitter.vector_bytes()])
def test_older_cpus_give_the_same_answers(name, tmp_path):
    cpu, features = OLDER[name]
    environment = {**os.environ, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features,
                   "NUMBA_CACHE_DIR": str(tmp_path)}
    chosen = ("(test_options and rc) or (test_widths and float64) "
              "or (test_random and 33 and float64) or (past_the_cache and 36) or summed_once "
              "or (narrow_ones and 72) or (test_long_rows and float64) "
              "or test_bits_that_are_kept")
    files = [HERE / f"test_{each}.py" for each in ("spmm", "gather", "blocks", "matmul")]
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider")
    done = subprocess.run(
        [*pytest_, *files, "-k", chosen], env=environment, capture_output=True, text=True,
        timeout=600, check=False, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


@pytest.mark.parametrize("name, features, expected", [
    ("haswell", "", 32), ("x86-64", "", 16), ("x86-64", "+avx,+avx2", 32), ("znver4", "", 64),
    ("x86-64", "+avx512f", 64)])
def test_vector_length_follows_the_cpu(name, features, expected, monkeypatch):
    monkeypatch.setattr(emitter.config, "CPU_NAME", name)
    monkeypatch.setattr(emitter.config, "CPU_FEATURES", features)
    assert emitter.vector_bytes.__wrapped__() == expected


@pytest.mark.parametrize("itemsize", [4, 8])
def test_shapes_cover_the_width(itemsize):
    for width in range(1, row_product.max_width(itemsize) + 1):
        for wide in (False, True):
            shape = row_product.shape_of(width, width, itemsize, wide=wide)
            assert (shape.vectors - 1) * shape.lanes < width <= shape.vectors * shape.lanes
            assert (shape.sets == 1 or shape.vectors * shape.sets <= 16) and not shape.tail
            assert shape.masked == (width % shape.lanes > 0)
            assert shape.sets == row_product.sets_of(width, itemsize)


def test_passes_cover_the_width_and_start_at_whole_bytes_of_a_mask():
    for width in (1, 7, 64, 100, 256, 257, 602, 1433):
        for n, nnz in ((1000, 10_000), (65_536, 17_000_000), (1 << 20, 27_000_000)):
            step = pass_width(width, n, nnz, 4, 4)
            assert 1 <= step <= row_product.max_width(4)
            assert step == width or step % 16 == 0


def test_copies_are_made_only_where_rows_are_read_often_from_the_cache():
    narrow = np.empty((1000, 7), np.float32)
    assert is_packed(narrow, 7, 100_000, 1000) and not is_packed(narrow, 7, 2000, 1000)
    tall = np.empty((last_level_cache() // 64 + 1, 16), np.float32)
    assert not is_packed(tall, 16, 100 * tall.shape[0], tall.shape[0])
    assert is_packed(tall[:, :9], 9, 100 * tall.shape[0], 1000)


@pytest.mark.parametrize("columns, row_bytes", [(7, 32), (8, 32), (9, 64), (16, 64), (41, 192)])
def test_aligned_rows(columns, row_bytes):
    rows = aligned_rows(100, columns, np.dtype(np.float32))
    assert rows.shape == (100, row_bytes // 4) and rows.ctypes.data % 64 == 0

"""Memory that stands for arrays in files while a turn changes them."""
import os

import numpy as np
import pytest
from arrays import assert_all, assert_none

from hpgcn.kernels.disk.file_arrays import FileArrays
from hpgcn.kernels.disk.file_table import row_of
from hpgcn.runtime.disk import private_memory
from hpgcn.runtime.disk.mapped_pages import PAGE, pages_of, put_out
from hpgcn.runtime.disk.private_memory import make_private
from hpgcn.runtime.disk.scratch_folder import disk_bytes

EACH = PAGE // 8  # elements of a page


@pytest.fixture
def array(tmp_path):
    """Return the 32 pages of an array in a file, after all of them have left memory."""
    with FileArrays(tmp_path, PAGE).use():
        made = np.arange(32 * EACH)
    put_out([pages_of(made)])
    return made


def file_of(array):
    """Return the contents of the file of an array."""
    return np.frombuffer(os.pread(int(row_of(array)[2]), array.nbytes, 0), array.dtype)


@pytest.mark.parametrize("direct", [True, False])
def test_changes_stay_in_memory_until_they_are_written(array, direct, monkeypatch):
    """The first pages are read, the next ones are zero, and those after them are in the file."""
    if not direct:  # as on file systems without direct reads
        monkeypatch.setattr(private_memory, "use_directly", lambda file: False)
    private = make_private(array, 8 * (2 * EACH - 5), 8 * 4 * EACH)
    assert array[:2 * EACH].tolist() == [*range(2 * EACH)]
    assert_none(array[2 * EACH:4 * EACH])
    array[:4 * EACH] = -1
    array[4 * EACH] = -2
    assert file_of(array)[:4 * EACH].tolist() == [*range(4 * EACH)]
    assert file_of(array)[4 * EACH] == -2

    # what is not stored keeps the contents of the file
    private.write(8 * 3 * EACH)
    array[0] = -3
    assert file_of(array)[:4 * EACH].tolist() == [-3] + [-1] * (3 * EACH - 1) + [
        *range(3 * EACH, 4 * EACH)]
    assert_all(array == file_of(array))


@pytest.mark.parametrize("written", [1, 8 * (EACH + 1), 8 * (32 * EACH - 1)])
def test_a_page_that_is_not_written_as_a_whole_keeps_its_contents(array, written):
    private = make_private(array, 0, written)
    array[:-(-written // 8)] = 0
    private.write(written)
    assert_all(array[-(-written // 8):] == np.arange(-(-written // 8), array.size))
    assert_none(array[:written // 8])


def test_linux_writes_what_is_stored_alone(array):
    """Changed pages of a mapped file would be written whenever the system likes."""
    private = make_private(array, 0, array.nbytes)
    before = disk_bytes()[1]
    for value in range(5):
        array[:] = value
        os.fsync(int(row_of(array)[2]))
    assert disk_bytes()[1] == before
    private.write(16 * PAGE)
    os.fsync(int(row_of(array)[2]))
    if disk_bytes()[1] == before:
        pytest.skip("files of this folder are in memory")
    assert disk_bytes()[1] == before + 16 * PAGE


def test_arrays_without_files_have_no_private_memory(array):
    assert make_private(np.ones(9), 8, 8) is None
    assert make_private(array[1:], 8, 8) is None
    assert make_private(array, 8, 0) is None


def test_memory_outlives_the_array(array):
    """The file stays until the changes are written."""
    private = make_private(array, 0, array.nbytes)
    array[:] = 4
    part = array[3:7]
    del array
    private.write(part.nbytes)
    assert part.tolist() == [4] * 4


def test_a_closed_file_is_an_error(array):
    private = make_private(array, 0, array.nbytes)
    private.descriptor = -1
    with pytest.raises(OSError):
        private.write(PAGE)

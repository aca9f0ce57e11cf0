"""Kernels that assemble the matrix of a rank: missing loops, scaled rows, blocks of columns."""
import numpy as np
import pytest
import scipy.sparse as sp

from hpgcn.kernels import entries
from hpgcn.kernels.host.threads import threshold


def test_table():
    # rows 1 and 2 of a matrix with columns 0 and 2, and column 2; column 3 is a ghost
    indptr, indices = np.array([0, 2, 4]), np.array([0, 2, 2, 3], np.int32)
    added = entries.missing_loops(indptr, indices, 1)
    assert added.tolist() == [True, False]
    number = np.array([2, 0, 1, 3], np.int32)
    scales = np.array([1.0, 10.0]), np.array([1.0, 2.0, 3.0, 4.0])
    pointers, columns, values = entries.scaled_rows(
        indptr, indices, None, 1, added, scales, number, "float32")
    assert pointers.tolist() == [0, 3, 5]
    assert columns.tolist() == [2, 0, 1, 1, 3]
    assert values.tolist() == [3, 1, 2, 20, 40]
    blocks = entries.split_columns(pointers, columns, values, np.array([0, 2, 3, 4]))
    assert [[each.tolist() for each in block] for block in blocks] == [
        [[0, 2, 3], [0, 1, 1], [1, 2, 20]], [[0, 1, 1], [0], [3]], [[0, 0, 1], [0], [40]]]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("work", [0, np.inf])
def test_random(weighted, work):
    n = 300
    A = sp.random_array((n, n), density=0.05, rng=np.random.default_rng(1), format="csr",
                        dtype=np.float32)
    A.sort_indices()
    data = A.data if weighted else None
    values = A.data if weighted else np.ones_like(A.data)
    expected = sp.csr_array((values, A.indices, A.indptr), A.shape).toarray()
    missing = np.isin(np.arange(n), np.flatnonzero(A.diagonal()), invert=True)
    row, column = np.random.default_rng(2).random((2, n))
    expected += np.diag(missing)
    expected = (expected * np.multiply.outer(row, column)).astype(np.float32)
    indptr = A.indptr.astype(np.int64)
    with threshold(work):
        added = entries.missing_loops(indptr, A.indices, 0)
        np.testing.assert_array_equal(added, missing)
        rows = entries.scaled_rows(indptr, A.indices, data, 0, added, (row, column),
                                    np.empty(0, np.int32), "float32")
        blocks = entries.split_columns(*rows, np.array([0, 120, 120, n]))
    whole = sp.csr_array((rows[2], rows[1], rows[0]), A.shape)
    assert whole.has_sorted_indices
    np.testing.assert_allclose(whole.toarray(), expected, rtol=1e-6)
    widths = 120, 0, 180
    joined = [sp.csr_array((data, columns, pointers), (n, width)).toarray()
              for width, (pointers, columns, data) in zip(widths, blocks)]
    np.testing.assert_array_equal(np.hstack(joined), whole.toarray())


def test_no_rows_and_no_entries():
    for indptr in (np.zeros(1, np.int64), np.zeros(4, np.int64)):
        m = indptr.size - 1
        indices = np.empty(0, np.int32)
        added = entries.missing_loops(indptr, indices, 0)
        rows = entries.scaled_rows(indptr, indices, None, 0, added, (np.ones(m), np.ones(m)),
                                    indices, "float32")
        assert rows[1].tolist() == list(range(m))
        assert len(entries.split_columns(*rows, np.array([0, m]))) == 1

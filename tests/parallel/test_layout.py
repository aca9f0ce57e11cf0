"""Owners of rows and columns, restricted rows, and the stages of products on grids."""
from itertools import pairwise
from math import gcd

import numpy as np
import pytest
from arrays import assert_all

from hpgcn.parallel.layout import BlockLayout, balanced, split, stages


@pytest.mark.parametrize("length, parts, expected", [
    (7, 3, [0, 3, 5, 7]), (6, 3, [0, 2, 4, 6]), (2, 4, [0, 1, 2, 2, 2]), (0, 2, [0, 0, 0]),
    (5, 1, [0, 5])])
def test_split(length, parts, expected):
    found = split(length, parts)
    assert found.tolist() == expected and found.dtype == np.int64


@pytest.mark.parametrize("counts, parts, expected", [
    ([2, 2, 2, 2], 2, [0, 2, 4]),
    ([1, 1, 1, 9], 2, [0, 3, 4]),  # a heavy row at the end
    ([9, 1, 1, 1], 3, [0, 0, 1, 4]),  # the middle of the heavy row lies in the second third
    ([0, 0, 0], 2, [0, 2, 3]),  # without nonzeros rows are divided evenly
    ([5], 3, [0, 0, 1, 1]),
    ([], 2, [0, 0, 0])])
def test_balanced(counts, parts, expected):
    found = balanced(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]), parts)
    assert found.tolist() == expected and found.dtype == np.int64


@pytest.mark.parametrize("parts", [1, 2, 7, 64])
def test_balanced_blocks_differ_by_a_row_at_most(parts):
    counts = np.random.default_rng(0).integers(0, 40, 5000)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    nonzeros = np.diff(indptr[balanced(indptr, parts)])
    assert abs(nonzeros - indptr[-1] / parts).max() <= counts.max()
    assert nonzeros.sum() == indptr[-1]


def test_balanced_cuts_are_nested():
    indptr = np.concatenate([[0], np.cumsum(np.random.default_rng(1).integers(1, 40, 3000))])
    assert set(balanced(indptr, 4).tolist()) <= set(balanced(indptr, 8).tolist())


@pytest.mark.parametrize("offsets, columns", [
    ([0, 3, 3, 8], 1), ([0, 8], 3), ([0, 2, 4, 8], 2), ([0, 0, 8], 5), ([0, 0], 4)])
@pytest.mark.parametrize("width", [1, 2, 7])
def test_every_element_has_one_owner(offsets, columns, width):
    offsets = np.array(offsets)
    owners = np.zeros((offsets[-1], width), np.int64)
    size = (offsets.size - 1) * columns
    for rank in range(size):
        one = BlockLayout(offsets, columns, rank)
        assert (one.size, one.block * columns + one.column) == (size, rank)
        owners[one.rows.start:one.rows.stop, one.columns_of(width)] += 1
        together = [BlockLayout(offsets, columns, other) for other in range(size)]
        assert one.row_ranks.tolist() == [other.rank for other in together
                                          if other.block == one.block]
        assert one.column_ranks.tolist() == [other.rank for other in together
                                             if other.column == one.column]
    assert_all(owners == 1)


@pytest.mark.parametrize("rows, pieces, columns", [
    (1, 1, 1), (3, 1, 1), (1, 1, 3), (3, 1, 2), (2, 1, 3), (4, 1, 2), (2, 1, 4), (6, 1, 4),
    (1, 2, 2), (3, 2, 2), (2, 3, 4)])
def test_stages_partition_the_columns(rows, pieces, columns):
    rng = np.random.default_rng(rows * 100 + pieces * 10 + columns)
    offsets = np.concatenate([[0], np.sort(rng.integers(0, 50, rows * pieces - 1)), [50]])
    found = stages(offsets, rows, pieces, columns)
    assert found.row.size == pieces * (rows + columns - gcd(rows, columns))
    assert found.offsets[0] == 0 and found.offsets[-1] == 50
    assert_all(np.diff(found.offsets) >= 0)
    for (lo, hi), row, column, piece in zip(pairwise(found.offsets), found.row, found.column,
                                            found.piece):
        block = row * pieces + piece
        assert offsets[block] <= lo <= hi <= offsets[block + 1]  # H's rows lie in one block
        # A's in one column block
        assert column * rows // columns <= row <= -(-(column + 1) * rows // columns) - 1
    # a layer meets its row blocks and its column blocks in rising order
    for piece in range(pieces):
        mine = found.piece == piece
        assert_all(np.diff(found.row[mine]) >= 0)
        assert_all(np.diff(found.column[mine]) >= 0)
        assert set(found.column[mine]) == set(range(columns))


def test_literal_stages():
    found = stages(np.array([0, 10, 14, 20]), 3, 1, 2)  # one run and a half to each column block
    assert found.offsets.tolist() == [0, 10, 12, 14, 20]
    assert found.row.tolist() == [0, 1, 1, 2] and found.column.tolist() == [0, 0, 1, 1]
    square = stages(np.array([0, 5, 9]), 2, 1, 2)
    assert square.offsets.tolist() == [0, 5, 9]
    assert square.row.tolist() == square.column.tolist() == [0, 1]

"""Blocks of a matrix whose arrays lie in one array of each kind."""
import numpy as np
import scipy.sparse as sp
from arrays import assert_all

from hpgcn.parallel.csr import Csr, pack


def test_packed_blocks_are_equal():
    matrices = [sp.random_array((9, columns), density=0.2, format="csr", rng=columns)
                for columns in (5, 1, 30)]
    blocks = [Csr.of(each.copy()) for each in matrices]
    pack(blocks, blocks[1:])
    for block, matrix in zip(blocks, matrices):
        assert_all(block.to_scipy().toarray() == matrix.toarray())
        assert block.nonempty_rows.tolist() == np.flatnonzero(np.diff(matrix.indptr)).tolist()
    assert blocks[1].nonempty_rows.base is blocks[2].nonempty_rows.base
    before = [block.indptr for block in blocks]
    pack(blocks, blocks[1:])
    assert all(block.indptr is was for block, was in zip(blocks, before))

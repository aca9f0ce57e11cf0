"""Philox gives its published numbers; dropout bits depend on a vertex's id, not on its position."""
import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from arrays import assert_differ, assert_none
from cases import DTYPES

from hpgcn.kernels import cpu, pack_mask, reference, unpack_mask

KEY = {"seed": 2**41 + 12345, "epoch": 7, "layer": 2}
BOTH = pytest.mark.parametrize("kernels", [reference, cpu])
ANSWERS = [  # Random123, kat_vectors, philox4x32-10
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0],
     [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
]


@BOTH
@pytest.mark.parametrize("counter, key, expected", ANSWERS)
def test_known_answers(kernels, counter, key, expected):
    assert kernels.philox(np.array(counter, np.uint32), key).tolist() == expected


@BOTH
def test_first_bits_from_the_definition(kernels):
    # counter and key 0: lanes of 6627e8d5 e169c58d bc57ac4c 9b00dbd8, low half first
    lanes = [0xE8D5, 0x6627, 0xC58D, 0xE169, 0xAC4C, 0xBC57, 0xDBD8, 0x9B00]
    expected = sum((lane >= 0x8000) << q for q, lane in enumerate(lanes))
    bits = kernels.dropout_bits(np.array([0]), 8, seed=0, epoch=0, layer=0, p=0.5)
    assert bits.tolist() == [[expected]]


@pytest.mark.parametrize("width, p", [(1, 0.5), (7, 0.3), (8, 0.0), (8, 0.999), (41, 0.3)])
def test_equal_bits(width, p):
    vertex = np.random.default_rng(0).integers(0, 2**40, 300)
    bits = cpu.dropout_bits(vertex, width, p=p, **KEY)
    np.testing.assert_array_equal(bits, reference.dropout_bits(vertex, width, p=p, **KEY))
    kept = unpack_mask(bits, width)
    assert abs(kept.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / kept.size) + 1e-9
    assert_none(bits[:, -1] >> (width - 8 * (bits.shape[1] - 1)))  # pad bits


@BOTH
def test_bits_follow_the_vertex(kernels):
    vertex = np.arange(50, dtype=np.int64)
    order = np.random.default_rng(1).permutation(50)
    bits = kernels.dropout_bits(vertex, 20, p=0.5, **KEY)
    np.testing.assert_array_equal(kernels.dropout_bits(order, 20, p=0.5, **KEY), bits[order])
    for other in ({"seed": 1}, {"epoch": 8}, {"layer": 3}):
        assert_differ(kernels.dropout_bits(vertex, 20, p=0.5, **{**KEY, **other}), bits)


@DTYPES
def test_sparse_and_dense_dropout_agree(dtype):
    rng = np.random.default_rng(2)
    X = sp.random_array((80, 37), density=0.2, rng=rng, format="csr").astype(dtype)
    indptr = X.indptr.astype(np.int64)
    vertex = rng.permutation(80)
    for kernels in (reference, cpu):
        dense = kernels.dropout(X.toarray(), vertex, p=0.4, **KEY)
        data = kernels.dropout_csr(indptr, X.indices, X.data, vertex, p=0.4, **KEY)
        sparse = sp.csr_array((data, X.indices, X.indptr), X.shape).toarray()
        np.testing.assert_array_equal(sparse, dense)
        kept = dense != 0
        scale = 65536 / (65536 - round(0.4 * 65536))
        np.testing.assert_allclose(dense[kept] / X.toarray()[kept], scale, rtol=1e-6)


@BOTH
def test_bits_of_a_block_of_columns(kernels):
    vertex = np.random.default_rng(3).integers(0, 2**40, 6)
    whole = unpack_mask(reference.dropout_bits(vertex, 64, p=0.5, **KEY), 64)
    for first, width in itertools.product(range(10), range(0, 41, 3)):
        bits = kernels.dropout_bits(vertex, width, p=0.5, first=first, **KEY)
        np.testing.assert_array_equal(bits, pack_mask(whole[:, first:first + width]))


@BOTH
def test_bits_far_to_the_right(kernels):
    # column 8 (2^32 - 1) + 1: the byte number fills its word of the counter
    vertex = np.array([5, 2**40 + 1])
    first = 8 * (2**32 - 1)
    counter = np.array([[5, 2**32 - 1, 7, 2 << 16], [1, 2**32 - 1, 7, 2 << 16 | 1 << 8]])
    lanes = kernels.philox(counter, (KEY["seed"] & 0xFFFFFFFF, KEY["seed"] >> 32))
    expected = [[int(word) >> 16 * half & 0xFFFF >= 0x8000 for word in words for half in (0, 1)]
                for words in lanes]
    bits = kernels.dropout_bits(vertex, 7, p=0.5, first=first + 1, **KEY)
    np.testing.assert_array_equal(unpack_mask(bits, 7), np.array(expected)[:, 1:])


@BOTH
@DTYPES
def test_dropout_of_a_block_of_columns(kernels, dtype):
    rng = np.random.default_rng(4)
    X = sp.random_array((7, 57), density=0.4, rng=rng, format="csr").astype(dtype)
    vertex = rng.permutation(7)
    dense = X.toarray()
    whole = reference.dropout(dense, vertex, p=0.4, **KEY)
    for first, width in itertools.product(range(10), range(0, 41, 5)):
        columns = slice(first, first + width)
        key = {**KEY, "p": 0.4, "first": first}
        result = kernels.dropout(dense[:, columns].copy(), vertex, **key)
        np.testing.assert_array_equal(result, whole[:, columns])
        block = X[:, columns]
        data = kernels.dropout_csr(block.indptr.astype(np.int64), block.indices, block.data,
                                   vertex, **key)
        result = sp.csr_array((data, block.indices, block.indptr), block.shape).toarray()
        np.testing.assert_array_equal(result, whole[:, columns])


@BOTH
@pytest.mark.parametrize("m, width", [(0, 5), (4, 0), (0, 0)])
@pytest.mark.parametrize("first", [0, 3])
def test_dropout_of_nothing(kernels, m, width, first):
    vertex = np.arange(m)
    key = {**KEY, "p": 0.5, "first": first}
    assert kernels.dropout_bits(vertex, width, **key).shape == (m, -(-width // 8))
    assert kernels.dropout(np.empty((m, width)), vertex, **key).shape == (m, width)
    nothing = (np.zeros(m + 1, np.int64), np.empty(0, np.int32), np.empty(0))
    assert kernels.dropout_csr(*nothing, vertex, **key).size == 0

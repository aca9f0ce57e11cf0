"""Random inputs are refused, or read with the same result as by a slow, simple reader."""
import dataclasses
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import slow_readers
from arrays import are_equal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpgcn import Graph, store
from hpgcn.config import Config
from hpgcn.datasets.convert import convert, read
from hpgcn.errors import DataError, UsageError
from hpgcn.partition import read_parts, write_parts

quick = settings(max_examples=25, deadline=None, derandomize=True,
                 suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@st.composite
def triples(draw):
    """Draw arrays (indptr, indices, data) and n of a CSR matrix; some have an invalid number."""
    n = draw(st.integers(1, 6))
    rows = draw(st.lists(st.lists(st.integers(0, n - 1), max_size=5), min_size=n, max_size=n))
    indptr = [0, *np.cumsum([len(row) for row in rows]).tolist()]
    indices = [column for row in rows for column in row]
    data = draw(st.lists(st.sampled_from([1.0, 1.0, 0.0, -2.5, 3.0]), min_size=len(indices),
                         max_size=len(indices)))
    number = st.one_of(st.integers(-2, 12), st.sampled_from([2**31, 2**40, -2**62]))
    for array in draw(st.sampled_from([[], [], [indptr], [indices], [indptr, indices]])):
        if array:
            array[draw(st.integers(0, len(array) - 1))] = draw(number)
    if data and draw(st.integers(0, 9)) == 0:
        data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([np.nan, np.inf]))
    return indptr, indices, data, n


def dense(indptr, indices, data, n):
    """Return the dense matrix of CSR arrays.

    None if they are invalid or a value is infinite or NaN.
    """
    if indptr[0] != 0 or indptr[-1] != len(indices) or any(b < a for a, b in pairwise(indptr)):
        return None
    if any(not 0 <= column < n for column in indices) or not np.isfinite(data).all():
        return None
    rows = [row for row in range(n) for _ in range(indptr[row], indptr[row + 1])]
    matrix = np.zeros((n, n), np.float32)
    for pair, weight in slow_readers.merged(n, zip(rows, indices, data)).weights.items():
        matrix[pair] = weight
    return matrix


@pytest.mark.long
@quick
@given(triple=triples(), index=st.sampled_from([np.int32, np.int64]))
def test_csr_triples(folder, triple, index):
    indptr, indices, data, n = triple
    wanted, path = dense(*triple), folder / "csr.npz"
    A = sp.csr_array((n, n))
    kind = index if all(abs(number) < 2**31 for number in indptr + indices) else np.int64
    A.indptr, A.indices = np.array(indptr, kind), np.array(indices, kind)
    A.data = np.array(data, float)
    np.savez(path, adj_indptr=A.indptr, adj_indices=A.indices, adj_data=A.data, adj_shape=(n, n))
    for made in (lambda: Graph.from_scipy(A), lambda: read(path)[0]):
        if wanted is None:
            with pytest.raises(DataError):
                made()
            continue
        graph = made()
        np.testing.assert_array_equal(graph.adjacency.toarray(), wanted)
        assert graph.indices.size == np.count_nonzero(wanted)
        assert graph.header.directed == (not are_equal(wanted, wanted.T))
    if wanted is not None:
        store.write_graph(folder / "csr.h5", graph, overwrite=True)
        stored = store.load(folder / "csr.h5").read()
        for name in ("indptr", "indices", "data", "degree_row", "degree_column", "degree_loop"):
            np.testing.assert_array_equal(getattr(stored, name), getattr(graph, name))


@quick
@given(part=st.lists(st.one_of(st.integers(-1, 5), st.sampled_from([2**31, -2**63, 2**63 - 1])),
                     max_size=12),
       n=st.integers(1, 12), k=st.integers(-1, 13), same=st.booleans())
def test_part_vectors(folder, part, n, k, same):
    n = len(part) if same and part else n
    valid = 1 <= k <= n and len(part) == n and all(0 <= each < k for each in part)
    np.save(folder / "p.npy", np.array(part, int))
    (folder / "p.txt").write_text("".join(f"{each}\r\n" for each in part))
    for name in ("p.npy", "p.txt"):
        if not valid:
            with pytest.raises(DataError, match=name):
                read_parts(folder / name, n, k)
            continue
        assert read_parts(folder / name, n, k).tolist() == part
        write_parts(folder / name, np.array(part), overwrite=True)
        assert read_parts(folder / name, n).tolist() == part


IDS = st.one_of(st.integers(0, 8), st.sampled_from([1500, 10**15, 2**63 - 1, -1]))
WEIGHTS = st.one_of(st.floats(-1e6, 1e6).map(repr), st.sampled_from(
    ["1", "1.0", "0", "-0.5", "1e-3", "+2.", ".25", "1e38", "3.4e38", "1e309", "nan", "0x1"]))


@st.composite
def edge_lists(draw):
    """Draw the text of a mostly valid edge list, and whether it has weights."""
    separator = draw(st.sampled_from([" ", "\t", "  ", ",", ", ", ";"]))
    weighted, lines = draw(st.booleans()), []
    for u, v in draw(st.lists(st.tuples(IDS, IDS), max_size=8)):
        lines.append(separator.join([str(u), str(v), *([draw(WEIGHTS)] if weighted else [])]))
    extras = st.sampled_from(["", "# a comment", "% another", "   ", "1", "0 0 0 0"])
    for extra in draw(st.lists(extras, max_size=2)):
        lines.insert(draw(st.integers(0, len(lines))), extra)
    end = draw(st.sampled_from(["\n", "\r\n"]))
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return mark + end.join(lines) + draw(st.sampled_from(["", end])), weighted


@pytest.mark.long
@quick
@given(edges=edge_lists(), name=st.sampled_from(["g.txt", "g.csv"]))
def test_edge_lists(folder, edges, name):
    text, weighted = edges
    (folder / name).write_bytes(text.encode())
    try:
        wanted = slow_readers.read_edges(text.encode())
    except slow_readers.InvalidError:
        wanted = None
    for memory in (None, 50_000, 100):  # the last sorts on disk, if its edges and vertices fit
        try:
            kind = "snap" if name == "g.txt" else "csv"
            convert(folder / name, folder / "out.h5", kind, memory=memory, overwrite=True,
                    columns="u,v,w" if weighted else "u,v", header=False)  # no line has counts
        except DataError as error:
            assert wanted is None or (memory == 100 and "vertices: needs" in str(error)), error
            continue
        stored = store.load(folder / "out.h5").read()
        rows = np.repeat(np.arange(stored.num_rows), np.diff(stored.indptr)).tolist()
        weights = [1] * len(rows) if stored.data is None else stored.data.tolist()
        assert stored.num_rows == wanted.num_nodes
        kept = {ends: weight for ends, weight in wanted.weights.items() if weight != 0}
        assert dict(zip(zip(rows, stored.indices.tolist()), weights)) == kept
        assert (None if stored.original_ids is None
                else stored.original_ids.tolist()) == wanted.original_ids


ANY = st.one_of(st.integers(), st.floats(), st.text(), st.booleans(), st.none(),
                st.lists(st.integers(), max_size=2), st.just(10**400), st.just("\udcff"))


@pytest.mark.long
@quick
@given(data=st.data(), entry=st.sampled_from(dataclasses.fields(Config)))
def test_any_value_of_a_setting_is_taken_or_refused(folder, data, entry):
    value = data.draw(st.sampled_from(entry.metadata["choices"] or ["500M"]) | ANY)
    try:
        config = Config(**{entry.name: value})
    except UsageError as error:
        assert len(str(error)) < 400
        return
    (folder / "c.toml").write_bytes(config.to_toml().encode())
    assert Config.from_toml(folder / "c.toml") == config


@pytest.mark.long
@quick
@given(st.one_of(st.text(), st.binary().map(lambda raw: raw.decode("latin1")), st.lists(st.tuples(
    st.sampled_from(["hidden", "lr", "out", "x", "[a]"]), st.text(max_size=8)), max_size=3).map(
    lambda pairs: "\n".join(f"{key} = {value}" for key, value in pairs))))
def test_any_text_is_toml_or_refused(folder, text):
    (folder / "c.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    try:
        Config.from_toml(folder / "c.toml")
    except UsageError as error:
        assert str(error)

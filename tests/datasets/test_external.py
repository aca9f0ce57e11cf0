"""Edge lists sorted on disk give the same file, bit for bit, as those sorted in memory."""
import datetime
import gzip
import os
import resource
import types

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inputs import put

from hpgcn.datasets import convert
from hpgcn.datasets.sorting import external
from hpgcn.datasets.sorting.disk_arrays import Scratch
from hpgcn.errors import DataError, OutputError, StorageError

MOMENT = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(autouse=True)
def frozen(monkeypatch):
    """Freeze the clock, so that files have equal created_utc, and skip fsync."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    clock = types.SimpleNamespace(datetime=types.SimpleNamespace(now=lambda _: MOMENT),
                                  UTC=datetime.UTC)
    monkeypatch.setattr("hpgcn.store.writer.datetime", clock)


def assert_same(folder, content, *rooms, name="g.txt", **options):
    """Convert in memory, and on disk with each memory limit in `rooms`; require equal results.

    Return the file's contents, or the error if the input is refused.
    """
    path = put(folder / name, content)

    def attempt(name):
        (folder / name).mkdir(exist_ok=True)
        out = folder / name / "g.h5"
        try:
            notes = convert.convert(path, out, overwrite=True, **options)
        except DataError as error:
            assert not list((folder / name).glob(".*"))
            return str(error)
        assert os.listdir(folder / name) == ["g.h5"]
        # what reordering needs depends on the memory
        return out.read_bytes(), [note for note in notes if "reordering them needs" not in note]

    whole = attempt("memory")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "EDGE_BYTES", 1 << 60)
        patch.setattr(external, "RUN", 1 << 10)
        patch.setattr("hpgcn.datasets.edges.ids.MERGE", 16)
        patch.setattr("hpgcn.datasets.text.lines.BLOCK", 64)
        for room in rooms or (400,):
            patch.setattr(external, "room", lambda memory, room=room: room)
            assert attempt("disk") == whole
    return whole


def lines(*columns, separator=" "):
    return "".join(separator.join(map(str, row)) + "\n" for row in zip(*columns)).encode()


U, V = np.random.default_rng(0).integers(0, 40, (2, 600)).tolist()
W = [round(x, 3) for x in np.random.default_rng(1).normal(size=len(U)).tolist()]
FAR = [10**15 + 7 * u if u % 3 else u for u in U]
HUB = [3] * 500
SYMMETRIC = [*U, *V], [*V, *U]

TRAPS = {
    "plain": lines(U, V), "one edge": b"0 1\n", "one loop": b"0 0\n",
    "duplicates far apart": lines([*U, *U, *U], [*V, *V, *V]),
    "one edge many times": lines([5] * 900, [7] * 900), "symmetric": lines(*SYMMETRIC),
    "symmetric, weights too": lines(
        *SYMMETRIC, [(u + 1) * (v + 1) / 2 for u, v in zip(*SYMMETRIC)]),
    "symmetric pattern, other weights": lines([0, 1, 2, 0], [1, 0, 0, 2], [2, 2, 3, 4.5]),
    "says undirected, and is not": b"# Undirected graph\n" + lines(U, V),
    "empty rows": lines([0, 900, 900, 5], [3, 3, 1, 900]),
    "declared vertices, most of them isolated":
        b"# hpgcn rmat: vertices 5000, edges 3\n0 1\n4999 1\n17 4998\n",
    "one giant row": lines(HUB, range(500)),
    "one giant row, backwards": lines(HUB, range(499, -1, -1)),
    "one giant column": lines(range(500), HUB), "ids relabeled": lines(FAR, V),
    "ids relabeled, weights": lines(FAR, V, W),
    "ids relabeled, all close": lines([u + 10**9 for u in U], [v + 10**9 for v in V]),
    "ids barely kept": lines([0, 1, 2], [1, 2, 1031]),
    "ids barely relabeled": lines([0, 1, 2], [1, 2, 1032]),
    "largest id": lines([2**63 - 1, 4], [4, 2**63 - 2]),
    "ids past 32 bits in one run only": lines([*U, 2**40, *U], [*V, 2**41, *V]),
    "weights": lines(U, V, W),
    "weights: order of the sum": lines([1, 1, 1, 0] * 200, [2, 2, 2, 1] * 200,
                                       [1e16, 1.0, -1e16, 0.1] * 200),
    "weights: sums of 0": lines([0, 0, 1, 2], [1, 1, 0, 2], [2.5, -2.5, 5, 1]),
    "weights: negative": lines(U, V, [-abs(w) for w in W]),
    "weights: negative loops": lines([0, 0, 1], [0, 1, 1], [-2, -3.5, 4]),
    "weights: 0 dropped, ids stay": lines([0, 9, 1], [1, 1, 0], [1.5, 0, 1]),
    "weights: all 0": b"u v w\n" + lines([0, 9, 1], [1, 1, 0], [0, 0, 0]),
    "weights: all 1": lines([*U, *U], [*V, *V], [1] * 1200),
    "weights: sums are 1": lines([0, 0, 1], [1, 1, 2], [0.5, 0.5, 1]),
    "weights: underflow": lines([0, 1, 1, 2], [1, 0, 1, 2], ["1e-60", "-1e-60", "-1e-60", "1e-46"]),
    "weights: too large": lines([0, 2, 1], [1, 1, 2], [1, "1e300", "-1e300"]),
    "weights: sum too large": lines([0, 2, 2], [1, 1, 1], [1, "-1e308", "-1e308"]),
    "comments, CRLF, byte-order mark":
        b"\xef\xbb\xbf# c\r\n" + lines(U, V).replace(b"\n", b"\r\n% x\r\n\r\n"),
    "no line feed at the end": lines(U, V)[:-1]}
OPTIONS = {
    "none": {}, "symmetrize": {"symmetrize": True}, "strict": {"strict": True},
    "reverse, unweighted": {"reverse": True, "unweighted": True},
    "all": {"symmetrize": True, "strict": True, "reverse": True}}
ALONE = ("symmetrize", "strict")  # also within "all"


@pytest.mark.long
@pytest.mark.parametrize("options", [
    pytest.param(name, marks=[pytest.mark.release] * (name in ALONE)) for name in OPTIONS])
@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("room", [400, 20_000])
def test_same_bits(tmp_path, trap, options, room):
    whole = assert_same(tmp_path, TRAPS[trap], room, **OPTIONS[options])
    if options == "none":
        assert isinstance(whole, str) == ("too large" in trap)


def raised(*columns, factor=1, by=1):
    """Return lines of columns.

    The first two are ids, which are multiplied by `factor` and raised by `by`.
    """
    return lines(*([factor * each + by for each in ids] for ids in columns[:2]), *columns[2:])


@pytest.mark.long
@pytest.mark.parametrize("name, content, options", [
    ("g.csv", b"source,target\n" + lines(U, V, separator=","), {}),
    ("g.csv", b'"u";"v";"w"\n' + lines(U, V, W, separator=" ; "), {}),
    ("g.csv",
     b"id,target,name,source,weight\n" + lines(V, U, ['"a, b"'] * len(U), V, W, separator=","), {}),
    ("g.csv", lines(W, U, FAR, separator=","), {"columns": "w,source,target", "base": 0}),
    ("g.txt.gz", gzip.compress(lines(U, V)), {}),
    ("g.csv.gz", gzip.compress(lines(U, V, W, separator=",")) + gzip.compress(b"7,8,9\n"), {}),
    ("named otherwise", lines(U, V, separator="\t"), {}),
    ("g.txt", b"% sym positive\n" + raised(U, V, W, range(len(U))), {}),
    ("g.txt", b"% asym unweighted\n% 600 40 40\n" + raised(FAR, V), {}),
    ("g.txt", raised(U, V), {}), ("g.txt", raised(U, V), {"base": 1}),
    ("g.txt.gz", gzip.compress(b"40 %d\n" % len(U) + raised(U, V)), {}),
    ("g.txt", b"# Nodes: 40 Edges: 600\n" + raised(U, V, factor=3, by=0), {}),
    ("g.txt", b"# Nodes: 41 Edges: 600\n" + raised(U, V, factor=3, by=0), {}),
    ("g.txt", b"# Nodes: 50 Edges: 600\n" + lines(U, V), {}),
    ("g.txt", b"# Nodes: 40 Edges: 600\n" + lines([1, *U[:30]], [40, 3, *V[:29]]), {}),
    ("g.txt", b"# Nodes: 60 Edges: 600\n" + raised(U, V, factor=3, by=0), {"compact": True}),
    ("g.txt", raised(U, V, factor=3, by=0), {"num_nodes": 500}),
    ("g.txt", raised(U, V), {"num_nodes": 45, "base": 1}),
    ("g.txt", lines(U, V, W), {"bipartite": True}),
    ("g.txt", b"% bip unweighted\n% 600 40 40\n" + raised(U, V), {}),
    ("g.csv", b"who,what\n" + lines(U, V, separator=",n"), {"bipartite": True,
                                                            "columns": "source,target"}),
    ("g.txt", b"0 1 2 3\n# c\n% d\n" + lines(U, V, W, range(600)), {"columns": "u,v,w,-"}),
    ("g.csv", b"u,v\n" + b"#a,#b\n" * 40 + lines(U, V, separator=",%"), {"header": True}),
    ("g.csv", lines(U, V, [""] * len(U), separator=","), {}),
    ("g.txt", lines(U, V, [1e-60, 0.5] * (len(U) // 2)), {}),
    ("g.csv", b"a,b,2\n" * 40 + lines(U, W, V, separator=",n"), {"header": False,
                                                                 "columns": "u,v,-"})])
@pytest.mark.parametrize("flag", ["", "reverse", "strict"])
def test_same_bits_of_any_text(tmp_path, name, content, options, flag):
    said = assert_same(tmp_path, content, name=name, **({flag: True} if flag else {}), **options)
    assert flag == "strict" or not isinstance(said, str)


@pytest.mark.parametrize("content", [
    b"0 1\n" * 50 + b"2 -7\n" + b"0 1\n" * 50 + b"3 x\n", b"0 1\n" * 70 + b"2\n",
    b"0 1 2\n" * 70 + b"2 3 nan\n",
    b"# hpgcn rmat: vertices 4, edges 1\n" + b"0 1\n" * 70 + b"4 1\n",
    b"0 1\n\n# c\n" * 70 + b"1 99999999999999999999\n",
    b"", b"# only\n", b"0 1\n" * 30 + b"1 2 3\n",
    lines(U, V, range(600)), lines(U, V, [10**9 + k % 7 for k in range(600)]), b"0 1 2 3\n" * 70,
    b"% sym positive\n1 2\n" + b"0 1\n" * 70, b"# Undirected graph\n" + lines(U, V, W),
    b"id label\n" + lines(U, V)])
def test_same_refusals(tmp_path, content):
    assert str(tmp_path) in assert_same(tmp_path, content)
    assert not list(tmp_path.glob("*/.hpgcn*"))


def test_strict_names_the_first_repeated_entry(tmp_path):
    content = lines([*range(300), 250, 9], [*range(1, 301), 251, 10])
    for room in (300, 5000, 10**6):
        said = assert_same(tmp_path, content, room, strict=True)
        assert "2 duplicate edges, the first at entry 300: 250 -> 251 (--strict)" in said
    far = lines([*range(0, 3 * 10**6, 10**4), 10**4], [*range(10**4, 3000001, 10**4), 2 * 10**4])
    said = assert_same(tmp_path, far, strict=True, reverse=True)
    assert "the first at entry 300: 20000 -> 10000 (--strict)" in said


@pytest.mark.long
@pytest.mark.parametrize("compress", ["none", "gzip"])
def test_features_labels_split_and_compression(tmp_path, compress):
    options = {"features": tmp_path / "x.npy", "labels": tmp_path / "y.npy",
               "split": "random:50/25/25:3", "row_normalize": True, "compress": compress}
    for trap, n in (("plain", 40), ("weights", 40), ("ids relabeled", len({*FAR, *V}))):
        np.save(tmp_path / "x.npy", np.random.default_rng(2).random((n, 5)))
        np.save(tmp_path / "y.npy", np.arange(n) % 4)
        np.save(tmp_path / "ids.npy", np.unique([*FAR, *V]) if n != 40 else np.arange(40))
        order = {"ids": tmp_path / "ids.npy"}
        assert not isinstance(assert_same(tmp_path, TRAPS[trap], **options, **order), str)
    np.save(tmp_path / "x.npy", np.ones((39, 5)))
    assert "expected 40 rows" in assert_same(tmp_path, TRAPS["plain"], **options)


@pytest.mark.long
@settings(max_examples=40, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), room=st.integers(1, 5000), symmetrize=st.booleans(), reverse=st.booleans(),
       strict=st.booleans())
def test_any_edges(tmp_path, data, room, symmetrize, reverse, strict):
    ids = st.one_of(st.integers(0, 8), st.integers(0, 300), st.integers(0, 2**63 - 1))
    weights = st.one_of(st.integers(-2, 2), st.floats(-1e6, 1e6, allow_nan=False))
    weighted = data.draw(st.booleans())
    edges = data.draw(st.lists(st.tuples(ids, ids, *[weights] * weighted), min_size=1, max_size=80))
    assert_same(tmp_path, lines(*zip(*edges)), room, symmetrize=symmetrize, reverse=reverse,
                strict=strict, columns="u,v,w" if weighted else "u,v",
                compact=data.draw(st.booleans()), bipartite=data.draw(st.booleans()))


@pytest.mark.long
def test_larger_than_its_memory(tmp_path, monkeypatch):
    """400,000 edges are sorted on disk with 8 MiB of memory, else in memory."""
    u, v = np.random.default_rng(3).integers(0, 50_000, (2, 400_000))
    path = put(tmp_path / "g.txt", lines(u, v))
    calls = []
    collect = external.collect
    monkeypatch.setattr(external, "collect", lambda *args, **options: calls.append(1)
                        or collect(*args, **options))
    convert.convert(path, tmp_path / "a.h5")
    assert not calls
    convert.convert(path, tmp_path / "b.h5", memory=8 << 20)
    assert calls
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    too_much = "50000 vertices: needs 1600000 bytes of memory, but the limit is"
    with pytest.raises(DataError, match=too_much):
        convert.convert(path, tmp_path / "c.h5", memory=1 << 20)
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "b.h5", "g.txt"]


def test_refused_before_any_work(tmp_path):
    put(tmp_path / "g.h5", "mine")
    with pytest.raises(OutputError, match="exists already"):
        convert.convert(tmp_path / "absent", tmp_path / "g.h5")
    with pytest.raises(OutputError, match="no folder"):
        convert.convert(tmp_path / "absent", tmp_path / "a" / "g.h5")


@pytest.mark.parametrize("limit", [100, 3000, 9000])
def test_full_disk(tmp_path, monkeypatch, limit):
    path = put(tmp_path / "g.txt", TRAPS["weights"])
    monkeypatch.setattr(convert, "EDGE_BYTES", 1 << 60)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(StorageError, match=r"g\.h5: writing failed: File too large$"):
            convert.convert(path, tmp_path / "g.h5")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == ["g.txt"]


def test_a_spool_that_shrank_is_an_error_of_storage(tmp_path):
    with Scratch(tmp_path / "g.h5") as scratch:
        array = scratch.new_array(np.int64)
        array.append(np.arange(10))
        assert array[2:5].tolist() == [2, 3, 4] and array.shape == (10,) and array[10:].size == 0
        os.truncate(array.path, 40)
        with pytest.raises(StorageError, match=r"ends at byte 40, expected 40 bytes more"):
            array[:10]
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("options", [{}, {"compact": True}], ids=str)
def test_random_features_and_labels(tmp_path, options):
    i = np.arange(80)
    assert_same(tmp_path, lines(3 * (i * 7 % 40), 3 * (i * 11 % 40)), features="random:6:3",
                labels="random:5", split="all", **options)

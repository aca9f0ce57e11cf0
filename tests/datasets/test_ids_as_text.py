"""Edge lists with names as ids: numbered by first appearance, stored, and equal on disk."""
import gzip
import random

import numpy as np
import pytest
from inputs import put, refused

from hpgcn import store
from hpgcn.cli.inspect_files import describe_file
from hpgcn.datasets.convert import convert, read
from hpgcn.errors import UsageError

READ = [  # name, content, names in order, {(row, column): weight}
    ("g.txt", "alice bob\nbob carol\n", ["alice", "bob", "carol"], {(0, 1): 1, (1, 2): 1}),
    ("g.txt", "# a comment\n\nalice bob 2\nbob  alice 3.5\n", ["alice", "bob"],
     {(0, 1): 2, (1, 0): 3.5}),
    ("g.csv", "source,target,weight\nP1,P2,1e1\nP2,P1,2\n", ["P1", "P2"],
     {(1, 0): 10, (0, 1): 2}),
    ("g.csv", 'u,v\n"Smith, J.","O""Neil"\n x , y \n', ["Smith, J.", 'O"Neil', "x", "y"],
     {(0, 1): 1, (2, 3): 1}),
    ("g.tsv", "New York\tSão Paulo\nSão Paulo\t東京\n", ["New York", "São Paulo", "東京"],
     {(0, 1): 1, (1, 2): 1}),
    ("g.txt", "10 P7\nP7 3\nP7 10\n", ["10", "P7", "3"], {(0, 1): 1, (1, 2): 1, (1, 0): 1}),
    ("g.txt", "0a 1\n1 2f\n3e 0a\n", ["0a", "1", "2f", "3e"], {(0, 1): 1, (1, 2): 1, (3, 0): 1}),
    ("g.csv", "# no edge\nu;v\nb;a\nb;a\n", ["b", "a"], {(0, 1): 1}),
    ("g.txt", "# Undirected graph\nx y\ny z\n", ["x", "y", "z"],
     {(0, 1): 1, (1, 0): 1, (1, 2): 1, (2, 1): 1}),
    ("g.txt", "\ufeffx y\r\ny x", ["x", "y"], {(0, 1): 1, (1, 0): 1}),
]


@pytest.mark.parametrize("name, content, names, entries", READ)
def test_what_is_read(tmp_path, name, content, names, entries):
    graph, notes = read(put(tmp_path / name, content))
    assert graph.original_ids.tolist() == names
    assert {(u, v): w for (u, v), w in graph.adjacency.todok().items()} == entries
    assert "ids are names, numbered in order of appearance" in notes


def big(folder, count=3000):
    rng = random.Random(4)
    names = [f"n{k}-{'é' * (k % 5)}" for k in range(500)]
    lines = [f"{rng.choice(names)}\t{rng.choice(names)}\t{rng.randrange(1, 9) / 2}\n"
             for _ in range(count)]
    path = folder / "g.tsv.gz"
    path.write_bytes(gzip.compress("".join(lines).encode()))
    return path, [line.split() for line in lines]


@pytest.mark.parametrize("memory", [None, 400_000])
@pytest.mark.parametrize("options", [{}, {"symmetrize": True}, {"reverse": True}], ids=str)
def test_against_a_reading_by_hand(tmp_path, memory, options):
    """A graph with names as ids equals a simple Python reading.

    This holds also if edges are sorted on disk.
    """
    path, lines = big(tmp_path)
    names = list(dict.fromkeys(name for u, v, _ in lines for name in (u, v)))
    number = {name: k for k, name in enumerate(names)}
    A = np.zeros((len(names), len(names)))
    for u, v, w in lines:
        A[number[u], number[v]] += float(w)
    A = np.maximum(A, A.T) if "symmetrize" in options else A.T if "reverse" in options else A
    convert(path, tmp_path / "g.h5", memory=memory, **options)
    with store.load(tmp_path / "g.h5") as stored:
        graph = stored.read()
    assert graph.original_ids.tolist() == names
    np.testing.assert_array_equal(graph.adjacency.toarray(), A)
    assert "names, which are stored" in describe_file(tmp_path / "g.h5", verify=True)


def test_with_features_and_the_largest_component(tmp_path):
    path = put(tmp_path / "g.txt", "d e\na b\nb c\n")
    np.save(tmp_path / "X.npy", np.arange(5.0)[:, None])
    put(tmp_path / "order.txt", "d\ne\na\nb\nc\n")
    options = {"ids": tmp_path / "order.txt", "header": False}
    graph, _ = read(path, features=tmp_path / "X.npy", largest_component=True, **options)
    assert graph.original_ids.tolist() == ["a", "b", "c"]
    assert graph.features[:, 0].tolist() == [2, 3, 4]
    np.save(tmp_path / "y.npy", np.zeros(4, int))
    refused(r"4 rows without ids, .* names.*--ids FILE", path, labels=tmp_path / "y.npy",
            header=False)


@pytest.mark.parametrize("content, message", [
    ("a b\nc\nb a\n", r"line 2: 1 field\(s\), expected 2"),
    ("a b\nb c\nc d e\n", r"line 3: 3 field\(s\)"),
    ("a b 1\nb c x\n", "line 2: weight is 'x', expected a finite number"),
    ("a b 1\nb c nan\n", "line 2: weight is 'nan'"), ("a b 1\nb c 1_0\n", "line 2: weight"),
    ("a b 1\nb c 1e999\n", "line 2: weight is '1e999'"),
    (b"a b\nb \xff\n", "line 2: not UTF-8"),
    ("a b\nb " + "x" * 1001 + "\n", r"line 2: id is 'x+\.*', expected a number, or a name"),
    ("1 2\n2 3\n3 x\n", "line 3: second id is 'x', expected an integer"),
    ("foo bar\n1 2\n", "which two columns are the ends of an edge"),
    ("u,v\na,b\nc,\n", "line 3: id is ''"),
    ("a b\nb a\n# a b\n",
     r"line 3: 3 field\(s\), expected 2; comments are allowed only above the first edge"),
])
def test_refusals(tmp_path, content, message):
    refused(rf"g\.txt: .*{message}", put(tmp_path / "g.txt", content))


def test_options(tmp_path):
    path = put(tmp_path / "g.txt", "a b\nb c\na b\nc c\n")
    with pytest.raises(UsageError, match=r"--base 1: the ids of .* are names"):
        read(path, base=1)
    refused(r"1 self loops, the first at entry 3: c -> c \(--strict\)", path, strict=True)
    graph, _ = read(put(tmp_path / "g.csv", "who,whom,when\nx,y,1999\ny,x,2000\n"),
                    columns="source,target,-")
    assert graph.original_ids.tolist() == ["x", "y"] and graph.header.all_ones
    refused(r"needs .* bytes", big(tmp_path)[0], memory=30_000)


@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_parquet(tmp_path, kind):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    u, v = (pa.array(names) for names in (["b", "a", "b"], ["a", "ç", "ç"]))
    if kind == "dictionary":
        u, v = u.dictionary_encode(), v.dictionary_encode()
    else:
        u, v = (array.cast(getattr(pa, kind)()) for array in (u, v))
    parquet.write_table(pa.table({"source": u, "target": v, "weight": [1.0, 2.0, 3.0]}),
                        tmp_path / "g.parquet")
    graph, _ = read(tmp_path / "g.parquet")
    assert graph.original_ids.tolist() == ["b", "a", "ç"]
    assert graph.adjacency.toarray().tolist() == [[0, 0, 0], [1, 0, 0], [3, 2, 0]]


SPELLED = [  # the ids of three vertices in a text, and how they are stored
    (["Анна", "Борис", "Вера"], None), (["太郎", "花子", "次郎"], None),
    (["محمد", "علي", "فاطمة"], None), ([f"1234567890123456789{k:02}" for k in range(3)], None),
    (['"An "', '" Bo"', "Cy"], ["An", "Bo", "Cy"])]


@pytest.mark.parametrize("ids, stored", SPELLED)
@pytest.mark.parametrize("name, line", [
    ("g.txt", "{} {}\n"), ("g.csv", "{},{}\n"), ("g.tsv", "{}\t{}\n"), ("g.adjlist", "{} {}\n"),
    ("g.csv", "source,target\n{},{}\n")])
def test_names_of_any_alphabet_and_length(tmp_path, ids, stored, name, line):
    if '"' in ids[0] and name == "g.adjlist":
        pytest.skip("no quotes there")
    header, _, line = line.rpartition("\n{")
    line = "{" * bool(header) + line
    a, b, c = ids
    text = header + "\n" * bool(header) + line.format(a, b) + line.format(b, c) + line.format(c, a)
    table = put(tmp_path / "y.csv", f"id,label\n{c},2\n{a},0\n{b},1\n")
    graph, _ = read(put(tmp_path / name, text), labels=table)
    assert graph.original_ids.tolist() == (stored or ids) and graph.labels.tolist() == [0, 1, 2]


def test_blanks_at_the_ends_of_names_are_left_out_everywhere(tmp_path):
    table = put(tmp_path / "y.csv", "id,label\nBo,1\n An,0\n")
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"source": ["An "], "target": [" Bo"]}), tmp_path / "g.parquet")
    put(tmp_path / "g.json", '{"nodes": [{"id": "An "}, {"id": " Bo"}], "links": []}')
    put(tmp_path / "g.gml", 'graph [ node [ id 0 label "An " ] node [ id 1 label " Bo" ] ]')
    for name in ("g.parquet", "g.json", "g.gml"):
        graph, _ = read(tmp_path / name, labels=table)
        assert graph.original_ids.tolist() == ["An", "Bo"] and graph.labels.tolist() == [0, 1]


def test_text_in_another_encoding_is_named(tmp_path):
    for encoding, ids in (("cp1251", "Анна,Борис\nБорис,Вера\n"),
                          ("shift-jis", "太郎,花子\n花子,次郎\n" * 20)):
        path = put(tmp_path / "g.csv", ids.encode(encoding))
        refused("line 1: not UTF-8 .* iconv -f LATIN1 -t UTF-8 FILE", path)

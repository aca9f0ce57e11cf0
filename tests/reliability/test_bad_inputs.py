"""Invalid edge lists and matrices fail with one line and code 65.

They are in the table of docs/reliability.md.

Case ids begin with the row of the table. Each file is read plain and as gzip, and edge
lists in memory and on disk.
"""
import gzip
from pathlib import Path

import numpy as np
import pytest
from in_process import refused, succeed

from hpgcn import store
from hpgcn.datasets.convert import convert
from hpgcn.errors import UsageError

MTX = b"%%MatrixMarket matrix coordinate pattern general\n"
REAL = MTX.replace(b"pattern", b"real")
DISK = ("--memory", "200")  # less than the edges of any of these files take

MATRICES = [  # row, content, expected message
    ("01-mtx-row-0", MTX + b"3 3 2\n1 2\n0 1\n", r"line 4: row is '0', expected 1\.\.3"),
    ("01-mtx-row-past", MTX + b"3 3 2\n1 2\n4 1\n", r"line 4: row is '4', expected 1\.\.3"),
    ("01-mtx-column-0", MTX + b"3 3 1\n1 0\n", r"line 3: column is '0', expected 1\.\.3"),
    ("01-mtx-column-past", REAL + b"% c\n3 3 1\n1 99999999999 1.5\n",
     r"line 4: column is '99999999999'"),
    ("02-mtx-fewer", MTX + b"3 3 3\n1 2\n2 1\n",
     r"ends after line 4 with 2 entries, but the header"),
    ("02-mtx-more", MTX + b"3 3 1\n1 2\n2 1\n", r"line 4: more entries than the header declares"),
    ("03-mtx-nnz", MTX + b"3 3 4000000000000\n1 2\n", r"line 2: 4000000000000 entries declared,"),
    ("03-mtx-rows", MTX + b"4000000000000 4000000000000 1\n1 2\n", r"line 2: 4000000000000 rows"),
    ("04-mtx-not-square", MTX + b"9223372036854775807 2 1\n1 2\n", r"line 2: .* expected a square"),
    ("04-mtx-square", MTX + b"9223372036854775807 9223372036854775807 1\n1 2\n",
     r"line 2: .* needs \d+ bytes"),
    ("04-mtx-20-digits", MTX + b"99999999999999999999 99999999999999999999 1\n1 2\n",
     r"line 2: '9+"),
    ("05-mtx-nan", REAL + b"3 3 2\n1 2 1\n1 1 nan\n", r"line 4: value is 'nan', expected a finite"),
    ("05-mtx-1e999", REAL + b"3 3 2\n1 2 1\n1 1 1e999\n", r"line 4: .*1e999 is too large"),
    ("05-mtx-1e39", REAL + b"3 3 2\n1 2 1\n1 1 1e39\n", r"weight \(as float32\)"),
    ("06-mtx-empty", b"", r"line 1: no %%MatrixMarket banner"),
    ("06-mtx-mark-alone", b"\xef\xbb\xbf", r"line 1: no %%MatrixMarket banner"),
    ("06-mtx-no-banner", b"3 3\n1 2\n", r"line 1: no %%MatrixMarket banner"),
    ("07-mtx-strict-duplicate", MTX + b"3 3 3\n1 2\n2 1\n1 2\n", r"1 duplicate edges, the first"),
    ("08-mtx-negative", MTX + b"3 3 1\n-1 2\n", r"line 3: row is '-1', expected 1\.\.3"),
    ("09-mtx-float", MTX + b"3 3 1\n1.5 2\n", r"line 3: row is '1\.5', expected an integer"),
    ("09-mtx-ragged", REAL + b"3 3 2\n1 2 1\n1 3\n", r"line 4: 2 field\(s\), expected 3"),
    ("11-mtx-no-vertices", MTX + b"0 0 0\n", r"no vertices")]

EDGES = [
    ("05-weight-nan", b"0 1 1\n2 3 nan\n", r"line 2: weight is 'nan', expected a finite number"),
    ("05-weight-inf", b"0 1 1\n2 3 Inf\n", r"line 2: weight is 'Inf'"),
    ("05-weight-1e999", b"0 1 1\n2 3 -1e999\n", r"line 2: weight -1e999 is too large"),
    ("05-weight-1e39", b"0 1 1.5\n2 3 1e39\n", r"weight \(as float32\) at 1 is inf"),
    ("05-weights-sum-to-inf", b"0 1 1e308\n2 3 1.5\n0 1 1e308\n",
     r"weight .*inf, expected a finite"),
    ("06-empty", b"", r"no edges in 0 lines"), ("06-mark-alone", b"\xef\xbb\xbf", r"no edges"),
    ("06-comments-alone", b"# one\n% two\n\n", r"no edges in 3 lines"),
    ("07-strict-duplicate", b"0 1\n2 3\n0 1\n", r"1 duplicate edges, the first at entry 2: 0 -> 1"),
    ("07-strict-loop", b"0 1\n2 2\n", r"1 self loops, the first at entry 1: 2 -> 2 \(--strict\)"),
    ("07-strict-asymmetric", b"# Undirected graph: x\n0 1\n1 0\n2 3\n", r"is declared undirected,"),
    ("08-negative", b"0 1\n2 -7\n", r"line 2: second id is '-7', expected 0 or more"),
    ("09-float", b"0 1\n\n1.5 2\n", r"line 3: first id is '1\.5', expected an integer"),
    ("09-text", b"0 1\nzero one\n", r"line 2: zero, one: is this line a header, or an edge"),
    ("09-ragged-short", b"0 1\n2\n", r"line 2: 1 field\(s\), expected 2"),
    ("09-ragged-long", b"0 1\n2 3 4\n", r"line 2: more than 2 fields"),
    ("09-nul", b"0 1\n\x002 3\n", r"line 2: first id is '\\x002'"),
    ("09-utf-16", "0 1\n2 3\n".encode("utf-16"), r"is UTF-16 text"),
    ("09-long-line", b"0 1\n" + b"1" * (1 << 21), r"line 2 has more than 1048576 bytes"),
    ("10-past-what-the-file-declares",
     b"# hpgcn rmat: vertices 4, edges 2\n0 1\n4 1000000000000000\n",
     r"line 3: first id is '4', expected 0\.\.3")]


def cases():
    """Yield cases (file name, content, message, options): in memory, on disk, and compressed."""
    for number, (row, content, message) in enumerate(MATRICES + EDGES):
        strict = ("--strict",) if "strict" in row else ()
        if row.partition("-")[2].startswith("mtx"):
            yield pytest.param("g.mtx", content, message, strict, id=row)
            name, packed = "g.mtx.gz", content
        else:
            yield pytest.param("g.txt", content, message, strict, id=f"{row}-memory")
            yield pytest.param("g.txt", content, message, (*DISK, *strict), id=f"{row}-disk")
            name, packed = "g.csv.gz", content.replace(b" ", b",")
            if "utf-16" in row or packed[:1] in b"#\xef":
                name, packed = "g.txt.gz", content
        options = strict if number % 2 or name == "g.mtx.gz" else (*DISK, *strict)
        yield pytest.param(name, gzip.compress(packed), message, options, id=f"{row}-packed")


@pytest.mark.parametrize(("name", "content", "message", "options"), list(cases()))
def test_refused(name, content, message, options):
    Path(name).write_bytes(content)
    line = refused(65, message, "convert", name, "out.h5", *options)
    assert line.startswith(f"hpgcn: {name}")


@pytest.mark.parametrize("options", [(), DISK], ids=["07-memory", "07-disk"])
def test_irregular_edges_are_counted(options):
    Path("g.txt").write_bytes(b"# Undirected graph: x\n0 1\n1 2\n0 1\n2 2\n0 1\n5 5\n")
    said = succeed("convert", "g.txt", "out.h5", *options)
    edges = np.argwhere(store.load("out.h5").adjacency.toarray()).tolist()
    assert edges == [[0, 1], [1, 0], [1, 2], [2, 1], [2, 2], [5, 5]]
    for words in ("6 vertices, 6 edges, undirected",
                  "2 duplicates merged, 2 self loops, 3 isolated vertices",
                  "2 edges added to make the adjacency symmetric"):
        assert words in said
    again = succeed("convert", "g.txt", "out.h5", "--symmetrize", "--overwrite", *options)
    assert again == said


@pytest.mark.parametrize("command, expected", [
    (("convert", "karate"), r"\.h5 or \.hdf5"), (("generate", "grid"), r"\.h5, \.hdf5 or \.txt"),
    (("partition", "k.h5", "-k", 2, "-o"), r"\.h5, \.hdf5, \.npy, \.txt or \.part\.2"),
    (("predict", "run", "-o"), r"\.csv, \.tsv, \.parquet, \.npz, \.h5 or \.hdf5")])
@pytest.mark.parametrize("name", ["out", "out.h5.bak", "out.part.3", "out.TXT"])
def test_an_output_that_does_not_say_what_it_is(command, expected, name):
    refused(2, rf"^hpgcn: {name}: (an output|predictions) must end in {expected}$", *command, name)


@pytest.mark.parametrize("name", ["k.h5", "k.hdf5", "K.H5"])
def test_names_of_outputs(name):
    succeed("convert", "karate", name)
    with pytest.raises(UsageError, match="must end in"):
        convert("karate", "k.txt")

"""Citation sets of LINQS (NAME.content, NAME.cites) compared with a simple Python reading."""
import numpy as np
import pytest
from inputs import put, refused

from hpgcn.datasets.convert import convert, read

CONTENT = "31336\t0\t1\t0\tNeural_Networks\n35\t1\t0\t1\tTheory\n\n1061127\t0\t0\t0\tTheory\n"
CITES = "35\t31336\n1061127\t35\n35\t999\n998\t999\n31336\t31336\n"


def write_set(folder, content=CONTENT, cites=CITES):
    put(folder / "cora.content", content)
    return put(folder / "cora.cites", cites)


def by_hand(content, cites):
    """Return the vertices' rows: in order of numeric ids, or of the file if ids are names."""
    rows = [line.split() for line in content.splitlines() if line]
    if all(row[0].isdigit() for row in rows):
        rows.sort(key=lambda row: int(row[0]))
    place = {row[0]: k for k, row in enumerate(rows)}
    A = np.zeros((len(rows), len(rows)))
    for cited, citing in map(str.split, cites.splitlines()):
        if cited in place and citing in place:
            A[place[cited], place[citing]] = 1
    classes = sorted({row[-1] for row in rows})
    return (A, np.array([row[1:-1] for row in rows], np.float32),
            [classes.index(row[-1]) for row in rows], list(place))


@pytest.mark.parametrize("given", ["cora.cites", "cora.content", ""])
@pytest.mark.parametrize("content, cites", [
    (CONTENT, CITES), (CONTENT.replace("\t", " "), CITES.replace("\t", " ")),
    (CONTENT.replace("31336", "Bradley1"), CITES.replace("31336", "Bradley1"))])
def test_it_is_read_as_by_hand(tmp_path, given, content, cites):
    write_set(tmp_path, content, cites)
    graph, notes = read(tmp_path / given)
    A, X, labels, ids = by_hand(content, cites)
    assert graph.adjacency.toarray().tolist() == A.tolist()
    assert graph.features.toarray().tolist() == X.tolist() and graph.header.sparse_features
    assert graph.labels.tolist() == labels
    assert list(graph.class_names) == ["Neural_Networks", "Theory"]
    assert list(map(str, graph.original_ids.tolist())) == ids
    assert graph.header.name == "cora" and "row target aggregates source" in notes
    assert any(note.startswith("2 lines of cora.cites left out: 2 papers not in cora.content "
                               "(998, 999)") for note in notes)


def test_a_content_needs_its_cites_and_a_list_may_be_called_cites(tmp_path):
    path = write_set(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"cora\.cites: No such file"):
        read(tmp_path / "cora.content")
    assert read(put(tmp_path / "other.cites", "0 1\n"))[0].header.num_edges == 1


def test_a_list_beside_the_content_of_something_else(tmp_path):
    path = put(tmp_path / "web.cites", "0 1\n1 2\n")
    put(tmp_path / "web.content", "<html>two words here</html>\nand more\n")
    graph, notes = read(path)
    assert graph.header.num_edges == 2 and "row u aggregates v" in notes
    assert "web.content is not read: it has no lines of an id, words and a class" in notes
    put(tmp_path / "web.content", "a\t1\t0\tx\nb\t0\t1\ty\n")
    refused("web.cites: no line has two papers of web.content: use --format snap", path)
    assert read(path, "snap")[0].header.num_edges == 2


def test_blanks_at_the_ends_of_papers_are_left_out(tmp_path):
    write_set(tmp_path, "p 1\t1\ta\np2 \t0\tb\n", "p 1 \tp2\n")
    assert read(tmp_path)[0].original_ids.tolist() == ["p 1", "p2"]


@pytest.mark.parametrize("content, cites, message", [
    ("1\t0\ta\n2\t0\t1\ta\n", "", r"content: line 2: 4 field\(s\), expected 3"),
    ("1\n", "", r"content: line 1: 1 field\(s\), expected an id"),
    ("1\t0\ta\n1\t0\ta\n", "", "content: id '1' occurs twice"),
    ("1\tx\ta\n", "", "content: line 1: could not convert"),
    ("1\t1e99\ta\n", "", "content: line 1 at 0 is inf"),
    ("1\tnan\ta\n", "", "content: line 1 at 0 is nan"),
    ("", "", "content: no vertices"), (b"\xff\t0\ta\n", "", "content: line 1: not UTF-8"),
    ("1\t0\ta\n2\t0\t7\n\n3\t0\ta\n", "", "content: last column: line 2: label '7'"),
    (CONTENT, "35\n", r"cites: line 1: 1 field\(s\), expected the cited"),
    (CONTENT, b"35\t\xff\n", "cites: line 1: not UTF-8")])
def test_refused(tmp_path, content, cites, message):
    refused(rf"cora\.{message}", write_set(tmp_path, content, cites))
    with pytest.raises(ValueError, match="needs"):
        read(write_set(tmp_path), memory=100)


def test_names_are_kept_in_the_file(tmp_path):
    convert(write_set(tmp_path), tmp_path / "g.h5")

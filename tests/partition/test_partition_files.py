"""Partition objects, and part vectors in files: valid ones, and errors with the line number."""
import numpy as np
import pytest

from hpgcn.errors import DataError, InputNotFoundError, OutputError
from hpgcn.partition import Partition, read_parts, write_parts


def test_from_parts_literal():
    result = Partition.from_parts([1, 0, 3, 1, 0], 4)
    assert result.perm.tolist() == [1, 4, 0, 3, 2]
    assert result.iperm.tolist() == [2, 0, 4, 3, 1]
    assert result.offsets.tolist() == [0, 2, 4, 4, 5]  # part 2 is empty
    assert result.part.dtype == np.int32
    assert result.perm.dtype == result.offsets.dtype == np.int64
    ordered = Partition.from_parts([1, 0, 3, 1, 0], 4, order=[4, 3, 2, 1, 0])
    assert ordered.perm.tolist() == [4, 1, 3, 0, 2]


@pytest.mark.parametrize("order", [[0, 1, 1], [0, 1], [0, 1, 3], [0, 1, -1], [0.0, 1.0, 2.0]])
def test_order_must_be_a_permutation(order):
    with pytest.raises(DataError, match=r"order of dtype .* must contain each of 0\.\.2"):
        Partition.from_parts([0, 0, 0], 1, order=order)


@pytest.mark.parametrize("name", ["graph.part.4", "parts.npy"])
def test_round_trip(tmp_path, name):
    part = np.array([3, 0, 1, 1, 0], np.int32)
    write_parts(tmp_path / name, part)
    for k in (None, 4, 5):  # 5: with an empty part
        read = read_parts(tmp_path / name, 5, k)
        np.testing.assert_array_equal(read, part)
        assert read.dtype == np.int32
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(OutputError, match=f"{name}: exists"):
        write_parts(tmp_path / name, part)
    write_parts(tmp_path / name, part[::-1], overwrite=True)
    np.testing.assert_array_equal(read_parts(tmp_path / name, 5), part[::-1])


def test_text_is_one_number_a_line(tmp_path):
    write_parts(tmp_path / "p", [2, 0, 1])
    assert (tmp_path / "p").read_bytes() == b"2\n0\n1\n"
    with pytest.raises(OutputError, match="cannot be created"):
        write_parts(tmp_path / "none" / "p", [0])


@pytest.mark.parametrize("text", [b"0\n1\n2", b"0\r\n1\r\n2\r\n", b"\xef\xbb\xbf0\n1\n2\n",
                                  b" 0\n1 \n\t2\n\n", b"\n0\n\n1\n2\n"])
def test_texts_that_are_read(tmp_path, text):
    (tmp_path / "p").write_bytes(text)
    assert read_parts(tmp_path / "p", 3, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [(b"0\n1\n", r"2 lines, expected 3 parts"), (b"\n\n", "0 lines, expected 3 parts"),
     (b"0\n1\n3\n", r"line 3 has part 3, expected 0\.\.2"),
     (b"0\n\n-1\n2\n", r"line 3 has part -1, expected 0\.\.2"),
     (b"0\n1.0\n2\n", r"line 2 is '1\.0', expected one integer"),
     (b"0\nx\n2\n", "line 2 is 'x'"), (b"0\n1 1\n2\n", "line 2 is '1 1'"),
     (b"0 0\n1 1\n2 2\n", "line 1 is '0 0'"), (b"# parts\n0\n1\n", "line 1 is '# parts'"),
     (b"0\n99999999999999999999\n2\n", "line 2 is '99999999999999999999'"),
     (b"0\n4294967296\n2\n", "line 2 has part 4294967296"),
     (b"0\n1_0\n2\n", "line 2 is '1_0'"), (b"0\n\xff\xfe\n2\n", "line 2 is"),
     (b"0\n" + b"y" * 10**5 + b"\n2\n", r"line 2 is 'y+\.\.\.'")])
def test_texts_that_are_refused(tmp_path, text, message):
    (tmp_path / "p").write_bytes(text)
    with pytest.raises(DataError, match=message) as caught:
        read_parts(tmp_path / "p", 3, 3)
    assert str(caught.value).startswith(str(tmp_path / "p"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("array", "message"), [
    (np.array([0, 1]), r"shape \(2,\), expected 3 parts"),
    (np.array([[0, 1, 2]]), r"shape \(1, 3\), expected 3 parts"),
    (np.array([0, 1, 3]), r"vertex 2 has part 3, expected 0\.\.2"),
    (np.array([0, -1, 2]), "vertex 1 has part -1"),
    (np.array([0.0, 1.0, 2.0]), "dtype float64"),
    (np.array([True, False, True]), "dtype bool"),
    (np.array([0, 2**63, 1], np.uint64), "vertex 1 has part 9223372036854775808"),
    (np.array([None, 0, 1]), "not an .npy file of numbers"),
])
def test_arrays_that_are_refused(tmp_path, array, message):
    np.save(tmp_path / "p.npy", array)
    with pytest.raises(DataError, match=message) as caught:
        read_parts(tmp_path / "p.npy", 3, 3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", ">u2"])
def test_arrays_of_any_integers(tmp_path, dtype):
    np.save(tmp_path / "p.npy", np.array([2, 0, 1], dtype))
    assert read_parts(tmp_path / "p.npy", 3).tolist() == [2, 0, 1]


def test_broken_arrays(tmp_path):
    path = tmp_path / "p.npy"
    np.save(path, np.arange(3))
    whole = path.read_bytes()
    huge = whole.replace(b"(3,), ", f"({2**45},), ".encode()).replace(b" " * 12, b"", 1)
    for content in (b"", whole[:5], whole[:60], whole[:-1], b"0\n1\n2\n", huge):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"p\.npy: "):
            read_parts(path, 3)
    np.savez(tmp_path / "p.npz", part=np.arange(3))
    path.write_bytes((tmp_path / "p.npz").read_bytes())
    with pytest.raises(DataError, match="archive"):
        read_parts(path, 3)


def test_more_parts_than_vertices(tmp_path):
    for text, k, message in (("0\n1\n2\n", 4, r"4 parts requested for 3 vertices, expected 1\.\.3"),
                             ("0\n1\n7\n", None, r"line 3 has part 7, expected 0\.\.2")):
        (tmp_path / "p").write_text(text)
        with pytest.raises(DataError, match=message):
            read_parts(tmp_path / "p", 3, k)


def test_no_such_file(tmp_path):
    for name, message in (("p", "p: No such"), ("p.npy", r"p\.npy: No such"), ("", "directory")):
        with pytest.raises(InputNotFoundError, match=message):
            read_parts(tmp_path / name, 3)

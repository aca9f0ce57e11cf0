"""Read damaged input files in one process of bounded memory: each is refused or read correctly.

    python fuzz_worker.py KIND,KIND SEED FIRST COUNT

A case depends on (kind, seed, number) alone. These are printed before it runs. An error, a signal
or SIGALRM after SECONDS that ends the process is the fault of the last case printed. The last line
is JSON: outcomes of each kind.
"""
import gzip
import json
import os
import re
import resource
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import slow_readers
from fuzz_files import FILES, LOOSE, LOOSE_TEXTS, STORED, contents
from in_process import run

from hpgcn.errors import DataError, StorageError

SECONDS = 30  # time limit of one case
MEMORY = 16 << 20  # bytes that an input may take
SMALL = 12_000  # bytes: edge lists are sorted on disk
ROOM = 2 << 30  # bytes of address space beyond what the process has once everything is loaded
TOKENS = [
    b"-", b"+", b".", b"e", b"E5", b" ", b"\t", b",", b";", b"\n", b"\r\n", b"\r", b"#", b"%",
    b"\0", b"nan", b"inf", b"0", b"-1", b"1e39", b"1e-400", b"1e400", b"0x1", b"1_0", b"9" * 19,
    b"9" * 20, b"\x0b", b"\xa0", b"\xff\xfe", b"0.1", b"9223372036854775807",
    b"9223372036854775808", b"1000000000000000", b"4000000000000", b"\xef\xbb\xbf", b"\"",
    b"%%MatrixMarket ", b"# Undirected graph\n", b"# hpgcn vertices 5\n", b"0 0\n", b"\n\n",
    b"5 5 5"]


def mutated(raw, rng, text):
    """Return the bytes `raw` with one to three random changes; most changes keep text readable."""
    data = bytearray(raw)
    for _ in range(1 + int(rng.integers(3)) * int(rng.integers(2))):
        data = reworded(data, rng) if text and rng.random() < 0.7 else damaged(data, rng)
    return bytes(data)


def damaged(data, rng):
    """Change, delete or repeat bytes at a random place of the data."""
    place, kind = int(rng.integers(len(data) + 1)), int(rng.integers(7))
    stop = place + int(rng.integers(1, 200))
    if kind == 0 and data:
        data[place - 1] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        data[place:place + 8] = rng.bytes(min(8, len(data) - place))
    elif kind == 2:
        del data[place:stop]
    elif kind == 3:
        data[place:place] = data[place:stop]
    elif kind == 4 and rng.random() < 0.5:
        del data[place:]
    elif kind == 5:
        data[place:stop] = bytes(len(data[place:stop]))
    else:
        other = int(rng.integers(len(data) + 1))
        data[place:stop] = data[other:other + stop - place]
    return data


def reworded(data, rng):
    """Change digits, words or lines of a text at random; the result may be valid input."""
    kind, place = int(rng.integers(6)), int(rng.integers(len(data) + 1))
    lines = data.split(b"\n")
    one, other = rng.integers(len(lines), size=2)
    if kind == 0:
        lines[one], lines[other] = lines[other], lines[one]
    elif kind == 1:
        lines[one:one] = lines[other:other + 1]
    elif kind == 2:
        lines[one] = lines[one].replace(*[(b" ", b" \t "), (b",", b" , "), (b"\t", b"  "),
                                          (b".", b".0"), (b"-", b"+")][rng.integers(5)])
    elif kind == 3:
        places = [k for k, byte in enumerate(data) if 48 <= byte <= 57] or [0]
        at = places[rng.integers(len(places))]
        data[at:at + 1] = str(rng.integers(10)).encode()
        return data
    elif kind == 4:
        places = [k for k, byte in enumerate(data) if byte in b" \t,\n"] or [0]
        at = places[rng.integers(len(places))]
        data[at:at] = TOKENS[rng.integers(len(TOKENS))]
        return data
    else:
        data[place:place + int(rng.integers(2))] = TOKENS[rng.integers(len(TOKENS))]
        return data
    return bytearray(b"\n").join(lines)


def refused(code, line, path):
    """Check that an error is one line that names the file; return the exit code as text."""
    assert code in (65, 74), f"exit code {code}: {line[-600:]}"
    assert re.fullmatch(r"hpgcn: [^\n]+\n", line), f"no single line: {line[-600:]!r}"
    assert path.name in line, f"does not name the file: {line}"
    assert line[:-1].isprintable(), f"not printable: {line!r}"
    return str(code)


def store_case(kind, raw, path, expected, **_):
    """Check that both readers refuse a damaged HDF5 file, or read the original's arrays."""
    path.write_bytes(raw)
    code, line, _ = run("inspect", path, "--verify")
    outcome = "read" if code == 0 else refused(code, line, path)
    try:
        data = contents(kind, path)
    except (DataError, StorageError) as error:
        assert code, f"inspect --verify let pass: {error}"
        return refused(error.code, f"hpgcn: {error}\n", path)
    np.testing.assert_equal(data, expected)
    return outcome


def text_case(kind, raw, path, rng, **_):
    """Check that a damaged edge list or matrix gives the same result as the slow reader."""
    path.write_bytes(raw)
    reader = slow_readers.read_mtx if kind.startswith("mtx") else slow_readers.read_edges
    memory = SMALL if rng.random() < 0.5 and not kind.startswith("mtx") else MEMORY
    try:
        wanted = reader(raw)
    except slow_readers.InvalidError as error:
        wanted = error
    code, line = converted(path, memory)
    if code:
        outcome = refused(code, line, path)
        large = getattr(wanted, "num_nodes", 0) * 64 > memory or "limit is" in line
        right = isinstance(wanted, slow_readers.InvalidError) or large
        assert right, f"a valid input was refused: {line}"
        return outcome
    assert not isinstance(wanted, slow_readers.InvalidError), f"was read, but: {wanted}"
    attributes, adjacency, arrays = written(path.with_name("out.h5"))
    assert attributes["num_nodes"] == wanted.num_nodes
    assert list(adjacency) == list(wanted.weights)
    assert list(adjacency.values()) == list(wanted.weights.values())
    assert arrays.get("original_ids") == wanted.original_ids
    return "read"


def npz_case(kind, raw, path, expected, **_):
    """Check that a damaged archive is refused, or read like the undamaged one."""
    path.write_bytes(raw)
    code, line = converted(path, MEMORY)
    if code:
        return refused(code, line, path)
    data = written(path.with_name("out.h5"))
    assert data[1:] == expected[1:], "other arrays"
    wanted = {key: value for key, value in expected[0].items()
              if key not in ("created_utc", "source_sha256")}
    assert {key: data[0].get(key) for key in wanted} == wanted, "other attributes"
    return "read"


def converted(path, memory):
    """Convert `path` into out.h5.

    Check that no other file is left. Return exit code and message.
    """
    before = set(os.listdir(path.parent)) - {"out.h5"}
    code, line, _ = run("convert", path, path.with_name("out.h5"), "--overwrite", "--memory",
                        memory)
    left = set(os.listdir(path.parent)) - before
    assert left <= {"out.h5"}, f"left behind: {left}"
    return code, line


def written(path):
    """Read a graph file with h5py only.

    Return attributes, adjacency as a dict, and other arrays.
    """
    with h5py.File(path) as file:
        indptr, indices = file["adjacency/indptr"][()], file["adjacency/indices"][()]
        rows = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
        data = file["adjacency/data"][()].astype(np.float32)
        arrays = {}
        file.visititems(lambda name, item: arrays.update({name: item[()].tolist()})
                        if hasattr(item, "shape")
                        and not name.startswith(("adjacency", "manifest")) else None)
        attributes = {key: value.decode() if isinstance(value, bytes) else value for key,
                      value in file.attrs.items()}
    path.unlink()
    return attributes, dict(zip(zip(rows.tolist(), indices.tolist()), data)), arrays


def loose_case(kind, raw, path, **_):
    """Check that a damaged input without checksums is read, or refused in one line."""
    path.write_bytes(raw)
    before = set(os.listdir(path.parent)) | {"to.h5"}
    code, line, _ = run(*LOOSE[kind].command(path))
    (path.parent / "to.h5").unlink(missing_ok=True)
    left = set(os.listdir(path.parent)) - before
    assert not left, f"left behind: {left}"
    if code and kind == "config-toml":
        assert code in (2, 78), f"exit code {code}: {line[-600:]}"
        assert re.fullmatch(r"hpgcn: [^\n]+\n", line), f"no single line: {line[-600:]!r}"
        return str(code)
    if code == 66 and kind == "meta.yaml":
        assert f"{path} names" in line, line[-600:]
        return "66"
    return refused(code, line, path) if code else "read"


class Kind:
    """A kind of input file, with a valid example, its contents and a check."""

    def __init__(self, name, folder):
        folder.mkdir()
        self.name, loose = name, LOOSE.get(name)
        self.path = folder / (loose.file if loose else f"bad.{name.split('-')[-1]}")
        self.original = (loose.make if loose else FILES[name])(self.path)
        self.path.write_bytes(self.original)
        self.text, self.expected = name in LOOSE_TEXTS, None
        if loose:
            self.case = loose_case
            assert loose_case(name, self.original, self.path) == "read"
        elif name in STORED:
            self.case, self.expected = store_case, contents(name, self.path)
        else:
            self.case = npz_case if name.startswith("npz") else text_case
            self.text = self.case is text_case
            converted(self.path, SMALL)  # everything is compiled and loaded
            assert converted(self.path, MEMORY) == (0, "")
            self.expected = written(self.path.with_name("out.h5"))

    def run(self, seed, number):
        """Damage the valid file as the case `number` requires; return the outcome of reading it."""
        rng = np.random.default_rng([seed, number, *self.name.encode()])
        # damage the unpacked data, or the gzip data
        whole = self.name.endswith("gz") and rng.random() < 0.5
        raw = mutated(gzip.decompress(self.original) if whole else self.original, rng,
                      self.text and (whole or not self.name.endswith("gz")))
        return self.case(self.name, gzip.compress(raw, 1) if whole else raw, self.path, rng=rng,
                         expected=self.expected)


def work(kinds, seed, first, count):
    """Run cases first..first + count - 1 of each kind.

    Return a Counter of outcomes for each kind.
    """
    outcomes = {name: Counter() for name in kinds}
    with tempfile.TemporaryDirectory() as folder:
        made = [Kind(name, Path(folder) / name) for name in kinds]
        resource.setrlimit(resource.RLIMIT_AS, (address_space() + ROOM,) * 2)
        for number in range(first, first + count):
            for kind in made:
                print(kind.name, seed, number, flush=True)
                signal.alarm(SECONDS)
                outcomes[kind.name][kind.run(seed, number)] += 1
                signal.alarm(0)
    return outcomes


def address_space():
    """Return the size of this process's address space in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    outcomes = work(sys.argv[1].split(","), *map(int, sys.argv[2:]))
    print(json.dumps(outcomes))

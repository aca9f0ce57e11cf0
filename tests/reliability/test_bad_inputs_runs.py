"""Invalid inputs and settings of docs/reliability.md that need a child process or a run."""
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from arrays import assert_all
from commands import clean_environment
from in_process import refused, succeed
from resuming import lines

from hpgcn import store
from hpgcn.config import read_settings
from hpgcn.graphs import validation

REAL = b"%%MatrixMarket matrix coordinate real general\n"
CHILD = """
import contextlib, io, json, resource, sys
from pathlib import Path
from hpgcn.__main__ import main

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def run(argv):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = main(argv)
    return code, errors.getvalue()

warm, *commands = json.load(sys.stdin)
for argv in warm:
    assert run([*argv, "-q"]) == (0, ""), argv
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30),) * 2)
for argv in commands:
    before = peak()
    print(json.dumps([*run(argv), peak() - before]), flush=True)
"""


def bounded(warm, commands):
    """Run commands in a child process of bounded memory.

    Return exit code, standard error and peak growth in bytes of each.
    """
    done = subprocess.run([sys.executable, "-c", CHILD], input=json.dumps([warm, *commands]),
                          text=True, capture_output=True, timeout=300, check=False,
                          env={**clean_environment(), "MALLOC_ARENA_MAX": "2",
                               "NUMBA_NUM_THREADS": "2"})
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def inputs_that_ask_for_memory():
    """Write small files that claim to need much memory; return the expected message of each."""
    Path("03.mtx").write_bytes(REAL + b"3 3 4000000000000\n")
    Path("03-rows.mtx").write_bytes(REAL + b"4000000000000 4000000000000 1\n1 2 1\n")
    many = REAL + b"3 3 100000000\n" + b"1 2 1\n" * (1 << 22)
    Path("22.mtx.gz").write_bytes(gzip.compress(many, 1))
    Path("22-line.txt.gz").write_bytes(gzip.compress(b"0 1\n" + b"1" * (1 << 27), 1))
    Path("22-array.npz").write_bytes(gzip.compress(bytes(1 << 27), 1))
    Path("ind.t.x").write_bytes(gzip.compress(bytes(1 << 27), 1))
    for part in ("y", "tx", "ty", "allx", "ally", "graph", "test.index"):
        Path(f"ind.t.{part}").write_bytes(b"")
    np.savez_compressed("19.npz", edge_index=np.array([[0], [1]]), x=np.zeros((2, 1 << 24)))
    with h5py.File("g.h5", "r") as file, h5py.File("22.h5", "w", libver="v110") as other:
        other.attrs.update(file.attrs)
        for name in file:
            file.copy(name, other)
        del other["features"]
        other.create_dataset("features", (2**42, 8), np.float64, chunks=(1 << 10, 8),
                             compression="gzip")
    return {"03.mtx": "4000000000000 entries declared", "03-rows.mtx": "needs 256000",
            "22.mtx.gz": "100000000 entries", "22-line.txt.gz": "line 2 has more than 1048576 byt",
            "22-array.npz": "broken data", "ind.t.x": "compressed, expected a plain file",
            "19.npz": "x: needs 268435584 bytes", "22.h5": "claims 281474976710656 bytes"}


@pytest.mark.long
def test_03_19_22_memory_is_bounded():
    succeed("convert", "karate", "g.h5", "--split", "random:60/20/20")
    Path("ok.mtx").write_bytes(REAL + b"3 3 1\n1 2 1\n")
    Path("ok.txt").write_bytes(b"0 1\n1 2\n")
    said = inputs_that_ask_for_memory()
    Path("g.txt.gz").write_bytes(gzip.compress(b"0 1\n" * (1 << 23), 1))  # 32 MiB
    budget = ["--memory", "200M"]
    commands = [["inspect", name] if name.endswith("h5") else ["convert", name, "out.h5", *budget]
                for name in said]
    commands.append(["convert", "g.txt.gz", "sorted.h5", "--memory", "32M"])
    warm = [["convert", "ok.mtx", "w.h5"],
            ["convert", "ok.txt", "w.h5", "--overwrite", "--memory", "200"], ["inspect", "g.h5"]]
    before = {*os.listdir(), "w.h5", "sorted.h5"}
    *refusals, (code, errors, grown) = bounded(warm, commands)
    assert (code, errors) == (0, "")  # an edge list is sorted on disk
    assert grown < 200 << 20
    assert store.load("sorted.h5").header.num_edges == 1
    for (name, message), (code, errors, grown) in zip(said.items(), refusals, strict=True):
        assert code == 65, (name, errors)
        assert errors.startswith(f"hpgcn: {name}"), errors
        assert message in errors
        assert errors.count("\n") == 1
        assert grown < 64 << 20, name
    assert set(os.listdir()) == before


def trained(path, *options):
    """Train for three epochs; return (losses, weights)."""
    succeed("train", path, "--epochs", "3", "--out", "run", "--overwrite", *options)
    return [line["loss"] for line in lines(Path("run"))], store.read_model("run/model.h5")[0]


@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
@pytest.mark.parametrize("n", [1, 6])
def test_11_one_vertex_or_no_edges_trains(n, model):
    Path("g.mtx").write_bytes(REAL + f"{n} {n} 0\n".encode())
    np.save("x.npy", np.ones((n, 3)))
    np.save("y.npy", np.arange(n) % 2)
    said = succeed("convert", "g.mtx", "g.h5", "--features", "x.npy", "--labels", "y.npy",
                   "--split", "random:100/0/0")
    assert f"{n} vertices, 0 edges" in said
    assert f"{n} isolated vertices" in said
    losses, weights = trained("g.h5", "--model", model)
    assert_all(np.isfinite(losses))
    for array in weights.values():
        assert_all(np.isfinite(array))


@pytest.fixture(scope="module")
def karate(tmp_path_factory):
    """Write the graph karate with 40 features and a split; return its path."""
    folder = tmp_path_factory.mktemp("karate")
    np.save(folder / "x.npy", np.random.default_rng(0).standard_normal((34, 40)))
    succeed("convert", "karate", folder / "g.h5", "--split", "random:60/20/20", "--features",
            folder / "x.npy")
    return folder / "g.h5"


@pytest.mark.long
def test_17_a_rank_without_vertices_trains(karate):
    """Three ranks, one of which owns no vertex, have the losses of one rank."""
    alone, _ = trained(karate, "--dropout", 0)
    Path("parts.txt").write_text("".join(f"{2 * (vertex % 2)}\n" for vertex in range(34)))
    assert "p.h5" in succeed("partition", karate, "-k", 3, "--parts", "parts.txt", "-o", "p.h5")
    losses, _ = trained("p.h5", "--dropout", 0, "--ranks", 3)
    np.testing.assert_allclose(losses, alone, rtol=1e-5)


@pytest.mark.long
def test_25_the_same_graph_with_64_bit_numbers(monkeypatch, karate):
    losses, weights = trained(karate)
    # more than 20 kB hold in memory
    Path("g.txt").write_bytes(b"0 1 2.5\n3 2 1\n2 2 4\n0 1 1\n90 3 7\n" * 50)
    succeed("convert", "g.txt", "narrow.h5")
    monkeypatch.setattr(validation, "INT32_MAX", 10)
    for name, options in (("memory.h5", ()), ("disk.h5", ("--memory", 20_000))):
        succeed("convert", "g.txt", name, *options)
        with h5py.File(name) as wide, h5py.File("narrow.h5") as narrow:
            assert wide["adjacency/indices"].dtype == np.int64
            assert narrow["adjacency/indices"].dtype == np.int32
            for key in ("indptr", "indices", "data"):
                np.testing.assert_array_equal(wide[f"adjacency/{key}"], narrow[f"adjacency/{key}"])
    assert store.load("memory.h5").read().indices.dtype == np.int64
    again, wide = trained(karate)
    assert again == losses
    np.testing.assert_equal(wide, weights)
    # test_partition_vertex_cut.py divides such numbers by other methods
    succeed("partition", "memory.h5", "-k", 2, "--method", "block", "-o", "p.h5")
    assert store.load("p.h5").read().indices.dtype == np.int64


SETTINGS = {
    "toml": (b"hidden = = 3", r"c\.toml: .*line 1"),
    "type": (b"hidden = '3'", "--hidden 3: expected int"),
    "nan": (b"lr = nan", r"--lr nan: expected a finite number, at least 0"),
    "huge": (b"hidden = 1000000000000", r"--hidden 1000000000000: expected 1 to 16777216"),
    "digits": (b"seed = " + b"1" * 5000, r"c\.toml: .*5000 digits"),
    "float-digits": (b"lr = 1" + b"0" * 400, r"'lr' holds an integer of more than 64 bits"),
    "nested": (b"a = " + b"[" * 5000, r"c\.toml: brackets are nested too deeply"),
    "bytes": (b"\xff\xfe", r"c\.toml: byte 0 is not UTF-8 text"),
    "twice": (b"hidden = 4\nhidden = 5", r"c\.toml: Cannot overwrite a value"),
    "long": (b"#" * (1 << 21), r"c\.toml: more than 1048576 bytes"),
}


@pytest.mark.parametrize("content, message", SETTINGS.values(), ids=SETTINGS)
def test_settings_are_refused(karate, content, message):
    Path("c.toml").write_bytes(content)
    refused(2, message, "train", karate, "--config", "c.toml", "--out", "run")


def test_06_settings_with_a_byte_order_mark_and_crlf_are_read():
    Path("c.toml").write_bytes(b"\xef\xbb\xbfhidden = 4\r\nlayers = 3\r\n")
    assert read_settings("c.toml") == {"hidden": 4, "layers": 3}

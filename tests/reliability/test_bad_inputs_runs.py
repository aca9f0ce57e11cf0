"""Rows of the table in docs/reliability.md that need a child process or a run, and settings."""
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from commands import MPIEXEC, clean_environment
from in_process import refused, succeed

from hpgcn import store

REAL = b"%%MatrixMarket matrix coordinate real general\n"
CHILD = """
import contextlib, io, json, resource, sys
from pathlib import Path
from hpgcn.__main__ main

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def run(argv):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = main(argv)
    return code, errors.getvalue()

warm, room, *commands = json.load(sys.stdin)
for argv in warm:
    assert run([*argv, "-q"]) == (0, ""), argv
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room,) * 2)
for argv in commands:
    before = peak()
    print(json.dumps([*run(argv), peak() - before]), flush=True)
""".replace("hpgcn.__main__ main", "hpgcn.__main__ import main")


def bounded(folder, warm, commands, room=1 << 30):
    """(exit code, standard error, bytes that the peak of memory grew by) of commands in a child of
    bounded memory.
    """
    done = subprocess.run([sys.executable, "-c", CHILD], input=json.dumps([warm, room, *commands]),
                          cwd=folder, text=True, capture_output=True, timeout=300, check=False,
                          env={**clean_environment(), "MALLOC_ARENA_MAX": "2",
                               "NUMBA_NUM_THREADS": "2"})
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def inputs_that_ask_for_memory(folder):
    """Write inputs that are small on disk; return what the line says of each, by name."""
    (folder / "03.mtx").write_bytes(REAL + b"3 3 4000000000000\n")
    (folder / "03-rows.mtx").write_bytes(REAL + b"4000000000000 4000000000000 1\n1 2 1\n")
    (folder / "22.mtx.gz").write_bytes(gzip.compress(REAL + b"3 3 100000000\n"
                                                     + b"1 2 1\n" * (1 << 22), 1))
    (folder / "22-line.txt.gz").write_bytes(gzip.compress(b"0 1\n" + b"1" * (1 << 27), 1))
    (folder / "22-array.npz").write_bytes(gzip.compress(bytes(1 << 27), 1))
    (folder / "ind.t.x").write_bytes(gzip.compress(bytes(1 << 27), 1))
    for part in ("y", "tx", "ty", "allx", "ally", "graph", "test.index"):
        (folder / f"ind.t.{part}").write_bytes(b"")
    np.savez_compressed(folder / "19.npz", edge_index=np.array([[0], [1]]),
                        x=np.zeros((2, 1 << 24)))
    with h5py.File(folder / "g.h5", "r") as file, h5py.File(folder / "22.h5", "w",
                                                            libver="v110") as other:
        other.attrs.update(file.attrs)
        for name in file:
            file.copy(name, other)
        del other["features"]
        other.create_dataset("features", (2**42, 8), np.float64, chunks=(1 << 10, 8),
                             compression="gzip")
    return {"03.mtx": "4000000000000 entries declared", "03-rows.mtx": "needs 256000",
            "22.mtx.gz": "100000000 entries",
            "22-line.txt.gz": "line 2 has more than 1048576 bytes", "22-array.npz": "broken data",
            "ind.t.x": "compressed, expected a plain file", "19.npz": "x: needs 268435584 bytes",
            "22.h5": "claims 281474976710656 bytes"}


def test_03_19_22_memory_is_bounded(tmp_path):
    succeed("convert", "karate", tmp_path / "g.h5", "--split", "random:60/20/20")
    (tmp_path / "ok.mtx").write_bytes(REAL + b"3 3 1\n1 2 1\n")
    (tmp_path / "ok.txt").write_bytes(b"0 1\n1 2\n")
    said = inputs_that_ask_for_memory(tmp_path)
    budget = ["--memory", "200M"]
    commands = [["inspect", name] if name.endswith("h5") else ["convert", name, "out.h5", *budget]
                for name in said]
    warm = [["convert", "ok.mtx", "w.h5"],
            ["convert", "ok.txt", "w.h5", "--overwrite", "--memory", "200"], ["inspect", "g.h5"]]
    before = {*os.listdir(tmp_path), "w.h5"}
    for (name, message), (code, errors, grown) in zip(said.items(),
                                                      bounded(tmp_path, warm, commands),
                                                      strict=True):
        assert code == 65, (name, errors)
        assert errors.startswith(f"hpgcn: {name}"), errors
        assert message in errors
        assert errors.count("\n") == 1
        assert grown < 64 << 20, name
    assert set(os.listdir(tmp_path)) == before


def test_22_an_edge_list_of_many_times_its_size_is_sorted_on_disk(tmp_path):
    """32 MiB of text in few KiB: read right, in the memory that it is given."""
    (tmp_path / "g.txt.gz").write_bytes(gzip.compress(b"0 1\n" * (1 << 23), 1))
    (tmp_path / "ok.txt").write_bytes(b"0 1\n1 2\n")
    warm = [["convert", "ok.txt", "w.h5", "--memory", "200"]]
    [(code, errors, grown)] = bounded(tmp_path, warm,
                                      [["convert", "g.txt.gz", "out.h5", "--memory", "32M"]])
    assert (code, errors) == (0, "")
    assert grown < 200 << 20
    assert store.load(tmp_path / "out.h5").header.num_edges == 1


def trained(path, *options, ranks=None, program=None):
    """(losses, weights) of a run of three epochs."""
    words = ["train", path, "--epochs", "3", "--out", path.with_name("run"), "--overwrite",
             *options]
    if ranks is None:
        succeed(*words)
    else:
        command = [MPIEXEC, "-n", str(ranks), sys.executable,
                   *(("-c", program) if program else ("-m", "hpgcn"))]
        done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True,
                              timeout=300, check=False,
                              env={**clean_environment(), "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"})
        assert done.returncode == 0, done.stderr
    lines = path.with_name("run").joinpath("metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"]
            for line in lines], store.read_model(path.with_name("run") / "model.h5")[0]


@pytest.mark.parametrize("model", ["gcn", "sage", "gin"])
@pytest.mark.parametrize("n", [1, 6])
def test_11_one_vertex_or_no_edges_trains(tmp_path, n, model):
    (tmp_path / "g.mtx").write_bytes(REAL + f"{n} {n} 0\n".encode())
    np.save(tmp_path / "x.npy", np.ones((n, 3)))
    np.save(tmp_path / "y.npy", np.arange(n) % 2)
    said = succeed("convert", tmp_path / "g.mtx", tmp_path / "g.h5", "--features",
                   tmp_path / "x.npy", "--labels", tmp_path / "y.npy", "--split", "random:100/0/0")
    assert f"{n} vertices, 0 edges" in said
    assert f"{n} isolated vertices" in said
    losses, weights = trained(tmp_path / "g.h5", "--model", model)
    assert np.isfinite(losses).all()
    assert all(np.isfinite(array).all() for array in weights.values())


def needs_mpi():
    if MPIEXEC is None:
        pytest.skip("no mpiexec: pip install 'hpgcn[mpi,mpich]'")


@pytest.fixture(scope="module")
def karate(tmp_path_factory):
    """Karate with 40 features and a split."""
    folder = tmp_path_factory.mktemp("karate")
    np.save(folder / "x.npy", np.random.default_rng(0).standard_normal((34, 40)))
    succeed("convert", "karate", folder / "g.h5", "--split", "random:60/20/20", "--features",
            folder / "x.npy")
    return folder / "g.h5"


def test_17_a_rank_without_vertices_trains(tmp_path, karate):
    needs_mpi()
    alone, _ = trained(karate, "--dropout", 0)
    (tmp_path / "parts.txt").write_text("".join(f"{2 * (vertex % 2)}\n" for vertex in range(34)))
    said = succeed("partition", karate, "-k", 3, "--parts", tmp_path / "parts.txt", "-o",
                   tmp_path / "p.h5")
    assert "p.h5" in said
    losses, _ = trained(tmp_path / "p.h5", "--dropout", 0, ranks=3)
    np.testing.assert_allclose(losses, alone, rtol=1e-5)


LOWERED = """
import sys
from hpgcn.graphs import validation
from hpgcn.comm import collectives
validation.INT32_MAX, collectives.MAX_MESSAGE_BYTES = 10, 512
from hpgcn.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.long
def test_25_messages_in_pieces_and_64_bits_change_no_bit(tmp_path, karate):
    """As tests/mpi/test_long_messages.py has it of all strategies, with numbers of 64 bits."""
    needs_mpi()
    succeed("partition", karate, "-k", 2, "--method", "block", "-o", tmp_path / "p.h5")
    losses, weights = trained(tmp_path / "p.h5", "--hidden", 64, ranks=2)
    assert all(array.nbytes > 512 for name, array in weights.items() if name == "W0")
    again, wide = trained(tmp_path / "p.h5", "--hidden", 64, ranks=2, program=LOWERED)
    assert again == losses
    for name, array in weights.items():
        assert np.array_equal(wide[name], array), name


def test_25_the_same_graph_with_64_bit_numbers(tmp_path, monkeypatch):
    from hpgcn.graphs import validation

    # more than 20 kB hold in memory
    (tmp_path / "g.txt").write_bytes(b"0 1 2.5\n3 2 1\n2 2 4\n0 1 1\n90 3 7\n" * 50)
    succeed("convert", tmp_path / "g.txt", tmp_path / "narrow.h5")
    monkeypatch.setattr(validation, "INT32_MAX", 10)
    for name, options in (("memory.h5", ()), ("disk.h5", ("--memory", 20_000))):
        succeed("convert", tmp_path / "g.txt", tmp_path / name, *options)
        with h5py.File(tmp_path / name) as wide, h5py.File(tmp_path / "narrow.h5") as narrow:
            assert wide["adjacency/indices"].dtype == np.int64
            assert narrow["adjacency/indices"].dtype == np.int32
            for key in ("indptr", "indices", "data"):
                assert np.array_equal(wide[f"adjacency/{key}"], narrow[f"adjacency/{key}"])
    graph = store.load(tmp_path / "memory.h5").read()
    assert graph.indices.dtype == np.int64
    succeed("partition", tmp_path / "memory.h5", "-k", 2, "--method", "vertex-cut", "-o",
            tmp_path / "p.h5")
    assert store.load(tmp_path / "p.h5").read().indices.dtype == np.int64


SETTINGS = {
    "key": (b"hiden = 3", r"c\.toml: key 'hiden' is unknown; did you mean hidden\?"),
    "toml": (b"hidden = = 3", r"c\.toml: .*line 1"),
    "type": (b"hidden = '3'", r"hidden = '3': expected int"),
    "range": (b"dropout = 1.5", r"dropout = 1\.5: expected 0 to 1"),
    "choice": (b"optimizer = 'adm'", r"did you mean adam\?"),
    "nan": (b"lr = nan", r"lr = nan: expected at least 0"),
    "huge": (b"hidden = 1000000000000", r"hidden = 1000000000000: expected 1 to 16777216"),
    "digits": (b"seed = " + b"1" * 5000, r"c\.toml: .*5000 digits"),
    "float-digits": (b"lr = 1" + b"0" * 400, r"'lr' holds an integer of more than 64 bits"),
    "nested": (b"a = " + b"[" * 5000, r"c\.toml: brackets are nested too deeply"),
    "bytes": (b"\xff\xfe", r"c\.toml: byte 0 is not UTF-8 text"),
    "twice": (b"hidden = 4\nhidden = 5", r"c\.toml: Cannot overwrite a value"),
    "long": (b"#" * (1 << 21), r"c\.toml: more than 1048576 bytes"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_are_refused(tmp_path, karate, case):
    content, message = SETTINGS[case]
    (tmp_path / "c.toml").write_bytes(content)
    refused(2, message, "train", karate, "--config", tmp_path / "c.toml", "--out", tmp_path / "run",
            folder=tmp_path)


def test_06_settings_with_a_byte_order_mark_and_crlf_are_read(tmp_path):
    from hpgcn.config import Config

    Path(tmp_path / "c.toml").write_bytes(b"\xef\xbb\xbfhidden = 4\r\nlayers = 3\r\n")
    assert Config.from_toml(tmp_path / "c.toml") == {"hidden": 4, "layers": 3}

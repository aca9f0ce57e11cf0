"""Files compressed by gzip, bzip2 and xz are read directly; broken ones give a one-line error."""
import bz2
import gzip
import hashlib
import lzma
import sys

import numpy as np
import pytest
from inputs import put, refused, rows

from hpgcn.datasets.convert import convert, read
from hpgcn.store import load

PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}
TEXTS = {"g.txt": "# c\n0 1\n1 2\n", "g.csv": "source,target\n1,0\n2,1\n", "g.edges": "0 1\n1 2\n",
         "g.edgelist": "0 1\n1 2\n", "g.tsv": "u\tv\n0\t1\n1\t2\n",
         "g.net": "*Vertices 3\n*Arcs\n2 1\n3 2\n",
         "g.mtx": "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n2 3\n"}


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("name", TEXTS)
def test_text_is_read(tmp_path, packer, name):
    content = PACKERS[packer](TEXTS[name].encode())
    for path in (tmp_path / f"{name}.{packer}", tmp_path / name):  # whatever its name
        graph, _ = read(put(path, content))
        assert rows(graph) == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
        assert graph.header.name == "g"
        assert graph.header.source_sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("packer", PACKERS)
def test_on_disk_and_in_memory_give_the_same_file(tmp_path, packer):
    lines = "".join(f"{k} {(7 * k) % 2000}\n" for k in range(2000)).encode()
    path = put(tmp_path / f"g.txt.{packer}", PACKERS[packer](lines))
    convert(path, tmp_path / "a.h5")
    convert(path, tmp_path / "b.h5", memory=4_000_000)
    with load(tmp_path / "a.h5") as first, load(tmp_path / "b.h5") as second:
        np.testing.assert_array_equal(first.read().indices, second.read().indices)
        assert first.header.source_sha256 == second.header.source_sha256


@pytest.mark.parametrize("packer, name", [("bz2", "bzip2"), ("xz", "xz"), ("gz", "gzip")])
def test_broken_data(tmp_path, packer, name):
    whole = PACKERS[packer](b"0 1\n" * 5000)
    for content in (whole[:-9], whole[:40] + b"\xff\xff" + whole[42:]):
        refused(rf"g\.txt: broken {name} data|line \d+|is binary data",
                put(tmp_path / "g.txt", content))


@pytest.mark.long
@pytest.mark.parametrize("packer", PACKERS)
def test_what_grows_is_refused_within_memory(tmp_path, packer):
    path = put(tmp_path / "g.txt", PACKERS[packer](b"0 1\n" * (1 << 20)))
    refused(r"g\.txt: needs \d+ bytes of memory", path, memory=10**7)


def test_a_python_without_the_module(tmp_path, monkeypatch):
    path = put(tmp_path / "g.txt.bz2", bz2.compress(b"0 1\n"))
    monkeypatch.setitem(sys.modules, "bz2", None)
    refused("bzip2 data, but this Python has no module bz2; unpack it with bunzip2", path)

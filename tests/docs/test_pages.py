"""The how-to pages, strategies and plan: commands and Python code run as printed, page by page.

Blocks of `bash` and `python` run in order, in one folder for each page. Blocks of
`text` are output, files, and commands of a cluster, such as sbatch.
"""
import re

import numpy as np
import pytest
from checkout import ROOT
from graphs import make
from test_readme import call

import hpgcn

PAGES = [*sorted((ROOT / "docs" / "how-to").glob("*.md")),
         ROOT / "docs" / "plan.md", ROOT / "docs" / "strategies.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NEEDS = {"export": "torch onnx", "python": "mpi4py", "sweeps": "optuna", "strategies": "mtkahypar",
         "clusters": "mtkahypar", "plan": "mtkahypar"}
OURS = re.compile(r"^(hpgcn|mpiexec)\b", re.MULTILINE)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write the inputs that pages use: a graph, later vertices and tables."""
    monkeypatch.chdir(tmp_path)
    graph = make(n=203, f=16, c=4)
    hpgcn.save(graph, "graph.h5")
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 250, (900, 2))
    ring = np.stack([np.arange(250), (np.arange(250) + 1) % 250], axis=1)
    np.savetxt("later.csv", [*ends, *ring], "%d", ",", header="source,target", comments="")
    np.save("later.npy", rng.standard_normal((250, graph.header.num_features)).astype(np.float32))
    with open("edges.csv", "w") as file:
        file.write("source,target\n")
        file.writelines(f"p{u},p{v}\n" for u, v in [*ends, *ring])
    with open("people.csv", "w") as file:
        file.write("id,label\n")
        file.writelines(f"p{u},{'doctor' if u % 5 else 'engineer'}\n" for u in range(250))
    with open("purchases.csv", "w") as file:
        file.write("customer,product\n")
        file.writelines(f"c{u},p{u % 5 * 10 + w}\n" for u in range(100)
                        for w in range(0, 9, 1 + u % 3))
    for name, ids in (("customers.txt", {f"c{u}" for u in range(100)}),
                      ("products.txt", {f"p{u % 5 * 10}" for u in range(100)})):
        (tmp_path / name).write_text("\n".join(sorted(ids)))
    with open("wishes.csv", "w") as file:
        file.write("source,target\nc0,p0\nc1,p7\n")
    with open("sensors.csv", "w") as file:
        file.write("id,lanes,limit,speed,load\n")
        file.writelines(f"p{u},{u % 4},{u % 9},{'' if u % 8 == 1 else u % 9 + u % 4},{u % 4 / 10}\n"
                        for u in range(250))
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_runs(page, folder):
    for package in NEEDS.get(page.stem, "").split():
        pytest.importorskip(package)
    names = {}
    for kind, text in BLOCK.findall(page.read_text()):
        if kind == "bash":
            for line in text.splitlines():
                call(line, folder)
        elif kind == "python":
            exec(text.replace("epochs=200", "epochs=3"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_does_not_run_needs_a_site(page):
    """Blocks of text contain no hpgcn command that tests could run."""
    for kind, text in BLOCK.findall(page.read_text()):
        assert kind in ("bash", "python", "text", "{toctree}"), kind
        if kind == "text":
            assert not OURS.search(text) or re.search(r"doctor|machine|cuda", text), text

"""The notebooks of the documentation run completely in an empty folder, with few epochs.

Their kernels and commands are forks of one process (forked_commands.py). Ranks are
those of mpiexec.
"""
import json
import os
import re
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from forked_commands import forked_commands

DOCS = ROOT / "docs"
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
# a few epochs, and a line for each where a line stands for ten
FEWER = {r"(epochs[= ])\d+\b": r"\g<1>3", r"range\(1, 51\)": "range(1, 6)",
         r"epoch % 10 ==": "epoch % 1 =="}
KERNEL = "from ipykernel.kernelapp import launch_new_instance as launch\nlaunch()\n"


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """Return the folder of forked commands, with a `kernels` folder for Jupyter."""
    with forked_commands("ipykernel.kernelapp", "torch") as folder:
        kernel = Path(folder) / "kernels" / "forked"
        kernel.mkdir(parents=True)
        (kernel / "kernel.py").write_text(KERNEL)
        words = [f"{folder}/python", str(kernel / "kernel.py"), "-f", "{connection_file}"]
        (kernel / "kernel.json").write_text(json.dumps(
            {"argv": words, "display_name": "forked", "language": "python"}))
        yield folder


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch, forked):
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient: pip install '.[test]'")
    client = pytest.importorskip("nbclient", reason="needs nbclient: pip install '.[test]'")
    pytest.importorskip("ipykernel", reason="needs ipykernel: pip install '.[test]'")
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install '.[demo]'")
    pytest.importorskip("mpi4py", reason="needs mpi4py: pip install '.[mpi,mpich]'")
    if path.stem == "customers":
        pytest.importorskip("pandas", reason="needs pandas: pip install '.[test]'")
    if "torch" in path.stem or "pyg" in path.stem:
        pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
    book = nbformat.read(path, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code), "outputs are not kept"
    for cell in code:
        for words, fewer in FEWER.items():
            cell.source = re.sub(words, fewer, cell.source)
    commands = [cell for cell in code if re.search(r"^(\w+ = )?!", cell.source)]
    for cell in commands:  # IPython keeps what a command of the shell exited with
        cell.source += "\nprint('__exit_code__', _exit_code)"
    folders = [forked, str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    monkeypatch.setenv("JUPYTER_PATH", forked)
    monkeypatch.setenv("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    client.NotebookClient(book, timeout=600, kernel_name="forked",
                          resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = "".join(part.get("text", "") for cell in code for part in cell.outputs)
    assert "Traceback" not in shown
    assert re.findall(r"__exit_code__ (-?\d+)", shown) == ["0"] * len(commands), shown


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 9

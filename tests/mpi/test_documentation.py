"""Examples of the documentation that run under mpiexec, with mpi4py's communicator."""
import re
from pathlib import Path

import numpy as np
import pytest
from graphs import make

import hpgcn

pytestmark = [pytest.mark.mpi, pytest.mark.long]


def examples(page):
    text = (Path(__file__).parents[2] / f"docs/{page}.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("example", examples("propagation"), ids=["power_iteration", "appnp"])
def test_examples_of_propagation(comm, example, tmp_path, capsys):
    path = comm.bcast(str(tmp_path / "cora.h5"))
    if comm.rank == 0:
        hpgcn.save(make(n=40), path)
    comm.barrier()
    exec(example.replace("cora.h5", path).replace("200", "400"), {})
    out = capsys.readouterr().out
    if "eigenvalue" in example:
        assert comm.rank or "largest eigenvalue 1.000" in out
    else:
        assert out.startswith(f"rank {comm.rank}: ")


@pytest.mark.parametrize("example", examples("torch-on-ranks"),
                         ids=["gcn", "appnp", "hops", "jump"])
def test_examples_of_torch_on_ranks(comm, example, tmp_path, capsys):
    pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
    path = comm.bcast(str(tmp_path / "cora.h5"))
    if comm.rank == 0:
        hpgcn.save(make(n=90), path)
    comm.barrier()
    example = example.replace("cora.h5", path)
    exec(example, {})
    of_all = capsys.readouterr().out
    if comm.rank == 0:
        exec(example.replace("COMM_WORLD", "COMM_SELF"), {})
        alone = capsys.readouterr().out
        assert alone.startswith("loss ")
        np.testing.assert_allclose(float(of_all.split()[1]), float(alone.split()[1]), rtol=1e-5)
    comm.barrier()

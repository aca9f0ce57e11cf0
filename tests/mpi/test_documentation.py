"""Examples of the documentation that run under mpiexec, with mpi4py's communicator."""
import re

import pytest
from checkout import ROOT
from graphs import make

import hpgcn

pytestmark = [pytest.mark.mpi, pytest.mark.long]
PAGE = (ROOT / "docs" / "how-to" / "python.md").read_text()
*_, EXAMPLE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_of_propagation(comm, tmp_path, capsys):
    path = comm.bcast(str(tmp_path / "graph.h5"))
    if comm.rank == 0:
        hpgcn.save(make(n=40, degree=30), path)  # dense: other eigenvalues are small
    comm.barrier()
    exec(EXAMPLE.replace("graph.h5", path).replace("range(200)", "range(20)"), {})
    assert comm.rank or "largest eigenvalue 1.000" in capsys.readouterr().out

"""Open MPI's launcher accepts the commands of the docs, if scripts/test_openmpi.sh installed it."""
import os
import subprocess

import pytest
from checkout import ROOT
from commands import clean_environment
from jobs import OPENMPI

PAGE = ROOT / "docs" / "how-to" / "clusters.md"
SAID = PAGE.read_text().partition("## Open MPI\n")[2]
ROOT, MORE = "--allow-run-as-root", "--oversubscribe"
ROOT_BY_VARIABLES = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
MORE_BY_VARIABLE = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def starts(words, variables, ranks):
    """Return whether mpiexec starts `ranks` ranks with these flags and environment variables."""
    mpiexec = OPENMPI / "bin" / "mpiexec"
    if not mpiexec.exists():
        pytest.skip(f"no Open MPI in {OPENMPI}: scripts/test_openmpi.sh makes it")
    environment = {name: value for name, value in clean_environment().items()
                   if not name.startswith(("OMPI", "PRTE"))}
    done = subprocess.run([mpiexec, *words, "-n", str(ranks), "true"], env=environment | variables,
                          timeout=100, capture_output=True, check=False)
    return not done.returncode


@pytest.mark.parametrize("words, variables", [
    ([MORE], {}), (["--map-by", ":OVERSUBSCRIBE"], {}), ([], MORE_BY_VARIABLE)], ids=str)
def test_more_ranks_than_cores(words, variables):
    ranks = (os.cpu_count() or 1) + 1
    assert starts(words, variables | ROOT_BY_VARIABLES, ranks)
    assert not starts([], ROOT_BY_VARIABLES, ranks)


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone is refused")
@pytest.mark.parametrize("words, variables, started", [
    ([], {}, False), ([ROOT], {}, True), ([], ROOT_BY_VARIABLES, True),
    *(([], {name: "1"}, False) for name in ROOT_BY_VARIABLES)], ids=str)
def test_root(words, variables, started):
    assert starts(words, variables, 1) == started


def test_the_page_says_so():
    words = [ROOT, MORE, "--map-by :OVERSUBSCRIBE", *(f"{name}={value}" for name, value in
             (ROOT_BY_VARIABLES | MORE_BY_VARIABLE).items())]
    assert [word for word in words if word not in SAID] == []

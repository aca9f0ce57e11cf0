"""Call each test that takes `comm` on several ranks, which are threads of this process."""
import pytest
from poison import poisoned  # noqa: F401 (a fixture)
from training import RANKS, RARE

from hpgcn.comm import as_comm, run_on_ranks

QUICK = (1, 3, 4)  # numbers of ranks that are no long tests: one, an odd one, and a square


def tier_of(P):
    """Return the pytest marks (long, release or none) of tests on P ranks."""
    if P in RARE:
        return [pytest.mark.release]
    return [] if P in QUICK else [pytest.mark.long]


class Ranks(int):
    """A number of ranks, the value of the fixture `comm` before the test is called."""


@pytest.fixture(params=[
    pytest.param(P, marks=tier_of(P), id=f"{P} ranks") for P in RANKS])
def comm(request):
    """Return the number of ranks; `pytest_pyfunc_call` replaces it by each rank's communicator."""
    return Ranks(request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Call a test that takes `comm` once on each rank; each rank has its own `tmp_path`."""
    ranks = pyfuncitem.funcargs.get("comm")
    names = pyfuncitem._fixtureinfo.argnames
    if not isinstance(ranks, Ranks) or "comm" not in names:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    def call(mpi):
        comm = as_comm(mpi)
        own = {**arguments, "comm": comm}
        if "tmp_path" in own:
            own["tmp_path"] = arguments["tmp_path"] / f"rank-{comm.rank}"
            own["tmp_path"].mkdir()
        try:
            pyfuncitem.obj(**own)
        except Exception as error:
            error.add_note(f"on rank {comm.rank} of {comm.size}")
            failures.append(error)
            raise
        comm.barrier()
        comm.close()

    failures = []
    try:
        run_on_ranks(call, int(ranks))
    except Exception:
        if failures:
            raise failures[0] from None
        raise
    return True

"""Options and fixtures of all tests. HPGCN_TEST_DATA is the folder of real data sets."""
import gc
import os
import signal

os.environ["COLUMNS"] = "200"  # tables have the same width on every terminal
os.environ.setdefault("NUMBA_NUM_THREADS", "3")  # several threads, set before Numba is loaded
os.environ.setdefault("HPGCN_COMPILE_WORKERS", "0")  # the tests have no free cores for them
os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads of PyTorch that wait take a core each

from collections import Counter
from itertools import combinations
from pathlib import Path

import commands
import numba  # noqa: F401 (now, with that number of threads; a command within a test may change it)
import pytest
from forked_commands import forked_commands
from forked_engines import forked_engines

gc.disable()  # until all modules are imported and cases made: these stay, and hold no garbage

# where a shell in the background, or nohup, has these ignored, started commands must not inherit it
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

CHECKOUT = Path(__file__).parents[1]
DATA = Path(os.environ.get("HPGCN_TEST_DATA", CHECKOUT.parent / "shared" / "data")).resolve()
THRESHOLDS = 20_000, 10, 10  # objects, collections: the compiler makes many, and little garbage
IMPORT_TORCH = "interop", "test_torch_on_ranks.py"  # their imports take seconds of each process
LEFT_OUT = pytest.StashKey[Counter]()


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true",
                     help="run long tests too, and cases in which each pair of values occurs")
    parser.addoption("--product", action="store_true",
                     help="run long tests too, and every parametrized case")


def pytest_configure(config):
    config.stash[LEFT_OUT] = Counter()


def pytest_ignore_collect(collection_path, config):
    """Leave out files that import PyTorch, as long tests, unless they are named."""
    if collection_path.name not in IMPORT_TORCH or "long" not in later_markers(config):
        return None
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    if any(collection_path in (path, *path.parents) for path in named):
        return None
    config.stash[LEFT_OUT]["of PyTorch"] += 1
    return True


def pytest_make_parametrize_id(val, argname):
    """Name a case with binary data by its parameter, because its bytes differ between processes."""
    return argname if isinstance(val, bytes) and not is_plain(val) else None


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc):
    """Reduce the cases of each test to a few that cover all values.

    All cases remain with --product, and in a file from which a test is named
    (file.py::test).
    """
    yield
    config = metafunc.config
    if config.option.product or is_named(metafunc.definition):
        return
    later = later_markers(config)
    own = {mark.name for mark in metafunc.definition.iter_markers()}
    cases = [case for case in metafunc._calls if not later & own
             and later.isdisjoint(mark.name for mark in case.marks)]
    chosen = covering([values_of(case) for case in cases], 2 if config.option.full else 1)

    counts = config.stash[LEFT_OUT]
    counts["cases"] += len(cases)
    counts["left out"] += len(cases) - len(chosen)
    # one case of a test that is left out stays: pytest_collection_modifyitems counts the test
    metafunc._calls = [cases[k] for k in chosen] or metafunc._calls[:1]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out the tests of other tiers: the marker `long` needs --full, `release` --product."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: processes name it differently; give it an id")
    if config.option.product:
        return

    later = later_markers(config)
    kept, left_out = [], []
    for item in items:
        other_tier = any(map(item.get_closest_marker, later)) and not is_named(item)
        (left_out if other_tier else kept).append(item)
    names = ({item.nodeid.partition("[")[0] for item in some} for some in (left_out, kept))
    config.stash[LEFT_OUT]["long"] = len(set.difference(*names))
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def later_markers(config):
    """Return the names of markers whose tests are not run in this tier."""
    if config.option.product:
        return set()
    return {"release"} if config.option.full else {"long", "release"}


def is_named(node):
    """Return whether a test of the node's file was named on the command line (file.py::test)."""
    return any("::" in argument and Path(argument.partition("::")[0]).resolve() == node.path
               for argument in node.config.args)


def covering(cases, strength):
    """Return the positions of few cases that cover all combinations of `strength` values.

    With strength 1 each value of each parameter occurs; with 2 each pair of values
    occurs. The choice is greedy: next is the case with the most new combinations. Ties
    go to the case with the least used combinations, then to the first. All ranks
    therefore choose the same cases.
    """
    parts = {k: combinations_of(values, strength) for k, values in enumerate(cases)}
    missing = set().union(*parts.values())
    used = Counter()
    chosen = []
    while missing:
        # a case without new combinations will never have any
        new = {k: count for k, part in parts.items() if (count := len(missing & part))}
        parts = {k: parts[k] for k in new}
        most = max(new.values())
        best = min((k for k in new if new[k] == most),
                   key=lambda k: sum(used[part] for part in parts[k]))
        chosen.append(best)
        missing -= parts[best]
        used.update(parts.pop(best))
    return sorted(chosen)


def combinations_of(values, strength):
    """Return the combinations of `strength` values of a case; all values if it has fewer."""
    return set(combinations(sorted(values, key=repr), min(strength, len(values))))


def values_of(case):
    """Return (parameter, value) pairs of a case: plain values by content, others by identity."""
    return {(name, repr(value) if is_plain(value) else id(value))
            for name, value in case.params.items()}


def is_plain(value):
    if isinstance(value, dict):
        return is_plain([*value.items()])
    if isinstance(value, tuple | list):
        return all(map(is_plain, value))
    if isinstance(value, bytes):
        return value.isascii()
    return value is None or isinstance(value, str | int | float | type)


def pytest_collection_finish():
    """Keep collected modules and cases out of later garbage collections, which get faster."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # a worker of pytest-xdist: the main process prints
        session.config.workeroutput["left out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left out"))


def pytest_terminal_summary(terminalreporter, config):
    counts = config.stash[LEFT_OUT]
    files = " and the files of PyTorch" if counts["of PyTorch"] else ""
    if counts["left out"] or counts["long"]:
        terminalreporter.write_line(
            f"left out {counts['left out']} of {counts['cases']} parametrized cases, "
            f"{counts['long']} long tests{files}; scripts/test.sh --full or --product runs more")


@pytest.fixture(autouse=True)
def numba_threads():
    """Restore the number of Numba threads after a command that changed it."""
    before = os.environ["NUMBA_NUM_THREADS"]
    yield
    os.environ["NUMBA_NUM_THREADS"] = before


@pytest.fixture(scope="session", autouse=True)
def engines():
    """Run partitioning engines in forks of one process (forked_engines.py)."""
    with forked_engines():
        yield


@pytest.fixture(scope="session")
def forked():
    """Return the folder of commands that run in forks of one process (forked_commands.py)."""
    with forked_commands() as folder:
        yield folder


@pytest.fixture
def forks(forked, monkeypatch):
    """Start `hpgcn` of commands.py, also its ranks, in forks of one process."""
    monkeypatch.setattr(commands, "HPGCN", [f"{forked}/hpgcn"])


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Make arrays of a page files, and return a folder for them."""
    from hpgcn.planning.answers import scratch_plan
    from hpgcn.planning.counts import touches
    from hpgcn.runtime import copy_rates
    from hpgcn.runtime.disk import scratch_folder

    monkeypatch.setattr(scratch_plan, "PAIR", 0)
    monkeypatch.setattr(scratch_folder, "THRESHOLD", 4096)
    monkeypatch.setattr(touches, "LEAST", 4096)
    monkeypatch.setattr(copy_rates, "SAMPLE", 1 << 20)
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def data_dir():
    """Return the folder of real data sets; skip the test if it does not exist."""
    if not DATA.is_dir():
        pytest.skip(f"no shared data at {DATA}: set HPGCN_TEST_DATA")
    return DATA

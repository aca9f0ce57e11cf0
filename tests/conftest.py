"""Options and fixtures of all tests; HPGCN_TEST_DATA is the folder of real data, ../shared/data."""
import os
import signal

os.environ.setdefault("NUMBA_NUM_THREADS", "3")  # several on any machine; before Numba is loaded

from collections import Counter, defaultdict
from pathlib import Path

import numba  # noqa: F401 (now, with as many threads; a command within a test may ask for others)
import pytest

# where a shell in the background, or nohup, has these ignored, started commands must not inherit it
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

CHECKOUT = Path(__file__).parents[1]
DATA = Path(os.environ.get("HPGCN_TEST_DATA", CHECKOUT.parent / "shared" / "data")).resolve()
LEFT_OUT = pytest.StashKey[Counter]()


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true",
                     help="run long tests too, and all parametrised cases, not a few of each test")


def pytest_configure(config):
    config.stash[LEFT_OUT] = Counter()


def pytest_make_parametrize_id(val, argname):
    """Name binary data by its parameter: all processes need one name, and gzip holds the time."""
    return argname if isinstance(val, bytes) and not is_plain(val) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Keep tests that are not long and a covering choice of their cases, unless told otherwise."""
    if config.option.all or any("::" in argument for argument in config.args):
        return

    functions = defaultdict(list)
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: processes name it differently; give it an id")
        if not item.get_closest_marker("long"):
            functions[item.nodeid.partition("[")[0]].append(item)
    chosen = {item for cases in functions.values() for item in covering(cases)}

    counts = config.stash[LEFT_OUT]
    counts["long"] = len({item.nodeid.partition("[")[0] for item in items} - set(functions))
    counts["cases"] = sum(map(len, functions.values()))
    counts["left out"] = counts["cases"] - len(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def covering(cases):
    """Return few of the parametrised cases of a test, in which each value of each parameter occurs.

    Greedy: always the case with the most new values; of equals the one whose values were used
    least, then the first. So all ranks choose alike.
    """
    values = {item: values_of(item) for item in cases}
    missing = set().union(*values.values())
    used = Counter()
    chosen = []
    while missing or not chosen:
        best = max(values, key=lambda item: (len(missing & values[item]),
                                             -sum(used[value] for value in values[item])))
        chosen.append(best)
        missing -= values[best]
        used.update(values[best])
    return chosen


def values_of(item):
    """Return (parameter, value) pairs of a case: plain values by content, others by identity."""
    parameters = item.callspec.params.items() if hasattr(item, "callspec") else ()
    return {(name, repr(value) if is_plain(value) else id(value)) for name, value in parameters}


def is_plain(value):
    if isinstance(value, dict):
        return is_plain([*value.items()])
    if isinstance(value, tuple | list):
        return all(map(is_plain, value))
    if isinstance(value, bytes):
        return value.isascii()
    return value is None or isinstance(value, str | int | float | type)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):  # a process of pytest-xdist: another prints
        session.config.workeroutput["left out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left out"))


def pytest_terminal_summary(terminalreporter, config):
    counts = config.stash[LEFT_OUT]
    if counts["left out"] or counts["long"]:
        terminalreporter.write_line(
            f"left out {counts['left out']} of {counts['cases']} parametrised cases and "
            f"{counts['long']} long tests; scripts/test.sh --all runs them")


@pytest.fixture(autouse=True)
def numba_threads():
    """Keep the number of threads that Numba was loaded with, whatever a command here set."""
    before = os.environ["NUMBA_NUM_THREADS"]
    yield
    os.environ["NUMBA_NUM_THREADS"] = before


@pytest.fixture(scope="session")
def data_dir():
    """Folder of real datasets; the test is skipped with a message where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"no shared data at {DATA}: set HPGCN_TEST_DATA")
    return DATA

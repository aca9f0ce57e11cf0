"""Options and fixtures of all tests; HPGCN_TEST_DATA is the folder of real data, ../shared/data."""
import gc
import os
import signal

os.environ["COLUMNS"] = "200"  # tables are as wide wherever tests run
os.environ.setdefault("NUMBA_NUM_THREADS", "3")  # several on any machine; before Numba is loaded

from collections import Counter, defaultdict
from itertools import chain, combinations
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
    parser.addoption("--full", action="store_true",
                     help="run long tests too, and cases in which each pair of values occurs")
    parser.addoption("--product", action="store_true",
                     help="run long tests too, and every parametrised case")


def pytest_configure(config):
    config.stash[LEFT_OUT] = Counter()


def pytest_make_parametrize_id(val, argname):
    """Name binary data by its parameter: all processes need one name, and gzip holds the time."""
    return argname if isinstance(val, bytes) and not is_plain(val) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Keep a covering choice of the cases of each test, and the markers of the tier that is run.

    Tests marked `long` run with --full, tests marked `release` only with --product.

    All cases stay with --product, and in a file of which a test is named (file.py::test).
    """
    if config.option.product:
        return
    whole = {Path(argument.partition("::")[0]).resolve()
             for argument in config.args if "::" in argument}

    later = ("release",) if config.option.full else ("long", "release")  # markers of other tiers
    functions = defaultdict(list)
    chosen = set()
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: processes name it differently; give it an id")
        if item.path in whole:
            chosen.add(item)
        elif not any(map(item.get_closest_marker, later)):
            functions[item.nodeid.partition("[")[0]].append(item)
    strength = 2 if config.option.full else 1
    for cases in functions.values():
        chosen.update(covering(cases, strength))

    counts = config.stash[LEFT_OUT]
    counts["long"] = len({item.nodeid.partition("[")[0] for item in items
                          if item.path not in whole} - set(functions))
    counts["cases"] = sum(map(len, functions.values()))
    counts["left out"] = counts["cases"] - len(chosen.intersection(chain(*functions.values())))
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def covering(cases, strength):
    """Return few parametrised cases of a test that cover all combinations of `strength` values.

    With strength 1 each value of each parameter occurs, with 2 each pair of two parameters' values.
    The choice is greedy: next is the case with the most new combinations. Of equals it is the one
    whose combinations were used least, then the first. So all ranks choose alike.
    """
    parts = {item: combinations_of(item, strength) for item in cases}
    missing = set().union(*parts.values())
    used = Counter()
    chosen = []
    while missing or not chosen:
        best = max(parts, key=lambda item: (len(missing & parts[item]),
                                            -sum(used[part] for part in parts[item])))
        chosen.append(best)
        missing -= parts.pop(best)
        used.update(combinations_of(best, strength))
    return chosen


def combinations_of(item, strength):
    """Return the combinations of `strength` values of a case, or all its values if it has fewer."""
    values = sorted(values_of(item), key=repr)
    return set(combinations(values, min(strength, len(values))))


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


def pytest_collection_finish():
    """Leave modules and cases, which stay, to no later garbage collection: each would visit all."""
    gc.collect()
    gc.freeze()


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
            f"{counts['long']} long tests; scripts/test.sh --full or --product runs more")


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

"""Fixtures for all tests. Shared real data is found through HPGCN_TEST_DATA, by default ../shared/data."""
import os
import signal

os.environ.setdefault("NUMBA_NUM_THREADS", "3")  # more than one on any machine; before Numba is loaded

from pathlib import Path

import pytest

# where a shell in the background, or nohup, has these ignored, commands that tests start must not inherit that
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, lambda *_: None)

DATA = Path(os.environ.get("HPGCN_TEST_DATA", Path(__file__).parents[1] / ".." / "shared" / "data")).resolve()


@pytest.fixture(scope="session")
def data_dir():
    """Folder of real datasets; the test is skipped with a message where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"no shared data at {DATA}: set HPGCN_TEST_DATA")
    return DATA

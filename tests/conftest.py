"""Fixtures for all tests. Shared real data is found through HPGCN_TEST_DATA, by default ../shared/data."""
import os

os.environ.setdefault("NUMBA_NUM_THREADS", "3")  # more than one on any machine; before Numba is loaded

from pathlib import Path

import pytest

DATA = Path(os.environ.get("HPGCN_TEST_DATA", Path(__file__).parents[1] / ".." / "shared" / "data")).resolve()


@pytest.fixture(scope="session")
def data_dir():
    """Folder of real datasets; the test is skipped with a message where it is absent."""
    if not DATA.is_dir():
        pytest.skip(f"no shared data at {DATA}: set HPGCN_TEST_DATA")
    return DATA

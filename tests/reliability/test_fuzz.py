"""Damaged inputs are refused or read correctly; HPGCN_FUZZ_CASES sets the number of each kind."""
import os

import pytest
from fuzz_files import LOOSE, STORED, TEXTS
from fuzzing import fuzz

CASES = int(os.environ.get("HPGCN_FUZZ_CASES", "0"))  # 0: those below


@pytest.mark.long
@pytest.mark.parametrize("kinds, cases", [
    (STORED, 8), (TEXTS, 8), (tuple(LOOSE), 10)], ids=["stored", "texts", "loose"])
def test_no_crash_no_hang_no_wrong_data(kinds, cases):
    count = CASES or cases
    outcomes, failures = fuzz(kinds, seed=1, count=count)
    assert not failures, "\n\n".join(failures)
    for kind, counts in outcomes.items():
        assert counts.total() == count
        assert counts["read"] < count, f"{kind}: nothing was refused"

"""Damaged inputs are refused or read correctly; HPGCN_FUZZ_CASES sets the number of each kind."""
import os

import pytest
from fuzz_files import LOOSE, STORED, TEXTS
from fuzzing import fuzz

CASES = int(os.environ.get("HPGCN_FUZZ_CASES", "8"))


@pytest.mark.long
@pytest.mark.parametrize("kinds", [STORED, TEXTS, tuple(LOOSE)], ids=["stored", "texts", "loose"])
def test_no_crash_no_hang_no_wrong_data(kinds):
    outcomes, failures = fuzz(kinds, seed=1, count=CASES)
    assert not failures, "\n\n".join(failures)
    for kind, counts in outcomes.items():
        assert counts.total() == CASES
        assert counts["read"] < CASES, f"{kind}: nothing was refused"

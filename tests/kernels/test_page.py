"""docs/kernels.md has every public kernel with its summary, and its examples run."""
import doctest
import inspect
import re

import numpy as np
import pytest
import site_tables
from checkout import ROOT

import hpgcn.kernels
from hpgcn.kernels import reference
from hpgcn.kernels.specs import SPECS

PAGE = (ROOT / "docs" / "kernels.md").read_text()


def test_the_page_names_every_kernel_with_the_summary_of_its_docstring():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE))
    assert {name: rows.get(name) for name in SPECS} == {
        name: inspect.getdoc(getattr(reference, name)).partition("\n\n")[0].replace("\n", " ")
        for name in SPECS}


def test_the_site_lists_the_arrays_of_every_kernel():
    """Two rows are compared as text; each kernel has a row with names of its arguments."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", site_tables.kernels(), re.MULTILINE))
    assert rows["gather"] == "`x` (n, f) floats; `index` (r,) integers; " \
                             "`out` (r, f) floats, optional, written | `out`"
    assert rows["row_sum"] == "`x` (m, f) floats | `sums` (m,) float64"
    for name, row in rows.items():
        row = row.partition(" | ")[0]
        named = set(re.findall(r"`(\w+)`", row))
        assert named <= inspect.signature(getattr(reference, name)).parameters.keys()
    assert rows.keys() == SPECS.keys()


@pytest.mark.long
def test_the_examples_run():
    names = {"np": np, **{name: getattr(hpgcn.kernels, name) for name in hpgcn.kernels.__all__}}
    found = doctest.DocTestParser().get_doctest(PAGE, names, "docs/kernels.md", None, 0)
    assert len(found.examples) >= 8
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(found).failed == 0

"""docs/kernels.md has every public kernel with its docstring, and its examples run."""
import doctest
import inspect
import re
import textwrap

import numpy as np
import pytest
from checkout import ROOT

import hpgcn.kernels
from hpgcn.kernels import reference
from hpgcn.kernels.specs import SPECS, parse

PAGE = (ROOT / "docs" / "kernels.md").read_text()
KINDS = {  # kinds of an array in SPECS, in the words of the page's legend
    "index": "integers", "pointers": "integers", "classes": "integers", "once": "integers",
    "words": "uint32", "bits": "bits", "into_bits": "bits", "wide": "float64"}


def lines_of(name):
    """Return the lines of a kernel in docs/kernels.md: heading, call, summary and table
    of arrays.
    """
    function = getattr(reference, name)
    signature = re.sub(r"\s*:[^,=)]+|\s*->.*", "", str(inspect.signature(function)))
    meaning = " ".join(inspect.getdoc(function).split("\n\n")[0].split())
    call = textwrap.wrap(f"{name}{signature}", 114, subsequent_indent=" " * (len(name) + 1))
    lines = [f"### `{name}`", "", *(f"    {line}" for line in call), "", meaning]
    arguments = {each.name: each for each in parse(SPECS[name])}
    arrays = [arguments[key] for key in inspect.signature(function).parameters if key in arguments]
    if arrays:
        lines += ["", "| array | shape | numbers |", "|---|---|---|"]
    for each in arrays:
        kind = each.kind.removesuffix("16")
        numbers = KINDS.get(kind, "floats") + ", or 16 bits" * each.kind.endswith("16")
        changed = ", written" * (kind.startswith("into") or (name, each.name) == ("add", "out"))
        shape = ", ".join(each.shape).replace("|", r"\|") + "," * (len(each.shape) == 1)
        lines.append(f"| `{each.name}`{', optional' * each.optional} | ({shape}) | "
                     f"{numbers}{changed} |")
    return lines


def test_the_page_has_every_kernel_as_its_docstring_says():
    headings = re.findall(r"^### `(\w+)", PAGE, re.MULTILINE)
    assert sorted(headings) == sorted(SPECS)
    for name in SPECS:
        lines = "\n".join(lines_of(name))
        assert f"{lines}\n" in PAGE, f"docs/kernels.md lacks these lines:\n{lines}"


@pytest.mark.long
def test_the_examples_run():
    names = {"np": np, **{name: getattr(hpgcn.kernels, name) for name in hpgcn.kernels.__all__}}
    found = doctest.DocTestParser().get_doctest(PAGE, names, "docs/kernels.md", None, 0)
    assert len(found.examples) >= 20
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(found).failed == 0

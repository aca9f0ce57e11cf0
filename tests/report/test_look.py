"""All pictures have plain numbers at their axes, and colors of one palette."""
import re
from itertools import product

import pytest
from checkout import ROOT

from hpgcn.report import look


@pytest.mark.parametrize("number, text, three", [
    (0.0, "0", "0"), (-0.0, "0", "0"), (0.1 + 0.2, "0.3", "0.3"), (-1200, "-1,200", "-1,200"),
    (12345.678, "12,345.678", "12,300"), (2.5e7, "25,000,000", "25,000,000"),
    (0.00001, "0.00001", "0.00001")])
def test_numbers_have_no_power_of_ten(number, text, three):
    assert (look.plain(number), look.digits(number)) == (text, three)


@pytest.mark.parametrize("scale, factor", [*product(("linear", "log"), (1e-3, 1, 1e7))])
def test_ticks_are_plain(scale, factor):
    pytest.importorskip("matplotlib")
    with look.style():
        drawing = look.figure(4, 3)
        axis = drawing.subplots()
        axis.plot([1, 2, 3], [factor, 10 * factor, 30 * factor])
        axis.set(yscale=scale)
        axis.set_xticks([1, 2, 3], ["one", "two", "three"])
        look.png(drawing)
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert len(labels) > 2 and all(re.fullmatch(r"-?[0-9.,]+", label) for label in labels)
    assert axis.lines[0].get_color() == look.PALETTE[0]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["one", "two", "three"]


def test_the_look_is_defined_once():
    for folder in ("hpgcn", "scripts"):
        for path in (ROOT / folder).rglob("*.py"):
            assert path.name == "look.py" or not re.search(
                r"rcParams|rc_context|\.savefig|set_major_formatter", path.read_text()), path

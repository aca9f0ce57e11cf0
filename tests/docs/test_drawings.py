"""The drawings in docs/strategies.md show the messages that the strategies plan."""

import numpy as np
import pytest
from checkout import ROOT
from draw_strategies import BLOCK, OUT, WIDTH, drawings, svg

from hpgcn.strategies import STRATEGIES, Product

NAMES = [*STRATEGIES, "delayed"]


@pytest.fixture(scope="module")
def drawn():
    """Return the drawings by name. Their plans compile kernels, so they are not made at import."""
    return drawings()


def test_every_strategy_is_drawn_and_shown(drawn):
    assert set(drawn) == set(NAMES)
    page = (ROOT / "docs" / "strategies.md").read_text()
    assert all(f"](_static/strategies/{name}.svg)" in page for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_arrows_are_the_messages_of_the_plan(name, drawn):
    drawing = drawn[name]
    traffic = drawing.plan.traffic
    numbers, messages = np.zeros((2, traffic.num_ranks), int)
    for _, arrows in drawing.panels:
        for arrow in arrows:
            numbers[arrow.source] += arrow.numbers
        # rows and sums of a pair are one message; blocks of A are messages of their own
        pairs = {(arrow.source, arrow.target, arrow.kind == BLOCK) for arrow in arrows}
        messages += np.bincount([source for source, *_ in pairs], minlength=messages.size)
    bytes_, expected = traffic.counts(Product(0, WIDTH), 4)
    assert messages.tolist() == expected.tolist()
    if not any(arrow.kind == BLOCK for _, arrows in drawing.panels for arrow in arrows):
        assert (numbers * 4).tolist() == bytes_.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_files_are_up_to_date(name, drawn):
    """The committed .svg files equal the output of scripts/draw_strategies.py."""
    assert (OUT / f"{name}.svg").read_text() == svg(drawn[name])

"""Ranks follow each other through the segments of a pass."""
from types import SimpleNamespace

from hpgcn.runtime.planned_turns import PlannedTurns


def test_ranks_begin_each_segment_in_order():
    turns, arrays = PlannedTurns(3), SimpleNamespace(last=2, check=lambda *_: None)
    for rank in range(3):
        turns.begin_pass(rank, arrays)

    def in_order():
        return [turns.is_in_order(rank) for rank in range(3)]

    for goes_on in False, True:  # the first rank waits for the last one, but not after the pass
        assert in_order() == [True, False, False]
        turns.begin_segment(0)
        assert in_order() == [True, True, False]
        turns.begin_segment(1)
        turns.end_segment(0)
        assert in_order() == [goes_on, True, True]
        turns.begin_segment(2)
        turns.end_segment(1)
        turns.end_segment(2)
    assert in_order() == [True, True, True]  # after the pass they wait for each other


def test_ranks_without_a_planned_pass_go_on_in_any_order():
    turns = PlannedTurns(2)
    turns.begin_pass(1, None)
    assert turns.is_in_order(1)

import pytest

from hpgcn.planning.answers.open_cases import best_case, could_be_chosen


def case(ranks, epoch, *, counted=True, fits=True):
    return {"ranks": ranks, "counted": counted, "fits": fits, "seconds": {"epoch": epoch}}


@pytest.mark.parametrize("seconds, ranks, expected", [
    (0.9, 64, True),  # it may be the fastest
    (1.05, 16, True),  # near the fastest on fewer ranks than the choice
    (1.06, 32, True), (1.08, 32, False),  # faster, or slower, on equally many ranks
    (1.05, 64, False),  # on more ranks
    (1.2, 2, False)])  # too slow
def test_a_lower_bound_that_could_change_the_choice_is_open(seconds, ranks, expected):
    rows = [case(64, 1.0), case(32, 1.07), case(4, 2.0), case(2, 0.1, counted=False),
            case(2, 0.1, fits=False)]
    assert best_case(rows[:3])["ranks"] == 32
    assert could_be_chosen(seconds, ranks, rows) is expected


def test_the_fastest_on_each_number_of_ranks_is_open():
    rows = [case(64, 1.0), case(4, 2.0)]
    assert not could_be_chosen(1.9, 4, rows) and could_be_chosen(1.9, 4, rows, each_ranks=True)
    assert could_be_chosen(9.0, 4, [])

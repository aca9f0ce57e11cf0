"""Find the cases with lower bounds that could change the choice, and so must be counted."""
import math

from hpgcn.planning.answers.goals import epoch_seconds

ENOUGH = 1.1  # factor over the fastest time up to which fewer ranks are chosen


def best_case(rows):
    """Return the dict in `rows` with the fewest ranks whose time is near the fastest."""
    fastest = least_seconds(rows)
    return min((entry for entry in rows if epoch_seconds(entry) <= ENOUGH * fastest),
               key=lambda entry: (entry["ranks"], epoch_seconds(entry)))


def least_seconds(rows):
    """Return the least seconds per epoch of some rows; infinite without rows."""
    return min(map(epoch_seconds, rows), default=math.inf)


def could_be_chosen(seconds, ranks, rows, each_ranks=False):
    """Return whether a case of `seconds` or more could be the best of all.

    The case has `ranks` ranks. `rows` are the rows of the report so far; the counted ones
    that fit in memory are compared. With `each_ranks`, return True also for a case that
    could be the fastest on its number of ranks.
    """
    fitting = [entry for entry in rows if entry["counted"] and entry["fits"]]
    same_ranks = [entry for entry in fitting if entry["ranks"] == ranks] if each_ranks else []
    if seconds <= max(least_seconds(fitting), least_seconds(same_ranks) if same_ranks else 0):
        return True
    best = best_case(fitting)
    limit = ENOUGH * least_seconds(fitting)
    return seconds <= limit and (ranks, seconds) <= (best["ranks"], epoch_seconds(best))


def next_place(rows, mixtures, is_open):
    """Return the `Candidate.place` whose cases are to be counted next; None after the last.

    Parameters
    ----------
    rows : dict
        Rows of the report by Candidate.
    mixtures : dict
        Least seconds of each mixture, and the Candidates that it consists of, by place.
    is_open : function of seconds and a number of ranks
        Whether such a lower bound requires a count.
    """
    bounds = [(epoch_seconds(entry), candidate.place) for candidate, entry in rows.items()
              if not entry["counted"]]
    bounds += [(seconds, place) for place, (seconds, _) in mixtures.items()]
    opened = [(seconds, place) for seconds, place in bounds if is_open(seconds, place[0])]
    return min(opened)[1] if opened else None

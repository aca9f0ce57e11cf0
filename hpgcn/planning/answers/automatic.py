"""Find the partitions and the strategy that `hpgcn train` takes in the cases of a plan."""
import math

from hpgcn.errors import setting
from hpgcn.partition import NONZERO_METHODS
from hpgcn.partition.effort import expected_seconds
from hpgcn.partition.rows.row_methods import QUICK
from hpgcn.planning.answers.preparation import choose_preparation
from hpgcn.planning.seconds.step_seconds import Machine
from hpgcn.strategies import CHOOSING, STRATEGIES, Product

BY_ROWS = next(each for each in STRATEGIES.values() if each.requires_partition)
BY_HOLDERS = next(each for each in STRATEGIES.values() if each.accepts_nonzero_owners)
METHOD = BY_HOLDERS.method  # method that partitions a graph without parts: it sends fewest rows
PATIENCE = 4.0  # seconds of the partitions that a plan makes by itself, of all numbers of ranks
SEARCHING = [name for name, each in STRATEGIES.items() if each.Plan.searches_holders]
SEARCH = 1.0  # seconds of a run from which on holders of nonzeros are searched for
SHOWN = 12  # rows that are printed
RULE = "the fastest single strategy that moves no more rows than these parts need"


def rows_moved(strategy, plan):
    """Return the rows that all ranks send in one product with A.

    Return None if each product has its own strategy.
    """
    if hasattr(strategy, "kinds"):
        return None
    slices = plan.traffic.slices
    sent, _ = plan.traffic.counts(Product(layer=0, width=slices), itemsize=1)  # 1 byte per row
    return float(sent.sum() / slices)


def sparing_cases(rows, measured=False):
    """Return rows of a report whose strategy sends no more than parts require.

    What counts are the rows of H that the strategy sends. The limit is the smaller
    number of BY_ROWS and BY_HOLDERS, or the larger one if the seconds are those of a
    `measured` machine. Cases with a separate strategy for each product are left out.
    """
    limit = (max if measured else min)(
        entry["rows_moved"] for entry in rows
        if entry["strategy"] in (BY_ROWS.name, BY_HOLDERS.name))
    return [entry for entry in rows
            if entry["rows_moved"] is not None and entry["rows_moved"] <= limit]


def is_searched(strategy, rows, epochs):
    """Return whether a run counts a strategy, which may search for holders of nonzeros.

    The search, and its kernels, must pay: not in a run that takes less than SEARCH without.
    `rows` are those that the run counts before it, with BY_ROWS.
    """
    if strategy not in SEARCHING:
        return True
    seconds = [entry["seconds"]["epoch"] for entry in rows if entry["strategy"] == BY_ROWS.name]
    return epochs * min(seconds, default=math.inf) >= SEARCH


def first_fitting(*choices):
    """Return the first list with a case that fits the memory.

    Without such a list, return the last one, with its cases marked as fitting.
    """
    for rows in choices:
        if any(entry["fits"] for entry in rows):
            return rows
    # the run reports this, or stores less
    return [{**entry, "fits": True} for entry in choices[-1]]


def faster_case(rows, case):
    """Return a clause about a faster case that the rule forbids.

    It is "" if `case` is the fastest.
    """
    fastest = min((entry for entry in rows if entry["fits"]), default=case,
                  key=lambda entry: entry["seconds"]["epoch"])
    if fastest["seconds"]["epoch"] >= case["seconds"]["epoch"]:
        return ""
    return (f"; {fastest['strategy']} would take {fastest['seconds']['epoch']:.3g} s, but sends "
            f"more rows ({setting('strategy', fastest['strategy'])})")


def partitions_first(inputs, rows, methods):
    """Return a list with a note if runs make a partition that was not forecast.

    Otherwise the list is empty.
    """
    counted = inputs.part_counts or inputs.sized or METHOD in (methods or ())
    ranks = {entry["ranks"] for entry in rows} - {1}
    if counted or ranks <= inputs.prepared.keys():
        return []
    return [f"`hpgcn train` on several ranks partitions by {METHOD} first, and then uses {RULE}: "
            f"plan with --method {METHOD}"]


def prepare(inputs, ranks):
    """Return the Preparation of runs on each number of ranks, a dict.

    A number is left out if its partition, with those of fewer ranks, takes more than
    PATIENCE.
    """
    config = inputs.config
    prepared = {}
    seconds_left = PATIENCE
    for k in sorted(set(ranks) - {1}):
        preparation = choose_preparation(inputs.header, inputs.sizes, METHOD, k, config)
        if preparation.method not in QUICK:
            seconds_left -= expected_seconds(preparation.effort, inputs.sizes, k,
                                             holders=preparation.method in NONZERO_METHODS)
        if seconds_left >= 0:
            prepared[k] = preparation
    return prepared


def places_by_ranks(inputs, rows, choose):
    """Return the position in `rows` of the case that runs take, by number of ranks.

    Left out are numbers of ranks whose partition is not among the cases, or some of whose
    cases are not counted. `choose` is `report.choose`.
    """
    if inputs.strategy_options.strategy not in CHOOSING:
        return {}
    place_by_ranks = {}
    for k in dict.fromkeys(entry["ranks"] for entry in rows):
        places = run_cases(inputs, rows, k)
        if k == 1 or (places and all(rows[place]["counted"] for place in places)):
            place_by_ranks[k] = _choose_place(rows, places, choose)
    return place_by_ranks


def run_cases(inputs, rows, k):
    """Return the positions in `rows` of the cases that a run on k ranks compares.

    The list is empty if the run's partition is not among them.
    """
    if k == 1:
        return [next(place for place, entry in enumerate(rows) if entry["ranks"] == 1)]
    if inputs.part_counts:
        parts = inputs.stored_parts if k in inputs.part_counts else None
    else:
        parts = inputs.prepared[k].method if k in inputs.prepared else METHOD
    places = [place for place, entry in enumerate(rows) if entry["ranks"] == k
              and entry["parts"] in (parts, "stored") and entry["rows_moved"] is not None]
    if BY_ROWS.name not in {rows[place]["strategy"] for place in places}:
        return []
    cases = [rows[place] for place in places]
    return [place for place in places
            if is_searched(rows[place]["strategy"], cases, inputs.config.epochs)]


def _choose_place(rows, places, choose):
    """Return the number in `places` of the case that RULE selects."""
    cases = [rows[place] for place in places]
    if len(cases) == 1:
        return places[0]
    allowed = first_fitting(sparing_cases(cases), cases)
    case = allowed[choose(allowed)["index"]]
    return next(place for place, each in zip(places, cases)  # `first_fitting` may have copied it
                if (each["strategy"], each["parts"]) == (case["strategy"], case["parts"]))


def difference(inputs, rows, choice, choose, options):
    """Return notes if a run uses another strategy than the plan's choice.

    The run has no --strategy, and is assumed to use the default machine. `choose` is
    `report.choose`.
    """
    first = partitions_first(inputs, rows, options.methods)
    ranks = choice["ranks"]
    places = run_cases(inputs, rows, ranks)
    if first or ranks == 1 or not places:
        return first
    if options.machine != Machine():
        return [f"`hpgcn train` on {ranks} ranks uses {RULE}, by the seconds of the default "
                f"machine; use --strategy {choice['strategy']} for the choice above"]
    strategy = rows[_choose_place(rows, places, choose)]["strategy"]
    if strategy == choice["strategy"]:
        return []
    return [f"`hpgcn train` on {ranks} ranks uses {strategy}, {RULE}; use --strategy "
            f"{choice['strategy']} for the choice above"]


def shown(report, every=False):
    """Return the positions of the rows to print, those that `hpgcn train` runs first.

    All other rows follow in their order. Without `every` there are at most SHOWN rows: the
    choice, the row of the goal, and the fastest rows.
    """
    rows = report["rows"]
    first = [place for place, entry in enumerate(rows) if entry["train"]]
    other_places = [place for place in range(len(rows)) if place not in first]
    if not every and len(rows) > SHOWN:
        goal = [report["goal"]["index"]] if report["goal"] else []
        required = {report["choice"]["index"], *goal}
        other_places.sort(
            key=lambda place: (place not in required, rows[place]["seconds"]["epoch"]))
        other_places = sorted(other_places[:max(SHOWN - len(first), len(required - {*first}))])
    return first + other_places

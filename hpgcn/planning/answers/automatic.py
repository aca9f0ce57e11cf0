"""Strategy auto: the rule by which a run chooses a strategy, and notes if `hpgcn plan`
chooses another.
"""
from hpgcn.errors import setting
from hpgcn.planning.seconds.step_seconds import Machine
from hpgcn.strategies import STRATEGIES, Product

BY_ROWS = next(each for each in STRATEGIES.values() if each.requires_partition)
BY_HOLDERS = next(each for each in STRATEGIES.values() if each.accepts_nonzero_owners)
METHOD = BY_HOLDERS.method  # method that partitions a graph without parts: it sends fewest rows
RULE = "the fastest single strategy that moves no more rows than these parts need"


def rows_moved(strategy, plan):
    """Return the rows that all ranks send in one product with A; None if each product
    has its own strategy.
    """
    if hasattr(strategy, "kinds"):
        return None
    slices = plan.traffic.slices
    sent, _ = plan.traffic.counts(Product(layer=0, width=slices), itemsize=1)  # 1 byte per row
    return float(sent.sum() / slices)


def sparing(rows, measured=False):
    """Return the rows of a report whose strategy sends no more rows of H than the parts
    require.

    The limit is the smaller number of BY_ROWS and BY_HOLDERS, or the larger one if the
    seconds are those of a `measured` machine. Cases with a separate strategy for each
    product are left out.
    """
    limit = (max if measured else min)(
        entry["rows_moved"] for entry in rows
        if entry["strategy"] in (BY_ROWS.name, BY_HOLDERS.name))
    return [entry for entry in rows
            if entry["rows_moved"] is not None and entry["rows_moved"] <= limit]


def fitting(*choices):
    """Return the first list with a case that fits the memory; else the last list,
    marked as fitting.
    """
    for rows in choices:
        if any(entry["fits"] for entry in rows):
            return rows
    # the run reports this, or stores less
    return [{**entry, "fits": True} for entry in choices[-1]]


def passed_over(rows, taken):
    """Return a clause about a faster case that the rule forbids; "" if `taken` is the
    fastest.
    """
    fastest = min((entry for entry in rows if entry["fits"]), default=taken,
                  key=lambda entry: entry["seconds"]["epoch"])
    if fastest["seconds"]["epoch"] >= taken["seconds"]["epoch"]:
        return ""
    return (f"; {fastest['strategy']} would take {fastest['seconds']['epoch']:.3g} s, but sends "
            f"more rows ({setting('strategy', fastest['strategy'])})")


def partitions_first(inputs, rows, methods):
    """Return a list with a note if runs make a partition that was not forecast; else
    [].
    """
    counted = inputs.part_counts or inputs.sized or METHOD in (methods or ())
    ranks = {entry["ranks"] for entry in rows} - {1}
    if counted or ranks <= inputs.prepared.keys():
        return []
    return [f"`hpgcn train` on several ranks partitions by {METHOD} first, and then uses {RULE}: "
            f"plan with --method {METHOD}"]


def difference(inputs, rows, choice, choose, options):
    """Return notes, a list, if a run without --strategy uses a strategy other than the
    plan's choice.

    `choose` is `report.choose`. The run is assumed to use the default machine.
    """
    methods = options.methods
    ranks = choice["ranks"]
    first = partitions_first(inputs, rows, methods)
    if first:
        return first

    # compare strategies on the parts that a run would have
    method = inputs.prepared[ranks].method if ranks in inputs.prepared else METHOD
    parts = rows if inputs.part_counts else [
        entry for entry in rows if entry["parts"] in (method, "stored")]
    same = [entry for entry in parts if entry["ranks"] == ranks]
    if ranks == 1 or BY_ROWS.name not in {entry["strategy"] for entry in same}:
        return []

    if options.machine != Machine():
        return [f"`hpgcn train` on {ranks} ranks uses {RULE}, by the seconds of the default "
                f"machine; use --strategy {choice['strategy']} for the choice above"]

    taken = choose(fitting(sparing(same), same))["strategy"]
    if taken == choice["strategy"]:
        return []
    return [f"`hpgcn train` on {ranks} ranks uses {taken}, {RULE}; use --strategy "
            f"{choice['strategy']} for the choice above"]

"""The cases of a plan that `hpgcn train` would run: its partitions, and the rows that it takes."""
from hpgcn.model import ModelOptions
from hpgcn.partition import NONZERO_METHODS
from hpgcn.partition.effort import expected_seconds
from hpgcn.partition.rows.row_methods import QUICK
from hpgcn.planning.answers.automatic import BY_ROWS, METHOD, fitting, sparing
from hpgcn.planning.answers.preparation import choose_preparation
from hpgcn.strategies import CHOOSING

PATIENCE = 4.0  # seconds of the partitions that a plan makes by itself, of all numbers of ranks
SHOWN = 12  # rows that are printed


def prepare(inputs, ranks):
    """Return the Preparation of runs on each number of ranks, a dict.

    Those are left out whose partitions, with those of fewer ranks, take more than PATIENCE.
    """
    config = inputs.config
    prepared = {}
    left = PATIENCE
    for k in sorted(set(ranks) - {1}):
        made = choose_preparation(inputs.header, inputs.sizes, METHOD, k, epochs=config.epochs,
                                  effort=config.effort, model=config.select(ModelOptions))
        if made.method not in QUICK:
            left -= expected_seconds(made.effort, inputs.sizes, k,
                                     holders=made.method in NONZERO_METHODS)
        if left >= 0:
            prepared[k] = made
    return prepared


def taken_by_runs(inputs, rows, choose):
    """Return the position in `rows` of the case that `hpgcn train` runs on each number of
    ranks, a dict.

    Left out are numbers of ranks whose partition is not among the cases, or some of whose
    cases are not counted. `choose` is `report.choose`.
    """
    if inputs.config.strategy not in CHOOSING:
        return {}
    found = {}
    for k in dict.fromkeys(entry["ranks"] for entry in rows):
        parts = _parts(inputs, k)
        same = [entry for entry in rows if entry["ranks"] == k
                and entry["parts"] in (parts, "stored") and entry["rows_moved"] is not None]
        known = all(entry["counted"] for entry in same)
        if k == 1:
            taken = next(entry for entry in rows if entry["ranks"] == 1)
        elif known and BY_ROWS.name in {entry["strategy"] for entry in same}:
            allowed = fitting(sparing(same), same)
            taken = same[same.index(_like(allowed[choose(allowed)["index"]], same))]
        else:
            continue
        found[k] = next(place for place, entry in enumerate(rows) if entry is taken)
    return found


def _parts(inputs, k):
    """Return the name of the parts of a run on k ranks, as rows have it."""
    if inputs.part_counts:
        return inputs.method or "given" if k in inputs.part_counts else None
    return inputs.prepared[k].method if k in inputs.prepared else METHOD


def _like(entry, rows):
    """Return the row that `fitting` may have copied."""
    return next(each for each in rows
                if (each["strategy"], each["parts"]) == (entry["strategy"], entry["parts"]))


def shown(report, every=False):
    """Return the positions of the rows to print, those that `hpgcn train` runs first.

    All other rows follow in their order. Without `every` there are at most SHOWN rows: the
    choice, the row of the goal, and the fastest rows.
    """
    rows = report["rows"]
    first = [place for place, entry in enumerate(rows) if entry["train"]]
    rest = [place for place in range(len(rows)) if place not in first]
    if not every and len(rows) > SHOWN:
        wanted = {report["choice"]["index"], *([report["goal"]["index"]] if report["goal"] else [])}
        rest.sort(key=lambda place: (place not in wanted, rows[place]["seconds"]["epoch"]))
        rest = sorted(rest[:max(SHOWN - len(first), len(wanted - {*first}))])
    return first + rest

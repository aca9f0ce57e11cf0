"""`hpgcn plan --sweep`: forecast several models on several numbers of ranks."""
import dataclasses
from dataclasses import dataclass

from hpgcn.config import COST_FIELDS
from hpgcn.errors import ConfigError, UsageError
from hpgcn.graphs.validation import MAX_WIDTH, numbers
from hpgcn.planning.answers import report
from hpgcn.planning.answers.automatic import partitions_first
from hpgcn.planning.answers.goals import epoch_seconds
from hpgcn.planning.counts.plan_input import title_of
from hpgcn.planning.counts.sized_input import make_input
from hpgcn.runtime.text_table import table as aligned
from hpgcn.sampling import parse as parse_batch

MOST_LAYERS = 1000


@dataclass(frozen=True)
class ModelSweep:
    """The models of a sweep.

    Every pair of a hidden width and a number of layers, each ascending.
    """

    hidden: tuple[int, ...]
    layers: tuple[int, ...] | None = None  # None: that of the settings

    @staticmethod
    def parse(text):
        """Parse `64,128,256` or `64,128,256:2,3`; UsageError for other text."""
        hidden, colon, layers = text.partition(":")
        return ModelSweep(_ascending(hidden, MAX_WIDTH),
                          _ascending(layers, MOST_LAYERS) if colon else None)


def forecast(path, options, sweep, *, progress=False):
    """Forecast a training step of each model of a ModelSweep in every case of the Options.

    The graph is partitioned once for all models. Only the first and the last of
    options.widths are used. Return the JSON object of docs/plan.md, a dict: `models`
    has a dict for each model, with the `rows` and the `choice` of a plan. Errors as
    `report.forecast`; ConfigError if no model fits options.memory in any case;
    UsageError with batches or a goal.
    """
    # refuse questions about one model
    if parse_batch(options.config.batch):
        raise UsageError("--sweep compares seconds, which are not forecast for --batch "
                         f"{options.config.batch}")
    if options.goal:
        raise UsageError(f"--goal {options.goal.text} works with one model: remove --sweep")

    # compare the cases of each model; all share the partitions
    partitions = {}
    models = []
    for layers in sweep.layers or (options.config.layers,):
        for hidden in sweep.hidden:
            ends = options.widths
            one = dataclasses.replace(
                options, config=options.config.replace(hidden=hidden, layers=layers),
                widths=ends and (ends[0], *[hidden] * (layers - 1), ends[-1]))
            inputs = make_input(path, one, partitions)
            rows = report.compare(inputs, one, progress, each_ranks=True)
            fits = any(row["fits"] for row in rows)
            models.append({"hidden": hidden, "layers": layers, "step": report.step_of(inputs),
                           "rows": rows, "choice": report.choose(rows) if fits else None})

    # refuse a limit that no model fits
    if not any(model["choice"] for model in models):
        least = min(row["memory"]["max_bytes"] for model in models for row in model["rows"])
        raise ConfigError(f"{inputs.name}: --memory is {options.memory:,} bytes per rank, but "
                          f"every model needs at least {least:,} on these ranks")

    every = [row for model in models for row in model["rows"]]
    return {"graph": inputs.describe(path),
            "settings": {name: getattr(options.config, name) for name in COST_FIELDS
                         if name not in ("hidden", "layers")},
            "machine": report.machine_of(options), "memory_limit_bytes": options.memory,
            "models": models,
            "notes": [*inputs.notes, *report.left_out(inputs, every, options),
                      *report.notes(options, every),
                      *partitions_first(inputs, every, options.methods)]}


def best_of(model):
    """Return the fastest case of a model for each number of ranks, a list.

    The case with fewest ranks is first. If no case fits the memory of a rank, it is the
    case that needs least memory.
    """
    found = {}
    for row in model["rows"]:
        found.setdefault(row["ranks"], []).append(row)
    return [min((row for row in rows if row["fits"]), key=epoch_seconds, default=None)
            or min(rows, key=lambda row: row["memory"]["max_bytes"])
            for _, rows in sorted(found.items())]


def table(found):
    """Return text with the best case of each model on each number of ranks.

    It has no line feed at the end.
    """
    graph = found["graph"]
    lines = [f"{title_of(graph)}; the best case of {len(found['models'])} models on each number "
             "of ranks", *found["notes"]]
    columns = ("ranks", "strategy", "parts", "grid", "s/epoch", "communication", "MB sent",
               "max MB", "GB/rank")
    cases = [("layers", "hidden", *columns)]

    # the best case of each model on each number of ranks
    marks = {}
    for model in found["models"]:
        choice = model["choice"]
        for row in best_of(model):
            if choice and row is model["rows"][choice["index"]]:
                marks[len(cases)] = "<- choice"
            cases.append((str(model["layers"]), str(model["hidden"]),
                          *(report.CELLS[name](row) for name in columns)))

    if not all(row["fits"] for model in found["models"] for row in best_of(model)):
        lines.append("! more than --memory")
    return "\n".join([*lines, "", aligned(cases, left=(3, 4), marks=marks, keys=3)])


def _ascending(text, most):
    return tuple(sorted(set(numbers("--sweep", text, most))))

"""The input of planning a graph that does not exist yet: its sizes alone."""
import re

from hpgcn.errors import UsageError, setting
from hpgcn.graphs.header import Header
from hpgcn.model import MODELS, products_of
from hpgcn.parallel.layout import split
from hpgcn.parallel.random_pattern import RandomPattern
from hpgcn.planning.counts.locality import Locality
from hpgcn.planning.counts.plan_input import ModelInput, PlanInput

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}
MOST = 1 << 48


class SizedRows:
    """The rows of a RandomPattern, in place of OrderedRows: they are alike in any order."""

    feature_entries = labeled = within = evaluation = None

    def __init__(self, pattern, hops):
        self.pattern = pattern
        self.train = self.evaluated = [None] * (hops + 1)

    def stored_before(self, offsets):
        """Return the stored entries before each of these rows."""
        return self.pattern.indptr[offsets]


class RandomLocality(Locality):
    """Reuse of rows that are read in random order."""

    def __init__(self, num_rows):
        self.num_rows = num_rows

    @property
    def missed(self):
        return (1 - 1 / self.num_rows) ** self.SPANS


class SizedInput(ModelInput):
    """The sizes of a graph with random entries, and the parts of a plan that follow from them.

    Strategies are counted whose plans count blocks of entries; others need the entries.
    """

    sized = True

    def __init__(self, header, config, widths=None):
        if config.training_graph != "all":
            raise UsageError(f"{setting('training_graph', config.training_graph)}: needs a graph "
                             "file; sizes alone have no split")
        if config.task == "links":
            raise UsageError(f"{setting('task', config.task)}: needs a graph file; sizes alone "
                             "have no links")
        super().__init__(header.name, header, config, widths)
        self.notes.append("sizes alone: entries are taken to be random, so that parts of any "
                          "method send alike; communities and hubs send less")
        loops = MODELS[self.spec.architecture].self_loops
        entries = header.num_edges - (0 if loops else header.num_nodes)
        pattern = RandomPattern(header.num_nodes, max(0, entries), symmetric=self.symmetric)
        self.ordered = SizedRows(pattern, sum(products_of(self.spec)))
        self.locality = RandomLocality(header.num_nodes)

    def row_offsets(self, strategy, shape):
        return split(self.header.num_nodes, strategy.block_grid(shape)[0])

    def divided(self, method, k):
        return self.ordered, split(self.header.num_nodes, k)

    def describe(self, path):
        return super().describe(path) | {"path": None}


def parse_sizes(vertices, edges, features=None, classes=None, *, directed=False):
    """Return the Header of a graph of these sizes, given as text such as 111M.

    Without `directed` each edge is stored in both directions. UsageError if a size is
    invalid, or if one of the first two is missing.
    """
    if vertices is None or edges is None:
        raise UsageError("plan: --vertices and --edges are given together, without GRAPH")
    n, stored = count("--vertices", vertices), count("--edges", edges)
    if not n:
        raise UsageError(f"--vertices {vertices}: expected at least 1")
    stored *= 1 if directed else 2
    widths = {name: count(f"--{flag}", text) for name, flag, text in (
        ("num_features", "features", features), ("num_classes", "classes", classes))
        if text is not None}
    return Header(f"{vertices} vertices and {edges} edges", n, stored, directed=directed,
                  all_ones=True, **widths)


def count(flag, text):
    """Parse a count such as 128, 1.6G or 111M, in powers of 1000; UsageError for other text."""
    found = re.fullmatch(r"(\d+|\d*\.\d+)([KMGBT]?)", text.upper(), re.ASCII)
    value = round(float(found[1]) * UNITS[found[2]]) if found else MOST
    if value >= MOST:
        raise UsageError(f"{flag} {text!r:.40}: expected a count, such as 1000, 111M or 1.6G")
    return value


def make_input(path, options, partitions=None):
    """Return the PlanInput of a graph file, or the SizedInput if the Options have sizes."""
    if options.sizes is not None:
        return SizedInput(options.sizes, options.config, options.widths)
    return PlanInput(path, options.config, options.widths, partitions)

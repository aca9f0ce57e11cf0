"""Who owns which vertex: methods, the engines behind them, and what a partition costs."""
from hpgcn.graphs.partition import Partition
from hpgcn.partition.files import read_parts, write_parts
from hpgcn.partition.methods import (
    METHOD_ENGINES,
    METHODS,
    NONZERO_METHODS,
    given_partition,
    make_partition,
)
from hpgcn.partition.model import dense_weight
from hpgcn.partition.quality import describe, format_statistics, relative, statistics

__all__ = [
    "METHODS", "METHOD_ENGINES", "NONZERO_METHODS", "Partition", "dense_weight", "describe",
    "format_statistics", "given_partition", "make_partition", "read_parts", "relative",
    "statistics", "write_parts",
]

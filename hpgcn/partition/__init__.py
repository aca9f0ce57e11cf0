"""Who owns which vertex: methods, the engines behind them, and what a partition costs."""
from hpgcn.partition.files import read_parts, write_parts
from hpgcn.partition.methods import METHOD_ENGINES, METHODS, given_partition, make_partition
from hpgcn.partition.partition import Partition
from hpgcn.partition.quality import format_statistics, statistics

__all__ = ["METHODS", "METHOD_ENGINES", "Partition", "format_statistics", "given_partition", "make_partition",
           "read_parts", "statistics", "write_parts"]

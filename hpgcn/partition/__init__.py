"""Partitions of graphs: methods, the engines that they run, and the cost of a partition.

The names below load on first use, because the child process of an engine needs none of
them.
"""
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpgcn.graphs.partition import Partition
    from hpgcn.partition.method_table import (
        METHODS,
        NONZERO_METHODS,
        STOCHASTIC,
        PartitionOptions,
        check_sampled,
    )
    from hpgcn.partition.methods import given_partition, make_partition
    from hpgcn.partition.part_files import read_parts, write_parts
    from hpgcn.partition.quality import describe, format_statistics, relative, statistics
    from hpgcn.partition.rows.partition_model import dense_weight
    from hpgcn.partition.stored_parts import partition_stored

__all__ = [
    "METHODS", "NONZERO_METHODS", "STOCHASTIC", "Partition", "PartitionOptions", "check_sampled",
    "dense_weight", "describe", "format_statistics", "given_partition", "make_partition",
    "partition_stored", "read_parts", "relative", "statistics", "write_parts",
]

_HOMES = {
    "hpgcn.graphs.partition": ["Partition"],
    "hpgcn.partition.part_files": ["read_parts", "write_parts"],
    "hpgcn.partition.method_table": [
        "METHODS", "NONZERO_METHODS", "STOCHASTIC", "PartitionOptions", "check_sampled"],
    "hpgcn.partition.methods": ["given_partition", "make_partition"],
    "hpgcn.partition.rows.partition_model": ["dense_weight"],
    "hpgcn.partition.quality": ["describe", "format_statistics", "relative", "statistics"],
    "hpgcn.partition.stored_parts": ["partition_stored"],
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'hpgcn.partition' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

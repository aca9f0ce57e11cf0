"""The settings of a run that strategies read."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StrategyOptions:
    """Fields and properties of hpgcn.Config, by the same names; `Config.select` makes it."""

    strategy: str
    grid: str
    replication: int
    balance: float
    delay: str
    pipeline_batches: int
    aggregate_on: str
    update_on: str
    updates_on: str
    aggregates_on_host: bool

"""Compare runs: a table for the terminal, pictures, and one HTML file (docs/report.md)."""
from hpgcn.report.breakdown import check_breakdown, write_breakdown
from hpgcn.report.page import check_output, write
from hpgcn.report.recorded_runs import Run, read_runs
from hpgcn.report.run_sweep import expanded, sweep_of
from hpgcn.report.table import table

__all__ = ["Run", "check_breakdown", "check_output", "expanded", "read_runs", "sweep_of",
           "table", "write", "write_breakdown"]

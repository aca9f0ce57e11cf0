"""How many ranks, which partition, which strategy, how much memory, how long: told from a graph's file alone."""
from hpgcn.forecast.options import Options, read_machine
from hpgcn.forecast.picture import check_picture, plot
from hpgcn.forecast.report import forecast, table

__all__ = ["Options", "check_picture", "forecast", "plot", "read_machine", "table"]

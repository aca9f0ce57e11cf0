"""What a training step will send, computed from numbers known before it runs (pure); formulas: docs/strategies.md.

Bytes are the payload that ranks contribute to OTHER ranks, whatever MPI's algorithm; a message is one non-empty
(source, destination) pair of a call. Scalars (losses, counts, times) are not counted, nor is setting up.
"""
from hpgcn.cost.blocks import STRATEGIES, block_nonzeros, check_grid, cube, default_grid, row_blocks, stage_nonzeros
from hpgcn.cost.step import Step, aggregate_first, gcn_exchanges, num_parameters
from hpgcn.cost.strategies import Blocks, Map, RankVolumes, block_bytes, p2p_step, predict, predict_step, product_counts
from hpgcn.cost.traffic import KINDS, PHASES, Prediction, Traffic

__all__ = ["KINDS", "PHASES", "STRATEGIES", "Blocks", "Map", "Prediction", "RankVolumes", "Step", "Traffic",
           "aggregate_first", "block_bytes", "block_nonzeros", "check_grid", "cube", "default_grid", "gcn_exchanges",
           "num_parameters", "p2p_step", "predict", "predict_step", "product_counts", "row_blocks", "stage_nonzeros"]

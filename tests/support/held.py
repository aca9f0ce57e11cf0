"""Compare the arrays that a trainer allocates with the plan for its rank."""
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hpgcn.parallel.csr import Csr
from hpgcn.parallel.nodes.node_plan import NodePlan
from hpgcn.planning.answers.candidates import count
from hpgcn.strategies.delayed import DelayedVertexCut
from hpgcn.strategies.grids.summa import Summa
from hpgcn.strategies.mixture.mop import MixtureOfParallelism
from hpgcn.training.setup.placement import assign_rows
from hpgcn.training.steps.training_step import evaluate
from hpgcn.training.trainer import make_trainer


def run_two_epochs(source, config, comm):
    """Train and evaluate two epochs; return the Trainer and the metrics of its steps."""
    trainer = make_trainer(source, config, comm, warm=False)
    metrics = []
    for number in (1, 2):
        metrics.append(trainer.train_epoch(number))
        evaluate(trainer.evaluation)
    return trainer, metrics


def footprint_of(source, config, comm, inputs):
    """Return the RankFootprint that a plan predicts for this run, given a PlanInput."""
    placed = assign_rows(source, comm, config)
    grid = placed.rank_grid
    return count(inputs.ordered, inputs, placed.strategy, grid.shape, placed.layout.offsets,
                 nodes=grid.nodes)


def distinct(arrays):
    """Return the total bytes of arrays, counting each array once."""
    return sum({id(array): array.nbytes for array in arrays if array is not None}.values())


def arrays_of(matrix):
    """Return the arrays of a Csr and its cached transpose, or [array] for a dense one."""
    if not isinstance(matrix, Csr):
        return [matrix]
    arrays = [matrix.indptr, matrix.indices, matrix.data, matrix.edges]
    transpose = matrix._known.get("transpose")
    return arrays + (arrays_of(transpose) if transpose else [])


def matrix_of(strategy):
    """Return (arrays of the blocks of A, arrays of row numbers) that a strategy stores."""
    if isinstance(strategy, Summa):
        blocks = {strategy.A, strategy.A_transposed}
        return [message for each in blocks for message in each.messages.values()], []
    if isinstance(strategy, MixtureOfParallelism):
        blocks = strategy.operand.block, strategy.operand_back.block
        return [array for each in blocks for array in arrays_of(each)], []
    blocks, listed = [], []
    for product in dict.fromkeys((strategy.product, strategy.back)):
        blocks += product.all_blocks()
        halos = [transfer.plan for transfer in (product.pull, product.push)
                 if hasattr(transfer, "plan")]
        halos = [each for halo in halos for each in (
            (halo.first, halo.second) if isinstance(halo, NodePlan) else (halo,))]
        listed += [numbers for halo in halos for numbers in (halo.ghosts, halo.send_rows)]
        listed += [each._known["rows"] for each in product.all_blocks() if "rows" in each._known]
    if isinstance(strategy, DelayedVertexCut) and not strategy.parent:
        replicas = strategy.replicas
        listed += [replicas.ghosts, replicas.send_rows, strategy.sums[0].exchange.replicas]
        for plan, numbers in strategy.bins:
            listed += [plan.ghosts, plan.send_rows, numbers]
    return [array for each in blocks for array in arrays_of(each)], listed


def work_arrays(trainer):
    spaces = trainer.training.model.workspace, trainer.shard.columns.workspace
    return {name: array for space in spaces for name, array in space.arrays.items()}


def check_held(footprint, trainer, rank=0):
    said = {name: int(sizes[rank]) for name, sizes in footprint.parts.items()}
    shard, spec = trainer.shard, trainer.shard.spec
    views = trainer.training, trainer.evaluation
    work = {name: array.nbytes for name, array in work_arrays(trainer).items() if array.nbytes}
    step = footprint.rank_steps[rank].arrays
    layers = [layer for view in views for layer in view.model.layers]
    attentions = [layer.attention for layer in layers if layer.uses_attention]
    if attentions:  # what is formed for others' rows is bounded, and may lie by columns
        said["activations"] += said.pop("buffers")
        more = {id(array): array.nbytes for each in attentions for array in each.arrays}
        held = sum(work.values()) - work.get("X", 0)
        held += sum(more.values()) + shard.strategy.buffer_bytes
        assert held <= 1.02 * said["activations"] + 4096
        # rows of others that a backward needs are let go of at the end of a step
        assert said["activations"] <= 3 * held + 8192
    if not attentions or all(hasattr(each, "columns") for each in attentions):
        np.testing.assert_equal({name: nbytes for name, nbytes in step.items() if nbytes}, work)

    dropped = work.pop("X", 0)
    features = [each for view in views for each in view.features.arrays()]
    parts = [layer._self_part for view in views for layer in view.model.layers[:1]]
    features += [each for each in parts if each is not None]
    if spec.sparse_features:
        dropped += 2 * trainer.training.features.X.data.nbytes
    strategies = {shard.strategy, shard.training_strategy}
    wholes = [each for strategy in strategies
              for each in getattr(strategy, "maps", {"": strategy}).values()]
    maps = [*wholes, *(each for field in (shard.train, shard.evaluated) for each in field.maps
                       if each is not None)]
    matrices, listed = zip(*map(matrix_of, dict.fromkeys(maps)))
    held = {
        "matrix": distinct([array for each in matrices for array in each]),
        "features": (distinct([array for each in features for array in arrays_of(each)]) + dropped
                     + distinct([getattr(each, "edge_features", None) for each in wholes])),
        "activations": said["activations"] if attentions else sum(work.values()),
        "buffers": sum(each.buffer_bytes for each in strategies) + distinct(
            [array for layer in layers if layer.uses_edge_features
             for array in layer.messages.arrays]),
        "plan": distinct([array for each in listed for array in each]),
        "parameters": 6 * trainer.parameters.flat.nbytes}
    # even shares of the columns are forecast
    if spec.sparse_features and shard.columns.row.size > 1:
        assert abs(said["features"] / held.pop("features") - 1) < 0.3
    held = {name: held[name] for name in held if name in said}
    np.testing.assert_equal({name: said[name] for name in held}, held)


@contextmanager
def peak_within():
    """Yield a list, to which the block's peak growth of resident memory (bytes) is added."""
    grown = []
    peaks = []

    def take():
        status = Path("/proc/self/status").read_text()
        peaks.append(int(status.partition("VmHWM:")[2].split()[0]) * 1024)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak

    try:
        take(), take()
    except OSError as error:
        pytest.skip(f"the peak of this process cannot be taken anew: {error}")
    yield grown
    take()
    grown.append(peaks[-1] - peaks[-2])

"""The arrays of a rank that a pass through a model reads and writes, turn by turn.

hpgcn.runtime.disk.residency brings them into memory before a turn, and drops contents that
the pass does not read again.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from hpgcn.errors import InternalError
from hpgcn.parallel.halo_exchange import come_first, nearest_first
from hpgcn.parallel.transfers import LOCAL

if TYPE_CHECKING:
    from hpgcn.kernels import Array
    from hpgcn.model import Features, Model
    from hpgcn.planning.counts.touches import PassTurns, Wait
    from hpgcn.strategies.rows import RowProduct
    from hpgcn.strategies.strategy import Strategy
    from hpgcn.training.setup.shard import GraphShard
    from hpgcn.training.steps.training_step import StepView


class PassArrays:
    """The arrays of the segments of a pass, which end where the rank waits for others.

    Parameters
    ----------
    turns : hpgcn.planning.counts.touches.PassTurns
    model : hpgcn.model.Model
    features : pair of hpgcn.model.Features
        Those of a training step and of an evaluation.
    """

    def __init__(self, turns: PassTurns, model: Model,
                 features: tuple[Features, Features]) -> None:
        self.turns = turns
        self.last = len(turns.segments)  # number of the segment after the pass
        comm = model.columns.comm
        # ranks with some columns of results wait for the others before they read them
        self.results = turns.results if model.columns.row.size > 1 else {}
        others = [source for source in nearest_first(comm, range(comm.size))
                  if source != comm.rank]
        self.first = {LOCAL, comm.rank, *come_first(comm, others)}
        self.maps = [each for hop in model.field.hops for each in hop.maps]
        self.spaces = [model.workspace, model.columns.workspace, *{id(each): each for each in (
            getattr(strategy, "float32_sums", None) for strategy in self.maps) if each}.values()]
        self.products = {wait: self._product(wait) for wait in turns.waits  # made by this rank
                         if wait.product and not self._strategy(wait).sends_own_rows}
        self.constant = {(which, place): array for which, read in enumerate(features)
                         for place, array in enumerate(read.dense_arrays())}
        self.constant |= model.constant_arrays()

    @property
    def work(self) -> dict[str, Array]:
        """The work arrays by name, of which the first pass may have to make some."""
        return {name: array for space in self.spaces for name, array in space.arrays.items()}

    def check(self, segment: int, *ends: Any) -> None:
        """Raise InternalError unless a segment ends as planned: see `SerialComm.end_segment`.

        Else contents that are read would be dropped. The last segment ends with the pass.
        """
        waits = self.turns.waits
        planned = waits[segment].ends if segment < len(waits) else ()
        if planned != ends or segment >= self.last:
            raise InternalError(f"segment {segment} of a pass ends with {ends}, planned {planned}")

    def coming(self, segment: int) -> list[tuple[Array, int, int]]:
        """Return the arrays of the turn that begins with a segment.

        Each is (array, bytes that the turn reads, bytes that it writes), from the begin of
        the array. The turn begins in the product before the segment, and ends in the one after it.
        After the last segment, they are the results of the pass.
        """
        found = []
        arrays = self.constant | self.work
        if segment == self.last:
            found += [(arrays[name], nbytes, 0) for name, nbytes in self.results.items()
                      if name in arrays]
        else:
            found += [(arrays[each.key], each.read, each.written)
                      for each in self.turns.segments[segment] if each.key in arrays]
            if segment:
                found += self._after(self.turns.waits[segment - 1])
            if segment < len(self.turns.waits):
                found += self._before(self.turns.waits[segment])
        return found

    def _before(self, wait: Wait) -> list[tuple[Array, int, int]]:
        """Return the arrays of a product that a rank touches before a wait."""
        found = []
        product = self.products.get(wait)
        if product is None:
            return found
        if wait.first:
            found.append(_read(product.pull.send_rows))
        if wait.last:  # own rows, and rows that come first
            every = wait.finds_all or not wait.first
            found += self._blocks(wait, lambda source: every or source in self.first)
            if wait.finds_all:
                found.append(_read(product.push.send_rows))
            if wait.product.kept:
                found += map(_read, self._strategy(wait).cached_ghost_rows.values())
        return found

    def _after(self, wait: Wait) -> list[tuple[Array, int, int]]:
        """Return the arrays of a product that a rank touches after a wait."""
        found: list[tuple[Array, int, int]] = []
        if wait.product is None:
            return found
        product = self.products.get(wait)
        if product is None:
            arrays = self._strategy(wait).matrix_arrays(wait.product) if wait.first else ()
            return [*map(_read, arrays)]
        if wait.finds_all or not wait.last:
            return found
        found.append(_read(product.push.send_rows))
        if wait.first:
            found += self._blocks(wait, lambda source: source not in self.first)
        return found

    def dead(self, segment: int) -> Iterator[tuple[Array, int]]:
        """Yield (array, first byte) of contents that are not read before a segment or later.

        Only those of work arrays that the segment before has touched; before the first one of all.
        """
        dead = self.turns.dead
        if segment:
            dead = {each.key: each.dead for each in self.turns.segments[segment - 1]}
        work = self.work
        for name in dead.keys() & work.keys():
            yield work[name], dead[name]

    def named(self) -> list[Array]:
        """Return all arrays that the plan names."""
        return [*self.work.values(), *self.constant.values()]

    def _strategy(self, wait: Wait) -> Strategy:
        return self.maps[wait.product.layer]

    def _product(self, wait: Wait) -> RowProduct:
        strategy = self._strategy(wait)
        if not wait.product.backward:
            return strategy.product
        return strategy.attention_back if wait.product.heads else strategy.back

    def _blocks(self, wait: Wait, chosen: Callable) -> list[tuple[Array, int, int]]:
        """Return the arrays that a product reads of the blocks whose source is chosen."""
        return [_read(array) for row in self.products[wait].blocks.values()
                for source, block in row.items() if chosen(source)
                for array in wait.product.arrays_read(block)]


def _read(array: Array) -> tuple[Array, int, int]:
    """Return an array that a turn reads, as `PassArrays.coming` does."""
    return array, array.nbytes, 0


def plan_passes(shard: GraphShard, training: StepView | None, evaluation: StepView) -> None:
    """Let the models of two views report the arrays of their passes to the communicator.

    Without a `training` view, only evaluations do. Do nothing unless arrays are in files, by a
    strategy whose turns are planned.
    """
    strategy = shard.strategy
    comm = shard.comm
    if not (comm.device.in_files and strategy.spools):
        return
    step = shard.rank_step()
    features = (training or evaluation).features, evaluation.features
    turns = step.turns(type(strategy), finds_all=comm.finds_all)
    if training:
        training.model.step_arrays = PassArrays(turns[0], training.model, features)
    evaluation.model.evaluation_arrays = PassArrays(turns[1], evaluation.model, features)

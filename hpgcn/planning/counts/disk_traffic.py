"""Count the bytes that ranks of one process read from and write to a disk.

They are those of an epoch. Arrays of the ranks are files, and each turn of a rank moves
the arrays that it touches (hpgcn.runtime.disk.residency). A turn begins when a rank has
received rows in a product with A. It ends with the wait in the next product.
"""
from dataclasses import dataclass

import numpy as np

from hpgcn.comm.spool import NEAR, buffer_bytes
from hpgcn.parallel.counts import all_spooled, spooled
from hpgcn.parallel.sizes import ExchangeSizes
from hpgcn.planning.counts import touches
from hpgcn.planning.counts.footprint import COPIES
from hpgcn.strategies.plan import INDEX, POINTER, SpoolMemory, sum_bytes

INDEX_ARRAYS = 3  # arrays of row numbers: to send, to receive, and touched by a block
STORED = 2  # stored blocks of a matrix in memory: one is used, one comes
KINDS = 3  # arrays of partial results and gradients: see `_small_of_rows`
SHARED, LEARNED = 6, 5  # arrays of the size of parameters, and of learned rows: see `_optimized`
ARRAYS, MATRIX, MESSAGES = PURPOSES = "arrays of the model", "matrix", "messages"


@dataclass(frozen=True, eq=False)
class DiskTraffic:
    """Bytes by rank, (P,) int64, of a training step or of an evaluation."""

    moved: dict  # bytes read and written for each of PURPOSES, (2, P)
    turn: np.ndarray  # the most that a turn touches, without messages in a Spool
    messages: int  # the most bytes of messages in a Spool that are in memory at a time
    largest: int  # bytes of the largest message in a Spool, or stored block of a matrix
    joined: int  # the most bytes of its messages that are put together in one array, or of sums
    waiting: np.ndarray  # (2, P): the most bytes that wait in a product, from ranks and to them

    @property
    def read(self):
        """Bytes that each rank reads."""
        return sum(each[0] for each in self.moved.values())

    @property
    def written(self):
        """Bytes that each rank writes."""
        return sum(each[1] for each in self.moved.values())

    @property
    def nbytes(self):
        """Bytes read and written by all ranks."""
        return int(self.read.sum() + self.written.sum())


def disk_traffic(footprint, strategy, in_files=None, rule=spooled, *, processes=1):
    """Return the DiskTraffic of a step and of an evaluation.

    `footprint` is a RankFootprint, `strategy` a subclass of
    hpgcn.strategies.strategy.Strategy. Arrays of the first `in_files` ranks are in files, by
    default of all. `rule` is the function of hpgcn.parallel.counts for messages. But for
    those in a Spool, a turn touches its messages as well. The ranks are in some `processes`.
    """
    in_files = footprint.rows.size if in_files is None else in_files
    itemsize = footprint.spec.row_itemsize
    sends_own_rows = strategy.sends_own_rows
    ranks = np.arange(footprint.rows.size)
    finds_all = (ranks == ranks.size - 1) & (processes == 1)  # see `Touches.segments`
    waiting_rule = all_spooled if rule is spooled else rule  # for messages that all ranks wait for
    found = []
    for number, plans in enumerate((footprint.train_plans, footprint.evaluated_plans)):
        # arrays of the model: segments of a rank between its waits
        turns = [step.turns(strategy, finds_all=bool(finds))[number]
                 for finds, step in zip(finds_all, footprint.rank_steps)]
        segments = np.array([each.nbytes for each in turns])
        touched, *moved = np.moveaxis(segments, -1, 0).copy()  # (P, segments)
        moved = {name: np.zeros((2, len(touched)), np.int64) for name in PURPOSES} | {
            ARRAYS: np.array([each.sum(1) for each in moved])}
        largest = joined = 0
        kept_at = {}  # segment in which rows of other ranks were touched last, by layer
        waiting = np.zeros_like(moved[MESSAGES])
        if number == 0:
            moved[ARRAYS] += _optimized(footprint)
        if footprint.layout.columns > 1:  # whose ranks wait for each other's columns of results
            moved[ARRAYS][0] += [sum(each.results.values()) for each in turns]
        shared = {True: waiting, False: waiting}  # messages of collectives have homes of their own
        for sizes, once in _collectives(footprint, number):
            passed = waiting_rule(sizes, in_files, once=once)
            moved[MESSAGES] += passed
            shared[once] = np.maximum(shared[once], passed[::-1])
            largest = max(largest, int(sizes.max()))
        messages = buffer_bytes(largest)

        # the matrix, the messages and the sums of each product
        products = iter(whole_products(footprint, number))
        for place, (product, first, last, complete) in enumerate(turns[0].waits):
            if product is None:  # a sum over ranks
                continue
            if first:
                product_of_rows = next(products)
            product = product_of_rows
            plan = plans[product.layer]
            operand = plan.operands[product.backward]
            entry = itemsize * (not product.heads)
            matrix = operand.nbytes(entry) - small_bytes(operand, entry)
            if product.edge_width:
                matrix = matrix + _large(footprint.edge_bytes)
            if strategy.spools_matrix:
                matrix = 0 * matrix
            if sends_own_rows:
                passed = plan.traffic.spooled(product, itemsize, in_files, waiting_rule)
            else:
                passed = _spooled(plan, product, itemsize, in_files, rule, strategy,
                                  training=number == 0)
            if rule is not spooled:  # written before the wait, read after it
                touched[:, place:place + 2] += passed[::-1].T
            if not last or (sends_own_rows and first):  # all blocks come after it
                touched[:, place + 1] += matrix
            elif first:
                complete = finds_all | complete
                touched[~complete, place:place + 2] += matrix[~complete, None] // 2
                touched[complete, place] += matrix[complete]
            if not last:
                continue
            moved[MATRIX][0] += matrix + _read_numbers(plan, product, operand, itemsize)
            if product.kept and not sends_own_rows:  # constant rows of other ranks
                constant = _large(_rows_of_blocks(plan) * product.kept * itemsize).sum(1)
                moved[ARRAYS][0] += constant
                touched[:, place] += constant
            if not sends_own_rows and _keeps_rows(plan, product):
                rows = _kept_rows(plan, product, itemsize, finds_all, training=number == 0)
                moved[ARRAYS] += rows
                segment = place + (first and not product.backward)
                if kept_at.get(product.layer) != segment:
                    touched[:, segment] += rows.max(0)
                elif product.edge_width:  # half of them came in this turn, the others before it
                    moved[ARRAYS][0] -= rows[0] // 2
                kept_at[product.layer] = segment
            moved[MESSAGES] += passed
            if sends_own_rows:
                held, kept = plan.traffic.held(product, itemsize), 0
                beside = STORED * held.stored
            else:
                held, beside = _held(plan, product, itemsize, strategy)
                kept = _spooled(plan, product, itemsize, in_files, rule, strategy,
                                training=True, late=True)
            messages = max(messages, buffer_bytes(held.largest) + held.joined + beside)
            largest, joined = max(largest, held.largest, held.stored), max(joined, held.joined)
            waiting = np.maximum(waiting, (passed + kept)[::-1])
        for purpose in (ARRAYS, MATRIX):
            moved[purpose][:, in_files:] = 0
        found.append(DiskTraffic(moved, touched.max(1), messages, largest, joined,
                                 sum(shared.values(), waiting)))
    return found


def most_waiting(traffics):
    """Return the most bytes of messages that wait, from each rank and to each, (2, P)."""
    return np.maximum(*[each.waiting for each in traffics])


def _spooled(plan, product, itemsize, in_files, rule, strategy, *, training, late=False):
    """Return the bytes of a product's messages in a Spool that ranks read and write, (2, P).

    `late`: only of sums that come with rows, which may wait until the next ones are sent.
    """
    passed = np.zeros((2, plan.num_ranks), np.int64)
    moves = plan.traffic.moves(product, itemsize)
    pulls = any(transfer.largest for transfer, _, pushed in moves if not pushed)
    for transfer, nbytes, pushed in moves:
        if late and not (pushed and (transfer.joined or product.heads)):
            continue
        # the second sums of attention are for its gradients
        nbytes //= 1 if training or not (pushed and product.heads) else 2
        at_once = taken_at_once(transfer, plan.num_ranks, pulls, strategy.waits(product), pushed)
        passed += transfer.spooled(nbytes, in_files, at_once, pushed=pushed, rule=rule)
    return passed


def taken_at_once(transfer, ranks, pulls, waits, pushed):
    """Return which ranks take rows or sums of the rank before in their next turn, (P,) bool.

    All take what they wait for at its end: the sums, if a product `pulls` no rows or waits for
    them before. In one wait sums follow rows, which only the last rank finds complete, and
    sums of stages wait for those of all ranks. All messages are there for rank 0.
    """
    number = np.arange(ranks)
    sums = waits > 1 or (not pulls and isinstance(transfer, ExchangeSizes))
    return (number == 0) | (pushed == sums) | (waits == 1) & (number == ranks - 1)


def whole_products(footprint, number):
    """Return the products of a step (0) or an evaluation (1) in their order, with all columns."""
    step = footprint.steps.of(footprint.spec, footprint.levels, 0, 1)
    return step.touches[number].products


def _optimized(footprint):
    """Return the bytes that an optimizer reads after a pass and writes, (P,).

    They are of parameters, as they are and as they were, of gradients and of two moments. The
    sums of gradients over ranks are written once more. Ranks that share rows sum a part of
    them, which moves twice, and collect the others.
    """
    shared, learned = footprint.one_copy
    columns = footprint.layout.columns
    gathered = 2 * _large(shared // columns) + _large(shared)
    in_files = shared + learned >= touches.LEAST  # arrays have both
    return (SHARED * shared + LEARNED * learned) * in_files + gathered * (columns > 1)


def _read_numbers(plan, product, operand, itemsize):
    """Return the bytes of numbers of rows that each rank reads in a product, (P,).

    They are those of rows to send, of rows to which sums are added, and of rows that
    blocks touch, which only sparse products read. A matrix may list the first ones too.
    """
    found = {each for each, *_ in plan.traffic.moves(product, itemsize)
             if isinstance(each, ExchangeSizes)}
    listed = sum(each.buffer_rows for each in found)
    touched = operand.index_entries
    touched = np.where(touched < listed, touched, touched - listed) * product.is_spmm
    return sum(_large(count * POINTER) for count in (touched, *(each.sent for each in found)))


def _large(nbytes):
    """Return the bytes of arrays that are large enough for files; 0 for others."""
    return np.where(nbytes < touches.LEAST, 0, nbytes)


def _collectives(footprint, number):
    """Yield messages among ranks that share rows as (bytes, whether all read the same).

    The bytes, (P, P), are by reader and source. They are those of a step (0) or an
    evaluation (1).
    """
    steps = [step.touches[number].collectives for step in footprint.rank_steps]
    for calls in zip(*steps):
        sizes = np.zeros((len(steps), len(steps)), np.int64)
        for rank, (read, _) in enumerate(calls):
            first = rank - rank % read.size
            sizes[rank, first:first + read.size] = read
        yield sizes, calls[0][1]


def _held(plan, product, itemsize, strategy):
    """Return a product's SpoolMemory, and bytes of messages to next ranks in memory."""
    moves = plan.traffic.moves(product, itemsize)
    largest = [transfer.largest * nbytes for transfer, nbytes, _ in moves]
    joined = 0
    if strategy.waits(product) > 1:  # rows of all other ranks, and sums for them
        joined += sum(int(np.max(transfer.ghost_rows)) * nbytes for transfer, nbytes, _ in moves)
    if not all(isinstance(transfer, ExchangeSizes) for transfer, *_ in moves):
        # sums of several ranks are added in pairs, and the sums of pairs
        joined += sum(transfer.largest * nbytes * plan.num_ranks.bit_length()
                    for transfer, nbytes, pushed in moves if pushed)
    return SpoolMemory(joined, max(largest)), NEAR * sum(largest)


def gpu_traffic(found, slots, gpus=1):
    """Return the traffic between GPUs and the homes of their arrays, as `disk_traffic` does.

    `found` is what that returns with the rule `copied`. A rank that has one of the `slots`
    of its GPU to itself keeps its arrays there.
    """
    local = found[0].read.size // gpus
    places = np.arange(local) % slots
    alone = np.tile(np.bincount(places)[places] == 1, gpus)
    for each in found:
        for purpose in (ARRAYS, MATRIX):
            each.moved[purpose] = each.moved[purpose] * ~alone
    return found


def _keeps_rows(plan, product):
    """Return whether a product keeps rows of other ranks, for its gradients."""
    return product.edge_width > 0 or (product.heads > 0 and plan.returns)


def _kept_rows(plan, product, itemsize, finds_all, *, training):
    """Return the bytes that rows which a product keeps for its gradients are moved, (2, P).

    Rows of other ranks and their scores stay from the forward product to the backward one.
    Packed gradients of own rows of attention stay until those of other ranks arrive. A rank
    that `finds_all`, (P,) bool, does not wait for them.
    """
    sizes = _rows_of_blocks(plan)
    kept = sum(_large(sizes * columns * itemsize).sum(1)
               for columns in (product.width, product.heads)) * training
    if not product.backward:
        return np.array([0 * kept, kept])
    rows = np.diff(plan.layout_in.offsets)
    packed = _large(rows * (product.width + product.heads) * itemsize)
    packed = packed * (product.heads > 0) * (not plan.traffic.joined)  # sums came with rows
    packed = packed * ~finds_all
    return np.array([kept + packed, packed])


def _rows_of_blocks(plan):
    """Return the rows of other ranks in each of the blocks that a rank receives, (P, blocks)."""
    pulled = plan.traffic.right
    if isinstance(pulled, ExchangeSizes):
        return pulled.received[:, None] if plan.traffic.one_block else sum(pulled.tables)
    return np.diff(plan.layout_in.offsets) * ~np.eye(plan.num_ranks, dtype=bool)


def small_bytes(operand, itemsize):
    """Return the bytes of a matrix that are in memory, (P,): arrays too small for files."""
    arrays = ((operand.pointers, POINTER), (operand.entries, INDEX),
              (operand.entries, sum_bytes(itemsize)))
    return sum(np.where(count * size < touches.LEAST, count * size, 0) for count, size in arrays)


def small_arrays(footprint):
    """Return the bytes of small arrays of each rank, (P,).

    They are those of matrices, parameters, work and attention. Row numbers of an Operand are
    in INDEX_ARRAYS arrays.
    """
    itemsize = footprint.spec.row_itemsize
    parameters = footprint.parts["parameters"]
    small = np.where(parameters < touches.LEAST * COPIES, parameters, 0)
    for operand in footprint.operands:
        numbers = operand.index_entries * POINTER
        small = small + (small_bytes(operand, itemsize)
                         + np.where(numbers < touches.LEAST * INDEX_ARRAYS, numbers, 0))
    small = small + [sum(nbytes for nbytes in step.arrays.values() if nbytes < touches.LEAST)
                     for step in footprint.rank_steps]
    for product in footprint.products:
        plan = footprint.train_plans[product.layer]
        keeps = product.heads or product.edge_width
        if keeps and not product.backward and plan.traffic.moves(product, itemsize):
            small = small + _small_of_rows(plan, product, itemsize)
    return small


def _small_of_rows(plan, product, itemsize):
    """Return the bytes of small arrays of rows of other ranks that a product has, (P,).

    Rows and scores of each block stay for the gradients. Partial results and gradients of a
    block of attention take KINDS arrays of each width.
    """
    sizes = _rows_of_blocks(plan)
    arrays = [sizes * columns * itemsize for columns in (product.width, product.heads)]
    small = [each - _large(each) for each in arrays]
    return sum(each.sum(1) * _keeps_rows(plan, product) + KINDS * each.max(1) * (product.heads > 0)
               for each in small)

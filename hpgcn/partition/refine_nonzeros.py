"""Refinement of owners of single nonzeros, and of vertices: less volume, then less for the busiest part.

A nonzero (i, j) is held by a part; vertex v, with rows v of H and of A H, is owned by one. A product
pulls row j to every part that holds a nonzero of column j and does not own j, and pushes a partial
sum of row i from every part that holds one of row i and does not own i: the volume is the
connectivity-1 of the fine-grain hypergraph, a net a row and a net a column, whose pins on the
diagonal are the owners (Catalyurek and Aykanat 2001).
"""
from __future__ import annotations

from collections import namedtuple

import numpy as np

from hpgcn.graphs.partition import run_offsets
from hpgcn.graphs.reordering import random_order
from hpgcn.kernels.jit import jit
from hpgcn.partition.refine import _add, _take

PASSES = 60  # at most
STALL = 0.998  # a pass that leaves more than this of the volume gains too little to go on with the total alone
PATIENCE = 4  # passes without a better partition before the last word
STEP = 0.95  # each pass aims at this share of the largest volume
STEEPNESS = 2.0  # what a row more costs the busiest part, in rows of the total, beside itself
HARD, MOST = 1e30, 1e20  # a price that nothing is worth, and costs that are of it
FIRST_PRICE = 0.02  # of a nonzero beyond what a part may hold, in rows sent; doubled from pass to pass

# Lines are the n rows, then the n columns. Line l lists the lam[l] parts that hold something of it from
# first[l] on, with the number of its nonzeros in each. Nonzeros are numbered row by row; those of column j are
# entries[column_starts[j]:column_starts[j + 1]].
State = namedtuple("State", "indptr indices row column_starts entries diagonal holder owner first touched "
                   "pins lam sent load rows total")


def refine_nonzeros(pattern, holder, owner, k, *, epsilon, row_epsilon, seed=0, passes=PASSES, log=None):
    """Lower the volume and what the busiest part sends; balance nonzeros and rows first where they are not.

    Moves are: all nonzeros of a row, or of a column, that a part holds, to another; a vertex, with
    the nonzeros of its row and of its column that its owner holds; its ownership alone.

    Parameters
    ----------
    pattern : csr_array (n, n)
        With a full diagonal, as `hpgcn.partition.model.pattern`.
    holder : (nnz,) int32
        Part of each nonzero; those of the diagonal are ignored, they go with the owner.
    owner : (n,) int32
    epsilon, row_epsilon : float
        Imbalance allowed of nonzeros and of rows; a part may always hold the heaviest row.

    Returns
    -------
    holder, owner : (nnz,) and (n,) int32
    """
    state = _state(pattern, holder, owner, k)
    n = owner.size
    heaviest = int(np.diff(pattern.indptr).max(initial=0))
    cap = max(int((1 + epsilon) * state.indices.size / k), heaviest)
    row_cap = max(int((1 + row_epsilon) * n / k), -(-n // k))
    best = None
    waited = 0
    price = FIRST_PRICE
    gaining = True
    for turn in range(passes):
        volume = int(state.total[0])
        largest = state.sent.max()
        target = np.inf
        slope = 0.0
        if not gaining:
            target = max(state.sent.mean(), STEP * largest)
            slope = STEEPNESS / max(1.0, largest - target)
        heavy = max(state.load.max() - cap, state.rows.max() - row_cap) > 0
        order = random_order(3 * n, seed + turn)
        moved = _sweep(state, order, cap, row_cap, price if heavy else HARD, target, slope)
        price *= 2
        feasible = state.load.max() <= cap and state.rows.max() <= row_cap
        score = (not feasible, int(state.sent.max()) if not gaining else 0, int(state.total[0]))
        if log: log(turn, gaining, moved, int(state.total[0]), int(state.sent.max()), state.load.max()*k/state.load.sum()-1, state.rows.max()*k/n-1, price)
        if gaining:
            if feasible and state.total[0] > STALL * volume:
                gaining = False
                limit = int(state.total[0])
                best = None
            continue
        if best is None or score < best[0]:
            best = (score, state.holder.copy(), state.owner.copy())
            waited = 0
        else:
            waited += 1
        if not moved or waited == PATIENCE:
            break
    if best is None:
        best = (None, state.holder, state.owner)
    return best[1], best[2]


def _state(pattern, holder, owner, k):
    n = owner.size
    indptr = pattern.indptr.astype(np.int64)
    indices = pattern.indices
    row = np.repeat(np.arange(n, dtype=np.int32), np.diff(indptr))
    entries = np.argsort(indices, kind="stable")
    column_starts = run_offsets(np.bincount(indices, minlength=n))
    on = np.flatnonzero(row == indices)
    diagonal = np.empty(n, np.int64)
    diagonal[row[on]] = on
    owner = owner.astype(np.int32)
    holder = holder.astype(np.int32)
    holder[on] = owner[row[on]]
    sizes = np.concatenate([np.diff(indptr), np.diff(column_starts)])
    first = run_offsets(np.minimum(sizes, k) + 1)
    touched = np.empty(first[-1], np.int32)
    pins = np.empty(first[-1], np.int32)
    lam = np.zeros(2 * n, np.int32)
    sent = np.zeros(k, np.int64)
    total = np.zeros(1, np.int64)
    load = np.bincount(holder, minlength=k).astype(np.int64)
    rows = np.bincount(owner, minlength=k).astype(np.int64)
    state = State(indptr, indices, row, column_starts, entries, diagonal, holder, owner, first, touched, pins,
                  lam, sent, load, rows, total)
    _fill(state)
    return state


@jit()
def _fill(s):
    n = s.owner.size
    for t in range(s.indices.size):
        _add(s.row[t], s.holder[t], s.first, s.touched, s.pins, s.lam)
        _add(n + s.indices[t], s.holder[t], s.first, s.touched, s.pins, s.lam)
    for line in range(2 * n):
        _count(s, line, 1)


@jit()
def _count(s, line, sign):
    """Add what is sent because of a line, or take it away."""
    n = s.owner.size
    if line >= n:
        s.sent[s.owner[line - n]] += sign * (s.lam[line] - 1)
    else:
        for at in range(s.first[line], s.first[line] + s.lam[line]):
            if s.touched[at] != s.owner[line]:
                s.sent[s.touched[at]] += sign
    s.total[0] += sign * (s.lam[line] - 1)


@jit()
def _pins(s, line, p):
    """Count the nonzeros of a line in a part."""
    for at in range(s.first[line], s.first[line] + s.lam[line]):
        if s.touched[at] == p:
            return s.pins[at]
    return 0


@jit()
def _payer(s, line, p):
    """The part that sends a row because part p, not the owner, holds something of a line."""
    n = s.owner.size
    return p if line < n else s.owner[line - n]


@jit()
def _price(s, part, target, slope):
    return 1.0 + slope * max(0.0, s.sent[part] - target)


@jit()
def _move_entry(s, t, q):
    """Let part q hold nonzero t, not on the diagonal."""
    n = s.owner.size
    p = s.holder[t]
    for line in (np.int64(s.row[t]), n + np.int64(s.indices[t])):
        if _add(line, q, s.first, s.touched, s.pins, s.lam):
            s.sent[_payer(s, line, q)] += 1
            s.total[0] += 1
        if _take(line, p, s.first, s.touched, s.pins, s.lam):
            s.sent[_payer(s, line, p)] -= 1
            s.total[0] -= 1
    s.holder[t] = q
    s.load[p] -= 1
    s.load[q] += 1


@jit()
def _move_owner(s, v, q):
    """Let part q own vertex v, and hold its nonzero on the diagonal."""
    n = s.owner.size
    p = s.owner[v]
    for line in (v, n + v):
        _count(s, line, -1)
        _add(line, q, s.first, s.touched, s.pins, s.lam)
        _take(line, p, s.first, s.touched, s.pins, s.lam)
    s.owner[v] = q
    s.holder[s.diagonal[v]] = q
    for line in (v, n + v):
        _count(s, line, 1)
    s.load[p] -= 1
    s.load[q] += 1
    s.rows[p] -= 1
    s.rows[q] += 1


@jit()
def _entry(s, line, at):
    """Number of a line's nonzero, the at-th of all."""
    n = s.owner.size
    return at if line < n else s.entries[at]


@jit()
def _ends(s, line):
    n = s.owner.size
    if line < n:
        return s.indptr[line], s.indptr[line + 1]
    return s.column_starts[line - n], s.column_starts[line - n + 1]


@jit()
def _weigh(s, line, p, target, slope, score, seen, parts, mark):
    """Price the nonzeros of a line that a part holds, the diagonal aside.

    Returns their number, what is saved if they leave, what other parts pay for them in every case
    (rows apart), and how many of the lines across are rows; `score` gets what each part
    need not pay, as it holds something of these lines already.
    """
    n = s.owner.size
    number = 0
    saved = 0.0
    fixed = 0.0
    begin, end = _ends(s, line)
    for at in range(begin, end):
        t = _entry(s, line, at)
        if s.holder[t] != p or s.row[t] == s.indices[t]:
            continue
        number += 1
        across = np.int64(s.row[t]) if line >= n else n + np.int64(s.indices[t])
        price = 0.0
        if across >= n:
            price = _price(s, s.owner[across - n], target, slope)
            fixed += price
        for i in range(s.first[across], s.first[across] + s.lam[across]):
            q = s.touched[i]
            if not mark[q]:
                mark[q] = True
                seen[parts] = q
                parts += 1
            cost = price if across >= n else _price(s, q, target, slope)
            score[q] += cost
            if q == p and s.pins[i] == 1:
                saved += cost
    return number, saved, fixed, parts


@jit()
def _see(s, line, seen, parts, mark):
    for at in range(s.first[line], s.first[line] + s.lam[line]):
        q = s.touched[at]
        if not mark[q]:
            mark[q] = True
            seen[parts] = q
            parts += 1
    return parts


@jit()
def _see_part(q, seen, parts, mark):
    if q >= 0 and not mark[q]:
        mark[q] = True
        seen[parts] = q
        parts += 1
    return parts


@jit()
def _least(numbers, load, most):
    """The part with the least of `numbers` among those whose load is `most` at most; -1 if there is none."""
    best = -1
    for q in range(numbers.size):
        if load[q] <= most and (best < 0 or numbers[q] < numbers[best]):
            best = q
    return best


@jit()
def _relief(load, number, cap, price):
    """What it is worth that a part, which holds more than it may, holds less."""
    return price * min(number, load - cap) if load > cap else 0.0


@jit()
def _burden(load, number, cap, price):
    """What it costs that a part holds more than it may."""
    beyond = load + number - cap
    return price * min(number, beyond) if beyond > 0 else 0.0


@jit()
def _line_moves(s, line, cap, price, target, slope, score, seen, mark, held):
    """Move the nonzeros of a line, part by part, where that lowers the objective; return how many moves."""
    n = s.owner.size
    own = s.owner[line if line < n else line - n]
    count = s.lam[line]
    for i in range(count):
        held[i] = s.touched[s.first[line] + i]
    moved = 0
    for i in range(count):
        p = held[i]
        parts = _see(s, line, seen, 0, mark)
        number, saved, fixed, parts = _weigh(s, line, p, target, slope, score, seen, parts, mark)
        best = p
        change = -1e-9
        if s.load[p] > cap:
            parts = _see_part(_least(s.load, s.load, cap - number), seen, parts, mark)
        if number:
            line_price = _price(s, own, target, slope) if line >= n else 0.0
            if p != own:  # all of the line that is p's leaves
                saved += line_price if line >= n else _price(s, p, target, slope)
            relief = _relief(s.load[p], number, cap, price)
            for j in range(parts):
                q = seen[j]
                burden = _burden(s.load[q], number, cap, price)
                if q == p or burden > MOST:
                    continue
                pay = _price(s, q, target, slope)
                gain = fixed - score[q] - saved - relief + burden
                if line >= n:
                    gain += number * pay  # the lines across are rows
                if _pins(s, line, q) == 0:
                    gain += line_price if line >= n else pay
                if gain < change or (gain == change and q < best):
                    best = q
                    change = gain
        for j in range(parts):
            score[seen[j]] = 0.0
            mark[seen[j]] = False
        if best != p:
            begin, end = _ends(s, line)
            for at in range(begin, end):
                t = _entry(s, line, at)
                if s.holder[t] == p and s.row[t] != s.indices[t]:
                    _move_entry(s, t, best)
            moved += 1
    return moved


@jit()
def _vertex_moves(s, v, cap, row_cap, price, target, slope, score, seen, mark):
    """Move a vertex, with what its owner holds of it or alone, where that lowers the objective."""
    n = s.owner.size
    p = s.owner[v]
    parts = _see(s, v, seen, 0, mark)
    parts = _see(s, n + v, seen, parts, mark)
    alone = parts  # a vertex alone goes where something of it lies
    in_row, saved_row, fixed_row, parts = _weigh(s, v, p, target, slope, score, seen, parts, mark)
    in_column, saved_column, fixed_column, parts = _weigh(s, n + v, p, target, slope, score, seen, parts, mark)
    if s.rows[p] > row_cap:
        parts = _see_part(_least(s.rows, s.load, cap - in_row - in_column - 1), seen, parts, mark)
    number = in_row + in_column
    pay_p = _price(s, p, target, slope)
    row_price = price * s.indices.size / n
    relief_row = _relief(s.rows[p], 1, row_cap, row_price)
    relief = _relief(s.load[p], number + 1, cap, price) + relief_row
    lam_row = s.lam[v] - 1
    lam_column = s.lam[n + v] - 1
    best = p
    change = -1e-9
    together = True
    for j in range(parts):
        q = seen[j]
        row_burden = _burden(s.rows[q], 1, row_cap, row_price)
        if q == p or row_burden > MOST:
            continue
        pay = _price(s, q, target, slope)
        has_row = _pins(s, v, q) > 0
        has_column = _pins(s, n + v, q) > 0
        burden = row_burden + _burden(s.load[q], number + 1, cap, price)
        if burden <= MOST:
            gain = burden + fixed_row + fixed_column + in_column * pay - score[q] - saved_row - saved_column - relief
            gain -= pay if has_row else 0.0  # q's sum stays where it is
            gain += (lam_column - has_column) * pay - lam_column * pay_p
            if gain < change or (gain == change and q < best):
                best = q
                change = gain
                together = True
        burden = row_burden + _burden(s.load[q], 1, cap, price)
        if j < alone and burden <= MOST:
            gain = burden + (pay_p if in_row else 0.0) - (pay if has_row else 0.0) - relief_row
            gain += (lam_column - has_column + (in_column > 0)) * pay - lam_column * pay_p
            if gain < change or (gain == change and q < best):
                best = q
                change = gain
                together = False
    for j in range(parts):
        score[seen[j]] = 0.0
        mark[seen[j]] = False
    if best == p:
        return 0
    if together:
        for line in (v, n + v):
            begin, end = _ends(s, line)
            for at in range(begin, end):
                t = _entry(s, line, at)
                if s.holder[t] == p and s.row[t] != s.indices[t]:
                    _move_entry(s, t, best)
    _move_owner(s, v, best)
    return 1


@jit()
def _sweep(s, order, cap, row_cap, price, target, slope):
    k = s.load.size
    n = s.owner.size
    score = np.zeros(k)
    mark = np.zeros(k, np.bool_)
    seen = np.empty(k, np.int32)
    held = np.empty(k, np.int32)
    moved = 0
    for what in order:
        if what < 2 * n:
            moved += _line_moves(s, what, cap, price, target, slope, score, seen, mark, held)
        else:
            moved += _vertex_moves(s, what - 2 * n, cap, row_cap, price, target, slope, score, seen, mark)
    return moved

"""Drawings of the arrays that ranks store and send in each strategy.

The graph has 8 vertices.

The script takes no arguments and writes docs/_static/strategies/NAME.svg. Owners,
holders, stages and messages come from the strategies' own plans. A test counts the
arrows of each drawing against the traffic that the plan predicts.
"""
import math
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hpgcn.config import Config
from hpgcn.parallel.layout import BlockLayout, split, stages
from hpgcn.parallel.pattern import Pattern
from hpgcn.strategies import STRATEGIES, RankGrid, variant

OUT = Path(__file__).resolve().parents[1] / "docs" / "_static" / "strategies"
N, WIDTH, DELAY = 8, 4, 2  # vertices, columns of H, steps of a delay
EDGES = (0, 1), (2, 3), (4, 5), (6, 7), (0, 2), (0, 3), (4, 6), (4, 7), (1, 4), (3, 6)
CUT = {(0, 2): 1, (0, 3): 1, (4, 6): 3, (4, 7): 3, (1, 4): 0, (3, 6): 3}  # holders of edges
FILLS = "#8dbde8", "#f6b26b", "#93c98f", "#d5a6d9", "#e8d36a", "#85d0cd", "#ee9c9c", "#b8b6ef"
ROW, SUM, BLOCK = "#0b6e99", "#b3541e", "#6b3fa0"  # what an arrow stands for
INK, LINE = "#1d2733", "#44546a"
CELL, RADIUS, TOP = 16, 13, 96


@dataclass(frozen=True)
class Arrow:
    """A message in a drawing.

    Its label, and how many numbers of a dense matrix it has (0: entries of A).
    """

    source: int
    target: int
    kind: str
    label: str = ""
    numbers: int = 0


@dataclass
class Drawing:
    """The drawing of a strategy.

    The ranks that store each entry of A and own each number of H, and its messages.
    """

    title: str
    plan: object
    stored: np.ndarray
    owner: np.ndarray
    panels: list = field(default_factory=list)  # pairs of a caption and its arrows
    columns: bool = False  # show the columns that each rank multiplies


def plan_of(name, shape, *, holders=None, delay=Config.delay):
    """Return the plan of a strategy for the example graph.

    Ranks form a grid of this shape.
    """
    A = np.eye(N, dtype=bool)
    for u, v in EDGES:
        A[u, v] = A[v, u] = True
    pattern = Pattern(sp.csr_array(A), symmetric=True)
    if holders:
        owner = np.arange(N) // (N // math.prod(shape))
        pattern = pattern.assign_holders(np.array([
            holders.get((min(i, j), max(i, j)), owner[i])
            for i, j in zip(pattern.rows.tolist(), pattern.indices.tolist())]))
    strategy = variant(STRATEGIES[name], Config(delay=delay))
    rows, columns = strategy.block_grid(shape)
    layout = BlockLayout(split(N, rows), columns, 0)
    options = {"balance": 1, "pipeline_batches": 1, "on_host": False, "delay": DELAY}
    return strategy.Plan.of(pattern, RankGrid(shape, layout, options))


def drawing(title, plan, holder, *, columns=False):
    """Return a Drawing without arrows.

    `holder` is the rank that stores each entry of the pattern.
    """
    pattern, layout = plan.pattern, plan.rank_grid.layout
    stored = np.full((N, N), -1)
    stored[pattern.rows, pattern.indices] = holder
    block = np.arange(WIDTH) * layout.columns // WIDTH
    return Drawing(title, plan, stored, layout.row_blocks[:, None] * layout.columns + block,
                   columns=columns)


def messages(lines, source, target, kind, sign=""):
    """Return an Arrow for each pair of ranks.

    It has the numbers of the rows or sums that it transfers.
    """
    found = {}
    for line, *pair in zip(lines, source, target):
        if pair[0] != pair[1]:
            found.setdefault(tuple(map(int, pair)), set()).add(int(line))
    return [Arrow(*pair, kind, sign + ",".join(map(str, sorted(rows))), len(rows) * WIDTH)
            for pair, rows in sorted(found.items())]


def by_holders(name, title, captions, **options):
    """Draw a strategy in which each nonzero has a holder.

    Ranks pull rows and push sums.
    """
    plan = plan_of(name, (4,), **options)
    pattern, owner = plan.pattern, plan.rank_grid.layout.row_blocks
    holder = owner[pattern.rows] if name == "p2p" else pattern.holders
    made = drawing(title, plan, holder)
    pulled = messages(pattern.indices, owner[pattern.indices], holder, ROW)
    pushed = messages(pattern.rows, holder, owner[pattern.rows], SUM, "Σ")
    phases = [pulled, pushed] if len(captions) > 1 else [pulled + pushed]
    made.panels = list(zip(captions, phases))
    return made


def delayed():
    """Draw vertex-cut with a delay of 2 steps.

    One of two bins of vertices is exchanged in each step.
    """
    plan = plan_of("vertex-cut", (4,), holders=CUT, delay=str(DELAY))
    pattern, owner = plan.pattern, plan.rank_grid.layout.row_blocks
    made = drawing("vertex-cut --delay 2: sums of one bin of 2 in a step, used 2 steps later",
                   plan, pattern.holders)
    vertex, rank = np.unique([(v, h) for ends in (pattern.rows, pattern.indices)
                              for v, h in zip(ends, pattern.holders) if owner[v] != h], axis=0).T
    _, turn = np.unique(vertex, return_inverse=True)
    times = ("0, 2, 4 …", "2, 4, 6 …"), ("1, 3, 5 …", "3, 5, 7 …")
    for number, (steps, later) in enumerate(times):
        here = turn % DELAY == number
        ends = owner[vertex[here]], rank[here]
        made.panels += [(f"steps {steps}|bin {number}: replicas send sums",
                         messages(vertex[here], *ends[::-1], SUM, "Σ")),
                        (f"steps {later}|bin {number}: owners send totals",
                         messages(vertex[here], *ends, ROW, "Σ"))]
    return made


def one_d():
    """Draw strategy 1d: in each stage, one rank broadcasts its rows."""
    plan = plan_of("1d", (4,))
    owner = plan.rank_grid.layout.row_blocks
    made = drawing("1d: in stage k, rank k broadcasts its rows of H", plan,
                   owner[plan.pattern.rows])
    for root in range(4):
        rows = np.flatnonzero(owner == root)
        made.panels.append((f"stage {root}", [
            Arrow(root, q, ROW, "", rows.size * WIDTH) for q in range(4) if q != root]))
    return made


def one_and_a_half_d():
    """Draw strategy 1.5d.

    Big blocks are gathered, broadcast within replicas, and added up.
    """
    plan = plan_of("1.5d", (2, 2))
    group = np.arange(N) // 4
    made = drawing("1.5d on a 2 x 2 grid: each replica multiplies by half of the big blocks", plan,
                   group[plan.pattern.rows] * 2 + group[plan.pattern.indices])
    pairs = [(g * 2 + a, g * 2 + 1 - a) for g, a in product(range(2), repeat=2)]
    made.panels = [
        ("1. gather a big block|over its replicas", [
            Arrow(p, q, ROW, f"{2 * p},{2 * p + 1}", 2 * WIDTH) for p, q in pairs]),
        ("2. broadcast big block k|in replica k", [
            Arrow(3 * k, 2 - k, ROW, f"{4 * k}–{4 * k + 3}", 4 * WIDTH) for k in range(2)]),
        ("3. add up|over the replicas", [
            Arrow(p, q, SUM, f"Σ{2 * q},{2 * q + 1}", 2 * WIDTH) for p, q in pairs])]
    return made


def summa(name, shape, title):
    """Draw the stages of 2d or 3d.

    They broadcast blocks of A along rows and blocks of H along columns.
    """
    plan = plan_of(name, shape)
    pattern, layout = plan.pattern, plan.rank_grid.layout
    R, C, L = (*shape, 1)[:3]
    cuts = stages(layout.offsets, R, L, C)
    stage = np.repeat(np.arange(cuts.row.size), np.diff(cuts.offsets))[pattern.indices]
    big = pattern.rows * R // N
    made = drawing(title, plan, (big * L + cuts.piece[stage]) * C + cuts.column[stage])

    # the k-th stage of every layer is one panel
    panels = {}
    for s, (row, column, piece) in enumerate(zip(*(each.tolist() for each in (
            cuts.row, cuts.column, cuts.piece)))):
        tall = int(np.diff(cuts.offsets)[s])
        arrows = [Arrow((row * L + piece) * C + j, (i * L + piece) * C + j, ROW, "",
                        tall * WIDTH // C) for i, j in product(range(R), range(C)) if i != row]
        arrows += [Arrow((i * L + piece) * C + column, (i * L + piece) * C + j, BLOCK)
                   for i, j in product(range(R), range(C))
                   if j != column and ((big == i) & (stage == s)).any()]
        panels.setdefault(row, []).extend(arrows)
    made.panels = [(f"stage {k}|A along rows, H along columns", arrows)
                   for k, arrows in sorted(panels.items())]
    if L > 1:
        made.panels.append(("add up|over the layers", [
            Arrow((i * L + a) * C + j, (i * L + b) * C + j, SUM, "", N // R // L * WIDTH // C)
            for i, j, a, b in product(range(R), range(C), range(L), range(L)) if a != b]))
    return made


def mop():
    """Draw strategy mop.

    Rows are exchanged for columns before the product, and back after it.
    """
    plan = plan_of("mop", (4,))
    made = drawing("mop: rows are exchanged for columns; every rank stores all of A", plan, N,
                   columns=True)
    pairs = [(p, q) for p, q in product(range(4), repeat=2) if p != q]
    captions = "1. from rows of H|to columns", "2. from columns of A H|to rows"
    made.panels = [(caption, [Arrow(p, q, ROW, "", N // 4 * WIDTH // 4) for p, q in pairs])
                   for caption in captions]
    return made


def drawings():
    """Return all Drawings, by the names of their files."""
    return {
        "p2p": by_holders("p2p", "p2p: rows of H go to the ranks that read them",
                          ["one message a pair"]),
        "cover": by_holders("cover", "cover: rows or partial sums, whichever are fewer",
                            ["one message a pair"]),
        "vertex-cut": by_holders("vertex-cut", "vertex-cut: any rank may store any nonzero",
                                 ["1. pull rows of H", "2. push partial sums"], holders=CUT),
        "1d": one_d(),
        "1.5d": one_and_a_half_d(),
        "2d": summa("2d", (2, 2), "2d on a 2 x 2 grid: blocks of A and of H are broadcast"),
        "3d": summa("3d", (2, 2, 2), "3d on a 2 x 2 x 2 grid: 2d in each layer, then a sum"),
        "mop": mop(),
        "delayed": delayed(),
    }


# --- SVG ---

def text(x, y, words, size=12, anchor="middle", color=INK, weight="normal"):
    """Return an SVG text element."""
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{color}" '
            f'font-weight="{weight}">{words}</text>')


def matrix(x, name, ranks):
    """Return the SVG elements of a matrix.

    Its name, and cells colored by rank (-1: an empty cell).
    """
    parts = [text(x + ranks.shape[1] * CELL / 2, TOP - 10, name, weight="bold")]
    for (i, j), rank in np.ndenumerate(ranks):
        fill = "#ffffff" if rank < 0 else "#9aa3ad" if rank >= N else FILLS[rank]
        parts.append(f'<rect x="{x + j * CELL}" y="{TOP + i * CELL}" width="{CELL}" '
                     f'height="{CELL}" fill="{fill}" stroke="#b9c2cc"/>')
    return parts


def positions(count, x, width):
    """Return the centers of the ranks in a panel.

    Corners of a square, or of a cube drawn as two layers.
    """
    middle = x + width / 2
    if count == 4:
        return [(middle + 46 * (2 * (p % 2) - 1), TOP + 18 + 92 * (p // 2)) for p in range(4)]
    return [(middle - 66 + 92 * (p % 2) + 42 * (p // 2 % 2),
             TOP + 4 + 84 * (p // 4) + 40 * (p // 2 % 2)) for p in range(8)]


def panel(caption, arrows, count, x, width):
    """Return the SVG elements of one phase: ranks as circles, messages as arrows."""
    parts = [text(x + width / 2, TOP - 42 + 15 * number, line)
             for number, line in enumerate(caption.split("|"))]
    centers = positions(count, x, width)
    merged = {}
    for arrow in arrows:
        merged.setdefault((arrow.source, arrow.target), []).append(arrow)
    labels = []
    for (source, target), both in merged.items():
        (ax, ay), (bx, by) = centers[source], centers[target]
        length = math.hypot(bx - ax, by - ay)
        ux, uy = (bx - ax) / length, (by - ay) / length
        shift = 4.5 if (target, source) in merged else 0
        ax, ay, bx, by = ax - uy * shift, ay + ux * shift, bx - uy * shift, by + ux * shift
        reach = RADIUS + 1
        kind = both[0].kind
        dash = ' stroke-dasharray="5 3"' if kind == SUM else ""
        parts.append(
            f'<path d="M{ax + ux * reach:.1f} {ay + uy * reach:.1f} L{bx - ux * (reach + 1):.1f} '
            f'{by - uy * (reach + 1):.1f}" stroke="{kind}" stroke-width="1.8"{dash} '
            f'marker-end="url(#m{kind[1:]})"/>')
        words = "+".join(arrow.label for arrow in both if arrow.label)
        if words:
            mx, my = (ax + bx) / 2 - uy * 7, (ay + by) / 2 + ux * 12
            anchor = "middle" if abs(ux) > abs(uy) else "start" if uy < 0 else "end"
            labels.append(text(mx, my + 4, words, 11.5, anchor, kind, "bold"))
    for rank, (cx, cy) in enumerate(centers):
        parts += [f'<circle cx="{cx:g}" cy="{cy:g}" r="{RADIUS}" fill="{FILLS[rank]}" '
                  f'stroke="{LINE}"/>', text(cx, cy + 4.5, rank, 13, weight="bold")]
    return parts + labels


def svg(made):
    """Return the SVG text of a Drawing."""
    count = made.plan.rank_grid.layout.size
    left = 354 if made.columns else 270
    room = (880 - left - 14) / len(made.panels)
    parts = [text(20, 28, made.title, 15, "start", weight="bold")]
    parts += [text(28, TOP + i * CELL + 12.5, i, 11) for i in range(N)]
    parts += matrix(38, "A", made.stored)
    parts += matrix(190, "H, A H", made.owner)
    if made.columns:
        parts += matrix(278, "during A H", np.tile(np.arange(WIDTH), (N, 1)))
    for number, (caption, arrows) in enumerate(made.panels):
        parts += panel(caption, arrows, count, left + number * room, room)

    # the legend has what occurs
    x, y = 38, TOP + N * CELL + 34
    for rank in range(count):
        parts += [f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{FILLS[rank]}" '
                  f'stroke="{LINE}"/>', text(x + 17, y, rank, 12, "start")]
        x += 30
    parts.append(text(x + 4, y, "rank that stores it", 12, "start"))
    x = 400 if count == 4 else 480
    arrows = [arrow for _, arrows in made.panels for arrow in arrows]
    kinds = {arrow.kind for arrow in arrows}
    named = any("Σ" in arrow.label for arrow in arrows)
    sums = "partial sum of a row (Σ)" if named else "partial sums"
    totals = made.plan.traffic.period > 1
    for kind, words in ((BLOCK, "block of A"), (ROW, "total of a row" if totals else "rows of H"),
                        (SUM, sums)):
        if kind in kinds:
            words = "rows of the sender, columns of the receiver" if made.columns else words
            dash = ' stroke-dasharray="5 3"' if kind == SUM else ""
            parts += [f'<path d="M{x} {y - 4} H{x + 30}" stroke="{kind}" stroke-width="1.8"{dash} '
                      f'marker-end="url(#m{kind[1:]})"/>', text(x + 38, y, words, 12, "start")]
            x += 56 + 6.6 * len(words)
    markers = "".join(
        f'<marker id="m{kind[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="6" '
        f'markerHeight="6" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{kind}"/></marker>'
        for kind in (ROW, SUM, BLOCK))
    height = y + 20
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 {height}" role="img" '
        'font-family="Helvetica, Arial, sans-serif">', f"<title>{made.title}</title>",
        f"<defs>{markers}</defs>",
        f'<rect x=".5" y=".5" width="879" height="{height - 1}" rx="8" fill="#ffffff" '
        'stroke="#b9c2cc"/>', *parts, "</svg>", ""])


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name, made in drawings().items():
        (OUT / f"{name}.svg").write_text(svg(made))


if __name__ == "__main__":
    main()

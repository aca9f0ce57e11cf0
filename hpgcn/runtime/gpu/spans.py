"""Spans of bytes: pairs (begin, end), of which EMPTY has no bytes."""

from collections.abc import Iterable

Span = tuple[int, int]
EMPTY: Span = (0, 0)


def overlap(a: Span, b: Span) -> Span:
    """Return the bytes that two spans share."""
    begin, end = max(a[0], b[0]), min(a[1], b[1])
    return (begin, end) if begin < end else EMPTY


def hull(a: Span, b: Span) -> Span:
    """Return the shortest span that contains two spans."""
    if EMPTY in (a, b):
        return b if a == EMPTY else a
    return min(a[0], b[0]), max(a[1], b[1])


def without(a: Span, b: Span) -> list[Span]:
    """Return the parts of `a` outside of `b`, at most two."""
    if overlap(a, b) == EMPTY:
        return [a] if a != EMPTY else []
    parts = (a[0], b[0]), (b[1], a[1])
    return [(begin, end) for begin, end in parts if begin < end]


def cut(a: Span, b: Span) -> Span:
    """Return `a` without `b`: all of it if `b` lies inside, because a span has no holes."""
    parts = without(a, b)
    return parts[0] if len(parts) == 1 else a if parts else EMPTY


def is_within(a: Span, b: Span) -> bool:
    return overlap(a, b) == a


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the bytes of several spans, in order, as few spans that do not adjoin."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span[0] <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], span[1])
        elif span != EMPTY:
            found.append(span)
    return found

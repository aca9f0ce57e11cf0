"""Prefetch distances of sparse products: of this CPU's caches, or of `hpgcn bench tune`.

These settings change the speed, but no bit of a result. A core can wait for few lines
of its first-level cache at a time, and for more of its second-level cache. So rows of x
beyond the second level are prefetched there, far ahead. The beginning of a row is
prefetched to the first level a little later. Each prefetch takes time, even if the line
is already there.
"""
import functools
import json
import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from hpgcn.kernels.host.user_cache import cache_roots

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
SECOND_CACHE = 512 << 10  # bytes, if the system does not report it
LAST_CACHE = 32 << 20
LEVELS = ("second", "last", "memory")  # the cache that holds x
ROW_BYTES = 64, 256  # distances are for rows of at most 64 bytes, of at most 256, and of more
VERSION = 3
MOST_BLOCKS = 64
FURTHEST = 1024  # nonzeros, and lines, of a PrefetchDistance, at most
_given: ContextVar = ContextVar("given", default=None)


class PrefetchDistance(NamedTuple):
    """Nonzeros between a prefetch of a row and its use, and lines prefetched."""

    near: int  # into the first cache; 0: none
    near_lines: int
    far: int  # into the second cache; 0: none
    far_lines: int


class Tuning(NamedTuple):
    """Settings of kernels for a CPU.

    `reach` has PrefetchDistances by cache level (LEVELS) and row size (ROW_BYTES).
    """

    reach: dict
    streamed: bool  # whether results larger than the last cache are stored past it
    blocks: int  # second caches that a block of rows of x fills; 0: x is never read in blocks
    entries: bool  # whether A's entries are also prefetched if x lies beyond the second cache


def _distances(second: tuple[tuple, ...], last: tuple[tuple, ...],
               memory: tuple[tuple, ...]) -> dict[str, tuple]:
    return {level: tuple(PrefetchDistance(*numbers) for numbers in kinds)
            for level, kinds in zip(LEVELS, (second, last, memory))}


# Defaults by the maker of the CPU, because a prefetch costs and gains about the same on all cores
# of one maker.
AMD = Tuning(_distances(
    second=((32, 1, 0, 0), (16, 16, 0, 0), (16, 16, 0, 0)),
    last=((32, 1, 0, 0), (12, 1, 64, 16), (12, 1, 64, 16)),
    memory=((6, 1, 64, 1), (12, 1, 64, 16), (12, 1, 64, 16))), streamed=True, blocks=0,
    entries=True)
INTEL = AMD._replace(reach=_distances(
    second=((64, 1, 0, 0), (16, 16, 0, 0), (16, 16, 0, 0)),
    last=((64, 1, 0, 0), (16, 16, 128, 1), (16, 2, 64, 16)),
    memory=((64, 1, 0, 0), (16, 16, 128, 1), (16, 2, 64, 16))), blocks=1)


def prefetch_distance(rows: int, row_bytes: int) -> PrefetchDistance:
    """Return the PrefetchDistance for a product with `rows` rows of x, of `row_bytes` each."""
    return current().reach[level_of(rows * row_bytes)][bisect_left(ROW_BYTES, row_bytes)]


def level_of(size: int) -> str:
    """Return the level of LEVELS that holds an x of `size` bytes."""
    if size <= second_cache():
        return "second"
    return "last" if size <= last_level_cache() // 2 else "memory"


def current() -> Tuning:
    """Return the Tuning of `using`, else the measured one of this CPU model, else the default."""
    return _given.get() or measured() or default()


@functools.cache
def default() -> Tuning:
    """Return the Tuning for this CPU's maker: Intel's, or AMD's for all others."""
    return INTEL if maker() == "GenuineIntel" else AMD


@contextmanager
def using(tuning: Tuning) -> Iterator[None]:
    """Context manager: use another Tuning in this thread."""
    token = _given.set(tuning)
    try:
        yield
    finally:
        _given.reset(token)


@functools.cache
def measured() -> Tuning | None:
    """Return the measured Tuning of this CPU model and this version, or None."""
    try:
        return from_json(json.loads(path().read_text()))
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def save(tuning: Tuning) -> Path:
    """Store a Tuning for this CPU model and return its path; OSError if that fails."""
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    try:
        part.write_text(json.dumps(to_json(tuning), indent=1) + "\n")
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
        measured.cache_clear()
    return file


def forget() -> Path | None:
    """Delete the stored Tuning of this CPU model; return its path, or None without a file."""
    file = path()
    try:
        file.unlink()
    except FileNotFoundError:
        return None
    finally:
        measured.cache_clear()
    return file


def path() -> Path:
    """Return the path of this CPU model's Tuning file in the user's cache folder."""
    root = next(cache_roots("XDG_CACHE_HOME"), Path(tempfile.gettempdir()))
    name = "".join(letter if letter.isalnum() else "-" for letter in cpu_model())
    return root / "hpgcn" / f"tuning-{name}.json"


def to_json(tuning: Tuning) -> dict:
    """Return a Tuning as a dict for JSON."""
    reach = {level: [each._asdict() for each in pair] for level, pair in tuning.reach.items()}
    return {"version": VERSION, "cpu": cpu_model(), "reach": reach, "streamed": tuning.streamed,
            "blocks": tuning.blocks, "entries": tuning.entries}


def from_json(held: dict) -> Tuning:
    """Return the Tuning in a dict of `to_json`; other dicts raise an error.

    The error is a ValueError, LookupError or TypeError.
    """
    if held["version"] != VERSION or held["cpu"] != cpu_model():
        raise ValueError(f"version {held['version']} for {held['cpu']}")
    reach = {}
    for level in LEVELS:
        kinds = reach[level] = tuple(PrefetchDistance(**each) for each in held["reach"][level])
        numbers = [number for each in kinds for number in each]
        if len(kinds) != len(ROW_BYTES) + 1 or not all(
                type(number) is int and 0 <= number <= FURTHEST for number in numbers):
            raise ValueError(f"reach of {level}")
    if not type(held["streamed"]) is type(held["entries"]) is bool:
        raise TypeError("streamed or entries")
    if type(held["blocks"]) is not int or not 0 <= held["blocks"] <= MOST_BLOCKS:
        raise ValueError("blocks")
    return Tuning(reach, held["streamed"], held["blocks"], held["entries"])


@functools.cache
def last_level_cache() -> int:
    """Return the bytes of this CPU's largest cache; 32 MiB if they are not reported."""
    return max(_caches().values(), default=LAST_CACHE)


@functools.cache
def second_cache() -> int:
    """Return the bytes of a core's second-level cache; 512 KiB if they are not reported."""
    return _caches().get(2, SECOND_CACHE)


def _caches() -> dict[int, int]:
    """Return a dict from each cache level to the size in bytes of its largest cache."""
    sizes = {}
    for index in CACHES.glob("index*"):
        try:
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
            size = int(text[:-1]) << {"K": 10, "M": 20, "G": 30}[text[-1]]
        except (OSError, ValueError, LookupError):
            continue
        sizes[level] = max(size, sizes.get(level, 0))
    return sizes


@functools.cache
def cpu_model() -> str:
    """Return the name, family and model of the processor, as the system reports them."""
    return " ".join(_processor("model name", "cpu family", "model")) or "unknown"


def maker() -> str:
    """Return the processor's vendor; empty if the system does not report it."""
    return "".join(_processor("vendor_id"))


def _processor(*fields: str) -> list[str]:
    """Return the values of `fields` of the first processor in /proc/cpuinfo, if present."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    pairs = (line.partition(":") for line in lines if ":" in line)
    values = {name.strip(): value.strip() for name, _, value in pairs}
    return [values[field] for field in fields if field in values]

"""How far ahead products read on this CPU: by its caches, or as `hpgcn bench tune` measured.

Nothing here changes a bit of a result. A core waits for few lines of its first cache at a time,
for more of its second one; so rows of x that come from beyond the second cache are asked for
there, far ahead, and the beginning of a row in the first one a little later.
"""
import functools
import json
import os
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
SECOND_CACHE = 512 << 10  # bytes, where the system does not say
LAST_CACHE = 32 << 20
LEVELS = ("second", "last", "memory")  # the cache that holds x
VERSION = 2
MOST_BLOCKS = 64
FURTHEST = 1024  # nonzeros, and lines, that a Reach may say
_given = ContextVar("given", default=None)


class Reach(NamedTuple):
    """Nonzeros between a prefetch of a row and its use, and how many lines of it."""

    near: int  # into the first cache; 0: none
    near_lines: int
    far: int  # all lines into the second cache; 0: none


class Tuning(NamedTuple):
    """What kernels ask of a CPU: `reach` by level of LEVELS, for rows of one line and of more."""

    reach: dict
    streamed: bool  # whether results larger than the last cache are stored past it
    blocks: int  # second caches that a block of rows of x fills, where it is read in such; 0: never


DEFAULT = Tuning(
    {"second": (Reach(32, 1, 0), Reach(16, 16, 0)),
     "last": (Reach(32, 1, 0), Reach(12, 1, 64)),
     "memory": (Reach(6, 1, 64), Reach(12, 1, 64))}, streamed=True, blocks=2)


def reach_of(rows, row_bytes):
    """Return the Reach of a product with so many rows of x of so many bytes."""
    size = rows * row_bytes
    level = "memory"
    if size <= second_cache():
        level = "second"
    elif size <= last_level_cache() // 2:
        level = "last"
    return current().reach[level][row_bytes > 64]


def current():
    """Return the Tuning in use: what was measured for this CPU model, or DEFAULT."""
    return _given.get() or measured() or DEFAULT


@contextmanager
def using(tuning):
    """Use another Tuning within, in this thread."""
    token = _given.set(tuning)
    try:
        yield
    finally:
        _given.reset(token)


@functools.cache
def measured():
    """Return what was measured for this CPU model, None where nothing was, or not by this code."""
    try:
        return from_json(json.loads(path().read_text()))
    except (OSError, ValueError, LookupError, TypeError, RuntimeError):  # the last: no home
        return None


def save(tuning):
    """Keep a Tuning for this CPU model; return where. OSError where that cannot be written."""
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


def forget():
    """Remove what is kept for this CPU model; return where it was, None where nothing was."""
    file = path()
    try:
        file.unlink()
    except FileNotFoundError:
        return None
    finally:
        measured.cache_clear()
    return file


def path():
    """Return the file of this CPU model in the user's cache folder."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    name = "".join(letter if letter.isalnum() else "-" for letter in cpu_model())
    return Path(root).expanduser() / "hpgcn" / f"tuning-{name}.json"


def to_json(tuning):
    """Return a Tuning as what JSON holds."""
    reach = {level: [each._asdict() for each in pair] for level, pair in tuning.reach.items()}
    return {"version": VERSION, "cpu": cpu_model(), "reach": reach, "streamed": tuning.streamed,
            "blocks": tuning.blocks}


def from_json(held):
    """Return the Tuning that `to_json` wrote; ValueError, LookupError or TypeError of another."""
    if held["version"] != VERSION or held["cpu"] != cpu_model():
        raise ValueError(f"version {held['version']} for {held['cpu']}")
    reach = {}
    for level in LEVELS:
        one, more = (Reach(**each) for each in held["reach"][level])
        if not all(type(number) is int and 0 <= number <= FURTHEST for number in (*one, *more)):
            raise ValueError(f"reach of {level}")
        reach[level] = one, more
    if type(held["streamed"]) is not bool:
        raise TypeError("streamed")
    if type(held["blocks"]) is not int or not 0 <= held["blocks"] <= MOST_BLOCKS:
        raise ValueError("blocks")
    return Tuning(reach, held["streamed"], held["blocks"])


@functools.cache
def last_level_cache():
    """Return the bytes of the largest cache of this CPU; 32 MiB if the system does not say."""
    return max(_caches().values(), default=LAST_CACHE)


@functools.cache
def second_cache():
    """Return the bytes of a core's second cache; 512 KiB if the system does not say."""
    return _caches().get(2, SECOND_CACHE)


def _caches():
    """Bytes of the largest cache of each level, by level."""
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
def cpu_model():
    """Return the name of the processor, and its family and model, as the system says them."""
    words = []
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    for wanted in ("model name", "cpu family", "model"):
        words += [line.split(":", 1)[1].strip() for line in lines
                  if line.split(":")[0].strip() == wanted]
    return " ".join(words) or "unknown"

"""Read the limits of Linux control groups (version 1 or 2), and the NUMA domains.

Limits are in cores and bytes. Groups are nested, and the tightest limit counts.
/proc/self/cgroup names the group of this process, and /proc/self/mountinfo the folders
with the files of groups. Namespaces and containers may hide outer groups. Tests pass
another folder as `root` instead of /.
"""
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

UNLIMITED = 1 << 60  # bytes: version 1 writes a number of this size for no limit
FILES = {  # by version: files with the limits on memory, its use, and the cached pages in it
    2: (("memory.max", "memory.high"), "memory.current", "inactive_file"),
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
}


def usable_cores(root: str = "/") -> int:
    """Count the cores that this process may use, by its CPU set and CPU quota."""
    cores = len(os.sched_getaffinity(0))
    quota = cpu_quota(root)
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(root: str = "/") -> float | None:
    """Return the CPU quota of the control groups, in cores; None without a limit."""
    quotas = []
    for version, folder in _groups("cpu", Path(root)):
        if version == 2:
            limit, period = (*_read(folder / "cpu.max").split(), "", "")[:2]
        else:
            limit, period = (_read(folder / f"cpu.cfs_{name}_us").strip()
                             for name in ("quota", "period"))
        if limit.isdigit() and period.isdigit() and int(limit) and int(period):  # not max, not -1
            quotas.append(int(limit) / int(period))
    return min(quotas, default=None)


def memory_domains(root: str = "/") -> list[set[int]]:
    """Return the usable cores of each NUMA domain that has some, a list of sets of numbers."""
    usable = os.sched_getaffinity(0)
    found = []
    for folder in sorted((Path(root) / "sys/devices/system/node").glob("node[0-9]*")):
        cores = set()
        for part in filter(None, _read(folder / "cpulist").strip().split(",")):
            first, _, last = part.partition("-")
            cores |= set(range(int(first), int(last or first) + 1))
        found.append(cores & usable)
    return [cores for cores in found if cores]


def free_memory(root: str = "/") -> int | None:
    """Return the bytes that control groups still let this process allocate.

    The result is None without a limit. Cached file pages count as free, because the
    system can drop them.
    """
    left = []
    for version, folder in _groups("memory", Path(root)):
        names, used, cached = FILES[version]
        limits = [_read(folder / name).strip() for name in names]
        stat = dict(line.split() for line in _read(folder / "memory.stat").splitlines()
                    if len(line.split()) == 2)
        limits.append(stat.get("hierarchical_memory_limit", ""))  # hidden groups of version 1
        limits = [int(limit) for limit in limits if limit.isdigit() and int(limit) < UNLIMITED]
        if limits:
            size = int(_read(folder / used).strip() or 0) - int(stat.get(cached, 0))
            left.append(max(0, min(limits) - max(0, size)))
    return min(left, default=None)


def _groups(controller: str, root: Path) -> Iterator[tuple[int, Path]]:
    """Yield (version, folder) of this process's control group and its parents."""
    paths = {}
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, names, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not names:
            paths[2] = path
        elif controller in names.split(","):
            paths[1] = path

    mounts = [*_mounts(controller, root)] or [
        (2, "/", "/sys/fs/cgroup"), (1, "/", f"/sys/fs/cgroup/{controller}")]
    for version, top, point in mounts:
        shown = root / point.strip("/")
        group = shown / _below(top, paths.get(version, "/"))
        for folder in (group, *group.parents):
            if folder.is_relative_to(shown):
                yield version, folder


def _mounts(controller: str, root: Path) -> Iterator[tuple[int, str, str]]:
    """Yield (version, group, folder) of each mount point of control groups."""
    for line in _read(root / "proc/self/mountinfo").splitlines():
        place, _, kind = line.partition(" - ")
        fields, words = place.split(), kind.split()
        if len(fields) < 5 or not words:
            continue
        top, point = (re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), field)
                      for field in fields[3:5])
        if words[0] == "cgroup2":
            yield 2, top, point
        elif words[0] == "cgroup" and controller in words[-1].split(","):
            yield 1, top, point


def _below(top: str, path: str) -> str:
    """Return the path of a control group relative to the group `top`.

    The result is empty if the group does not lie below `top`. In different namespaces,
    either path may begin with one or more /.. parts.
    """
    top = top.rstrip("/")
    if not f"{path}/".startswith(f"{top}/"):
        return ""
    rest = path[len(top):].strip("/")
    return "" if ".." in rest.split("/") else rest


def _read(path: Path) -> str:
    """Return the text of a file; an empty text if it cannot be read."""
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""

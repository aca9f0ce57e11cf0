"""Links to packages of this environment, which replace their installation in another one."""
import sysconfig
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


def lend(environment, requirements):
    """Link the packages of `requirements` into a new virtual environment of this Python.

    Packages that are missing here are left out, so that pip installs them there. So are
    commands written in Python, such as `pip`, which would change this environment.
    """
    variables = {"base": str(environment), "platbase": str(environment)}
    folder = Path(sysconfig.get_path("purelib", "venv", variables))
    for distribution in needed(requirements):
        for file in distribution.files or ():
            # a whole package, or a single file outside, such as a command
            first = file.parts[0]
            place = file if first == ".." else Path(first)
            link, target = folder / place, Path(distribution.locate_file(place)).resolve()
            if first == "__pycache__" or link.is_symlink() or starts_python(target):
                continue
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)


def starts_python(path):
    """Return whether a file is a script that Python runs."""
    if path.is_dir():
        return False
    with path.open("rb") as file:
        begin = file.readline(200)
    return begin.startswith(b"#!") and b"python" in begin


def needed(requirements):
    """Return the installed distributions that requirements name, and those that these need."""
    found, todo = {}, [*map(Requirement, requirements)]
    while todo:
        each = todo.pop()
        key = each.name, *sorted(each.extras)
        if key in found:
            continue
        with suppress(metadata.PackageNotFoundError):
            found[key] = metadata.distribution(each.name)
            inner = map(Requirement, found[key].requires or ())
            todo += [other for other in inner if other.marker is None or any(
                other.marker.evaluate({"extra": extra}) for extra in ("", *each.extras))]
    return [*found.values()]

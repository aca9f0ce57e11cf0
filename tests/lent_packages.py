"""Links to packages of this environment, which replace their installation in another one."""
import sysconfig
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement


def lend(environment, requirements):
    """Link the packages of `requirements` into a new virtual environment of this Python.

    Packages that are missing here are left out, so that pip installs them there.
    """
    variables = {"base": str(environment), "platbase": str(environment)}
    folder = Path(sysconfig.get_path("purelib", "venv", variables))
    for distribution in needed(requirements):
        for file in distribution.files or ():
            # a whole package, or a single file outside, such as a command
            first = file.parts[0]
            place = file if first == ".." else Path(first)
            link = folder / place
            if first != "__pycache__" and not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(distribution.locate_file(place)).resolve())


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

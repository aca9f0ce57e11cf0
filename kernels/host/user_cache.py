"""Find the folder of compiled code and measurements for later processes of the same user."""
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

SHARED = "HPGCN_KERNELS"  # variable with a folder that has the layout of NUMBA_CACHE_DIR
INSIDE = Path("hpgcn", "numba")


def make_writable(folder: Path) -> None:
    """Make a folder, and write a file there that is gone again; OSError if that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def compiled_kernels(folder: Path) -> list[Path]:
    """Return the paths of all compiled kernels below a folder."""
    return [*folder.rglob("*.nbc")]


def cache_roots(*variables: str) -> Iterator[Path]:
    """Yield possible cache folders: of environment variables, of the user, a temporary one.

    The temporary folder is for processes without a home, such as those in a container
    whose user is not in its list of users. The folder belongs to this user and is
    closed to all others.
    """
    for root in (*map(os.environ.get, variables), "~/.cache"):
        if root:
            path = os.path.expanduser(root)
            if not path.startswith("~"):  # else there is no home
                yield Path(path)
    shared = _private_folder()
    if shared is not None:
        yield shared


def _private_folder() -> Path:
    """Return this user's folder in the temporary folder; None if another user owns it."""
    try:
        path = Path(tempfile.gettempdir(), f"hpgcn-{os.geteuid()}")
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except OSError:
        return None
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return path if mine and not found.st_mode & 0o077 else None

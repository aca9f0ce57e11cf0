"""Put the kernels that SPECS lists into a package, with and without checks."""
import collections
import inspect
import types
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from hpgcn.kernels.checks import checked
from hpgcn.kernels.specs import SPECS


def install_checks(package: dict[str, Any], modules: tuple[ModuleType, ...],
                   oracle: ModuleType | None = None,
                   xp: Callable = lambda: np) -> types.SimpleNamespace:
    """Put the kernels of modules, each behind its checks, into a package.

    A kernel that no module has is replaced by a function that raises
    NotImplementedError.

    Parameters
    ----------
    package : dict
        Globals of the package.
    modules : sequence of modules
    oracle : module, optional
        The reference, whose docstrings come before those of the kernels.
    xp : function, optional
        Returns the module whose arrays the kernels take.

    Returns
    -------
    types.SimpleNamespace
        The kernels without checks, for arrays that are right by construction.
    """
    # kernels of the modules, or stand-ins for those that are missing
    functions = collections.ChainMap(*map(vars, modules))
    home = package["__name__"]
    trusted = types.SimpleNamespace(**{
        name: functions.get(name) or missing(name, home) for name in SPECS})

    # docstrings of the reference come first
    for name, kernel in vars(trusted).items() if oracle else ():
        meaning = inspect.getdoc(getattr(oracle, name, kernel))
        if inspect.getdoc(kernel) != meaning:  # the kernel may be that of the reference
            kernel.__doc__ = "\n\n".join(filter(None, (meaning, inspect.getdoc(kernel))))

    # callers get kernels behind their checks
    package.update({name: checked(name, kernel, xp) if name in functions else kernel
                    for name, kernel in vars(trusted).items()})
    return trusted


def missing(name: str, home: str) -> Callable:
    """Return a stand-in for a kernel that a package lacks; a call raises NotImplementedError."""

    def absent(*args: Any, **options: Any) -> None:
        where = home.replace(".", "/").removeprefix("hpgcn/")
        raise NotImplementedError(f"{name}: {home} has no such kernel: it needs a function {name} "
                                  f"in a module of {where}/ (CONTRIBUTING.md, Add a kernel)")

    absent.__name__ = absent.__qualname__ = name
    return absent

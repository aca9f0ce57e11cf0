"""The exceptions of hpgcn.

Each class has its own exit code, and each message is one line.
"""
from contextvars import ContextVar

from hpgcn.runtime.advice import install_command

COMMAND_LINE = ContextVar("command_line", default=False)  # whether settings are given by flags


def setting(name, value=None):
    """Return the name of a setting as the user writes it.

    `name` is a field of Config or a parameter of train. With its value the text is
    `--comm-timeout 5` on the command line, and `comm_timeout=5` in Python. For the
    value True it is a flag without a value.
    """
    if COMMAND_LINE.get():
        alone = value is None or value is True  # 1 is a value
        return f"--{name.replace('_', '-')}" + ("" if alone else f" {value}")
    return f"{name}=" + ("" if value is None else repr(value))


def assigned(name, value=None):
    """Return the beginning of a refusal: a setting and its value.

    It is `--dropout 2.0` on the command line, and `dropout = 2.0` in Python.
    """
    if COMMAND_LINE.get():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            return f"--{flag}" if value else f"--no-{flag}"
        return f"--{flag}" if value is None else f"--{flag} {_shown(value, str)}"
    return name if value is None else f"{name} = {_shown(value, repr)}"


def only_for(kind, names):
    """Return the reason of a refusal: the names, strategies or models, that read a setting."""
    *others, last = names
    if not others:
        return f"only for {kind} {last}"
    plural = {"strategy": "strategies", "model": "models"}[kind]
    return f"only for {plural} {', '.join(others)} and {last}"


def _shown(value, kind):
    try:
        return printable(kind(value))[:80]
    except ValueError:  # integers in it have more digits than Python writes
        return type(value).__name__


def printable(value):
    """Return text on one line, with escapes for special characters.

    Special are characters that a terminal would interpret or cannot show.
    """
    return "".join(map(_escape, str(value)))


def _escape(letter):
    if letter.isprintable():
        return letter
    if "\udc80" <= letter <= "\udcff":  # a byte of a file name that is not UTF-8
        return f"\\x{ord(letter) - 0xdc00:02x}"
    return ascii(letter)[1:-1]


class HpgcnError(Exception):
    """Base class of all errors that the command line prints as one line.

    The message is the whole line: the place (file, field, index or line), its value,
    the expected value.

    Examples
    --------
    >>> try:
    ...     hpgcn.Config(epochs=-1)
    ... except hpgcn.HpgcnError as error:
    ...     print(type(error).__name__, error.code)
    UsageError 2
    """

    code = 70
    collective = False  # True once all ranks have agreed to raise it together


class UsageError(HpgcnError):
    """The command line or a setting is invalid."""

    code = 2


class DataError(HpgcnError, ValueError):
    """An input is malformed, incomplete or refused."""

    code = 65


class DataWarning(UserWarning):
    """Warning: an input was perhaps not read as intended.

    The message names the flag that decides.
    """


class InputNotFoundError(HpgcnError, FileNotFoundError):
    """An input file does not exist or cannot be opened."""

    code = 66


class MissingError(HpgcnError, ImportError):
    """A package or a device is missing; the message names the packages to install."""

    code = 69


class InternalError(HpgcnError, RuntimeError):
    """A library or a child process failed, and the input does not explain why."""

    code = 70


class DeadlockError(InternalError):
    """All ranks of one process wait for each other; the message names their calls."""


class DeviceMemoryError(HpgcnError, MemoryError):
    """A GPU has too little memory."""

    code = 70


class OutputError(HpgcnError, FileExistsError):
    """The output exists already, or cannot be created."""

    code = 73


class StorageError(HpgcnError, OSError):
    """Reading or writing failed: disk full, checksum mismatch."""

    code = 74


class StoppedError(HpgcnError, TimeoutError):
    """The work stopped early: a rank waited past its deadline, or a signal arrived."""

    code = 75


class CancelledError(HpgcnError, KeyboardInterrupt):
    """Training was ended by Ctrl-C after an epoch; the results so far are saved."""

    code = 130


class DivergedError(HpgcnError, ArithmeticError):
    """The loss, or a gradient, became NaN or infinite."""

    code = 76


class ConfigError(HpgcnError, ValueError):
    """Settings contradict each other, or do not fit the graph file."""

    code = 78


def agreed(error):
    """Mark an error that all ranks raise together, and return it."""
    error.collective = True
    return error


def warn(message):
    """Warn with a DataWarning at the caller's line outside this package.

    If a launcher started several ranks, the first one warns.
    """
    import sys
    import warnings

    from hpgcn.runtime.launcher import launched_rank

    if launched_rank():
        return
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("hpgcn."):
        frame = frame.f_back
        level += 1
    warnings.warn(message, DataWarning, stacklevel=level)


def suggestion(word, known):
    """Return "; did you mean X?" for the known name nearest to a word, or ""."""
    import difflib

    word = str(word)[:80]
    near = difflib.get_close_matches(word, list(known))
    near.sort(key=lambda each: sorted(each) != sorted(word))  # swapped letters first
    return f"; did you mean {near[0]}?" if near else ""


def require(module, extra, purpose):
    """Import an optional module, or raise a MissingError.

    The error names the extra and the pip command that installs it.
    """
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        why = " ".join(str(error).split())
        raise MissingError(f"{purpose} needs {module.split('.')[0]} (extra {extra}): "
                           f"{install_command(extra)} ({why})") from error

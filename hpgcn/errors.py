"""What can go wrong, and the exit code that each kind of it has: one class a code, one clear line a message."""


class HpgcnError(Exception):
    """Base of all errors that the command line prints as one line.

    The message is the whole line: what (file, field, index or line), what was found, what was expected.
    """

    code = 70
    collective = False  # True once all ranks have agreed to raise it together


class UsageError(HpgcnError):
    """The command line or a configuration key makes no sense."""

    code = 2


class DataError(HpgcnError, ValueError):
    """An input is malformed, incomplete or refused."""

    code = 65


class InputNotFoundError(HpgcnError, FileNotFoundError):
    """An input file does not exist or cannot be opened."""

    code = 66


class MissingError(HpgcnError, ImportError):
    """Something asked for is not installed or not present; the message names the extra that brings it."""

    code = 69


class InternalError(HpgcnError, RuntimeError):
    """A library or a child process failed in a way that no input explains."""

    code = 70


class DeviceMemoryError(HpgcnError, MemoryError):
    """A GPU has less memory than is needed."""

    code = 70


class OutputError(HpgcnError, FileExistsError):
    """The output exists already, or cannot be created."""

    code = 73


class StorageError(HpgcnError, OSError):
    """Reading or writing failed: disk full, checksum mismatch."""

    code = 74


class StoppedError(HpgcnError, TimeoutError):
    """The work stopped before its end: a rank waited past its deadline, or a signal asked for a checkpoint."""

    code = 75


class CancelledError(HpgcnError, KeyboardInterrupt):
    """Ctrl-C ended a training run after an epoch; what there was is kept."""

    code = 130


class DivergedError(HpgcnError, ArithmeticError):
    """The loss, or a gradient, became NaN or infinite."""

    code = 76


class ConfigError(HpgcnError, ValueError):
    """Settings contradict each other or the file: ranks against parts, for one."""

    code = 78


def require(module, extra, purpose):
    """Import an optional module, or say which extra brings it.

    Raises
    ------
    MissingError
        If the module is not installed.
    """
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise MissingError(f"{purpose} needs {module.split('.')[0]}: pip install 'hpgcn[{extra}]' ({error})") from error

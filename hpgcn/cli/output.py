"""Functions that all commands share: output, settings from flags, comparison over ranks."""
from hpgcn import __version__
from hpgcn.errors import printable
from hpgcn.setting_words import WORDS


def print_unless_quiet(args, *lines):
    """Print lines about the result of a command, except with --quiet."""
    if not args.quiet:
        print_text(*lines)


def print_text(*texts):
    """Print text with control characters escaped.

    So a name of a file cannot control the terminal.
    """
    print("\n".join(printable(line) for text in texts for line in text.split("\n")))


def given(args, names):
    """Return the settings among `names` that the command line sets, a dict.

    Settings of earlier versions are among them.
    """
    values = {name: getattr(args, name, None) for name in (*names, *WORDS)}
    return {name: value for name, value in values.items() if value is not None}


def launch_signature(args, settings=None):
    """Return the arguments and settings that must be equal on all ranks, by name."""
    own = {"run": args.run.__name__, "version": __version__, "threads": 0, "verbose": 0,
           "quiet": 0, "config": None}
    return {**vars(args), **(settings or {}), **own}

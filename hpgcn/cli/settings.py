"""What the flags of all commands are made of: the parser, settings as flags, sizes, integers."""
import argparse
import dataclasses
import re
import sys

from hpgcn import config
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.runtime.launcher import launched_rank

# of a field of Config, or of its type
METAVARS = {"out": "RUN", "grid": "RxC", "memory": "BYTES", "class_weight": "balanced|FILE",
            "int": "N", "float": "X"}
IN_REGISTRIES = ("strategy", "model")


class Parser(argparse.ArgumentParser):
    """Raises what argparse would print; takes `-,u,v` as a value, which begins like a flag."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self._negative_number_matcher = re.compile(rf"{self._negative_number_matcher.pattern}|-,")

    def error(self, message):
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def _print_message(self, message, file=None):
        if message and not launched_rank():
            (file or sys.stderr).write(message)


def verbosity(**options):
    """Return the parser of the flags of all commands, a parent of theirs; `options` of argparse."""
    common = Parser(add_help=False, **options)
    for flag, name, text in (("-v", "--verbose", "more log lines; tracebacks of errors"),
                             ("-q", "--quiet", "warnings and errors only")):
        common.add_argument(flag, name, action="store_const", const=True, help=text)
    return common


def alone(command):
    """Add the flag that lets each process of a launcher work on its own."""
    command.add_argument(
        "--alone", action="store_true",
        help="each process that a launcher such as srun started works on its own, without messages "
             "to others")


def integers(command, *flags):
    """Add flags that take an integer: name, default, help."""
    for name, default, text in flags:
        command.add_argument(f"--{name}", type=int, default=default, metavar="N",
                             help=f"{text} (default: {default})")


def add_settings(command, names):
    """Add the flags of some fields of Config; what is not given is None."""
    for entry in dataclasses.fields(Config):
        if entry.name not in names:
            continue
        flag = "--" + entry.name.replace("_", "-")
        text = entry.metadata["help"]

        # a flag and its opposite
        if entry.type == "bool":
            text += f" (default: {'on' if entry.default else 'off'})"
            command.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
            continue

        # words or numbers
        if entry.default != "":
            text += f" (default: {entry.default})"
        choices = entry.metadata["choices"]
        metavar = METAVARS.get(entry.name, METAVARS.get(entry.type))
        if entry.name in IN_REGISTRIES:
            metavar = "NAME"
            text += "; one of %(names)s"
        kind = {"int": int, "float": float, "str": str}[entry.type]
        added = command.add_argument(flag, type=kind, choices=choices, help=text,
                                     metavar=None if choices else metavar)
        added.names = RegistryNames(entry.name)


class RegistryNames:
    """The words that a setting takes, looked up when a help text is printed: imports are slow."""

    def __init__(self, setting):
        self.setting = setting

    def __str__(self):
        from hpgcn.model.registry import model_kinds
        from hpgcn.strategies import AUTO, AUTO_PER_LAYER, STRATEGIES

        if self.setting == "strategy":
            return ", ".join((AUTO, *STRATEGIES, AUTO_PER_LAYER))
        return ", ".join(model_kinds())


def size(text):
    try:
        return config.size(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

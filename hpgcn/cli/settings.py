"""The parser class, flags for settings, and types of arguments that all parsers share."""
import argparse
import re
import sys

from hpgcn.config import SETTINGS
from hpgcn.errors import UsageError, suggestion
from hpgcn.runtime import machine
from hpgcn.runtime.launcher import launched_rank
from hpgcn.setting_field import HEADINGS, KINDS
from hpgcn.setting_words import WORDS

METAVARS = {"int": "N", "float": "X"}  # by type
COMMON = "common options"  # a heading
IN_REGISTRIES = ("strategy", "model")


class HelpFormatter(argparse.HelpFormatter):
    """A help formatter that keeps the line breaks of examples.

    All other texts are wrapped.
    """

    def add_argument(self, action):
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):  # commands are indented once more
            self._action_max_length += self._indent_increment

    def _fill_text(self, text, width, indent):
        if "\n" in text:
            return "\n".join(indent + line for line in text.splitlines())
        return super()._fill_text(text, width, indent)


class HelpAll(argparse.Action):
    """The action of the flag --help-all: print the options under all headings and exit."""

    def __call__(self, parser, namespace, values, option_string=None):
        parser.hidden = ()
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """An argument parser with headings.

    It raises UsageError, and accepts values such as `-,u,v`. `examples` are command
    lines that end the help text.
    """

    def __init__(self, *args, examples=(), **options):
        super().__init__(*args, formatter_class=HelpFormatter, allow_abbrev=False, **options)
        self.examples = examples
        self.hidden = ()
        self._headings = {}
        self._negative_number_matcher = re.compile(rf"{self._negative_number_matcher.pattern}|-,")

    def heading(self, title):
        """Return the group of options with this title; create it at the first call."""
        if title not in self._headings:
            self._headings[title] = self.add_argument_group(title)
        return self._headings[title]

    def hide(self, titles):
        """Hide the options under these headings from --help.

        Add the flag --help-all, which shows them.
        """
        self.hidden = tuple(titles)
        self.add_argument("--help-all", action=HelpAll, nargs=0, default=argparse.SUPPRESS,
                          help="show all options, under headings, and exit")

    def format_help(self):
        """Return the help text: positionals, headings, general options, examples."""
        formatter = self._get_formatter()
        positionals = [_placeholder(action) for action in self._actions
                       if not action.option_strings]
        required = [f"{action.option_strings[0]} {action.metavar or action.dest.upper()}"
                    for action in self._actions if action.option_strings and action.required]
        formatter.add_usage(" ".join([self.prog, *required, "[options]", *positionals]).replace(
            "%", "%%"), (), ())
        formatter.add_text(self.description)

        # the general options come last
        groups = [group for group in self._action_groups if group is not self._optionals]
        for group in [*groups, self._optionals]:
            if group.title not in self.hidden:
                formatter.start_section(group.title)
                formatter.add_arguments(group._group_actions)
                formatter.end_section()

        if self.hidden:
            formatter.add_text(f"Show all options: {self.prog} --help-all")
        if self.examples:
            title = "Example:" if len(self.examples) == 1 else "Examples:"
            formatter.add_text("\n  ".join([title, *self.examples]))
        return formatter.format_help()

    def parse_known_args(self, args=None, namespace=None):
        """Parse like argparse, but refuse an unknown flag here, where the known ones are."""
        found, rest = super().parse_known_args(args, namespace)
        unknown = [word for word in rest if word.startswith("-")]
        if unknown:
            word = unknown[0].partition("=")[0]
            known = [flag for action in self._actions for flag in action.option_strings]
            self.error(f"{word}: unknown{suggestion(word, known)}")
        return found, rest

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            words = list(map(str, action.choices))
            raise argparse.ArgumentError(action, f"{value!r:.80}: expected one of "
                                         f"{', '.join(words)}{suggestion(value, words)}")

    def error(self, message):
        see = " See" if message.endswith("?") else "; see"
        raise UsageError(f"{message}{see} `{self.prog} --help`")

    def _print_message(self, message, file=None):
        if message and not launched_rank():
            (file or sys.stderr).write(message)


def _placeholder(action):
    """Return the text for a positional argument in the usage line."""
    name = action.metavar or action.dest
    return {"?": f"[{name}]", "+": f"{name} [{name} ...]", argparse.PARSER: f"{name} ..."}.get(
        action.nargs, name)


def verbosity(**options):
    """Return a parent parser with --verbose and --quiet.

    `options` are passed to the constructor of the parser.
    """
    common = Parser(add_help=False, **options)
    for flag, name, text in (
            ("-v", "--verbose", "print more log lines, and tracebacks of errors"),
            ("-q", "--quiet", "print only results, warnings and errors")):
        common.add_argument(flag, name, action="store_const", const=True, help=text)
    return common


def alone(command):
    """Add the flag --alone to a command.

    With this flag, every process that a launcher starts runs the command by itself.
    """
    command.add_argument(
        "--alone", action="store_true",
        help="run each process that a launcher such as srun started on its own, without messages "
             "between them")


def integers(command, *flags):
    """Add one integer flag for each (name, default, help)."""
    for name, default, text in flags:
        command.add_argument(f"--{name}", type=int, default=default, metavar="N",
                             help=f"{text} (default: {default})")


def local_ranks(command, text=""):
    """Add the flag --ranks, the number of ranks in each process."""
    command.add_argument(
        "-k", "--ranks", type=int, default=1, metavar="N",
        help=f"number of ranks in each process, with or without mpiexec -n{text} (default: 1)")


def add_settings(command, names, *, common=False, **texts):
    """Add a flag for each named field of Config under its heading.

    Flags of earlier versions are hidden. The fields that are `common` come first if
    `common` is true. `texts` are other help texts, by name. A flag that is not given
    has the value None.
    """
    entries = {name: SETTINGS[name] for name in names}
    for title in (COMMON, *HEADINGS):
        command.heading(title)
    first = [name for name, entry in entries.items() if common and entry.metadata["common"]]
    for name in first:
        _add_setting(command.heading(COMMON), entries.pop(name), texts)
    for entry in entries.values():
        _add_setting(command.heading(entry.metadata["heading"]), entry, texts)
    for entry in WORDS.values():
        if entry.metadata["help"] in names:
            _add_setting(command, entry, {entry.name: argparse.SUPPRESS})


def _add_setting(group, entry, texts):
    flag, about = "--" + entry.name.replace("_", "-"), entry.metadata
    text = texts.get(entry.name, argparse.SUPPRESS if about["hidden"] else about["help"])

    # a flag and its opposite
    if entry.type == "bool":
        if text is not argparse.SUPPRESS:
            text += f" (default: {'on' if entry.default else 'off'})"
        group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        return

    # words or numbers
    if text is not argparse.SUPPRESS:
        text = f"%(readers)s{text}" if about["only"] else text
        text += "; one of %(names)s" * (entry.name in IN_REGISTRIES)
        text += f" (default: {entry.default})" * (entry.default != "")
    metavar = about["metavar"] or METAVARS.get(entry.type)
    added = group.add_argument(flag, type=KINDS[entry.type], choices=about["choices"], help=text,
                               metavar=None if about["choices"] else metavar)
    added.names = added.readers = RegistryNames(entry)


class RegistryNames:
    """Text with the valid names of a setting, or with those that read it.

    Names are those of strategies or models. They are imported only to print a help
    text, since that is slow.
    """

    def __init__(self, entry):
        self.entry = entry

    def __str__(self):
        from hpgcn.model import registry
        from hpgcn.strategies import AUTO, AUTO_PER_LAYER, STRATEGIES, strategies_that_read

        name, only = self.entry.name, self.entry.metadata["only"]
        if name == "strategy":
            return ", ".join((AUTO, *STRATEGIES, AUTO_PER_LAYER))
        if name == "model":
            return ", ".join(registry.model_kinds())
        readers = strategies_that_read if only == "strategy" else registry.models_that_read
        return f"{' and '.join(readers(name))} only. "


def size(text):
    try:
        return machine.size(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None

"""The flags of several runs, `train --sweep --seeds --splits`, and the command of the best one."""
import argparse
import csv
import re
import shlex

from hpgcn.config import SETTINGS
from hpgcn.errors import UsageError, suggestion
from hpgcn.setting_words import NO_SHORTCUTS

NUMBER = r"\d{1,19}"
PIECE = re.compile(rf"({NUMBER})(?:\.\.({NUMBER}))?")
MOST = 10_000
WORDS = {"true": True, "false": False}  # values of settings that are on or off


class SweepAction(argparse.Action):
    """The action of --sweep NAME=VALUE,VALUE: each value is read as the flag of NAME reads it."""

    def __call__(self, parser, namespace, text, option_string=None):
        name, equals, words = text.partition("=")
        name = name.strip().lstrip("-").replace("_", "-")
        flag = parser._option_string_actions.get(f"--{name}")
        if not equals or flag is None or flag.dest not in SETTINGS:
            known = [each.replace("_", "-") for each in SETTINGS]
            problem = f"setting {name!r:.80} is unknown" if equals else "expected NAME=VALUE,VALUE"
            parser.error(f"--sweep {text:.80}: {problem}{suggestion(name, known) * bool(equals)}")
        try:
            words, = csv.reader([words], skipinitialspace=True)  # "neighbors:10,5:512" in quotes
        except (csv.Error, ValueError):
            parser.error(f"--sweep {text:.80}: expected values with commas between them")
        found = {**(getattr(namespace, self.dest) or {})}
        found[flag.dest] = [*found.get(flag.dest, []),
                            *(self._value(parser, flag, word.strip()) for word in words)]
        setattr(namespace, self.dest, found)

    @staticmethod
    def _value(parser, flag, word):
        if flag.nargs == 0:
            if word not in WORDS:
                parser.error(f"--sweep {flag.dest.replace('_', '-')}={word:.80}: expected true or "
                             "false")
            return WORDS[word]
        try:
            value = parser._get_value(flag, word)
            parser._check_value(flag, value)
        except argparse.ArgumentError as error:
            parser.error(str(error))
        return value


def parse_runs(args):
    """Return the RunGrid of a command line; UsageError if its flags contradict each other."""
    from hpgcn.training.run_grid import ALL, RunGrid, check_sweep

    singles = {"seeds": ["seed"], "splits": ["split_index"], "sweep": [*(args.sweep or ())]}
    for flag, names in singles.items():
        if getattr(args, flag) is None:
            continue
        for other in (*names, "dry_run"):
            if getattr(args, other) is not None and getattr(args, other) is not False:
                raise UsageError(f"--{flag} and --{other.replace('_', '-')} exclude each other")
    check_sweep(args.sweep or {}, "--sweep")
    splits = args.splits if args.splits == ALL else parse_numbers("--splits", args.splits)
    return RunGrid(args.sweep or {}, parse_numbers("--seeds", args.seeds), splits)


def parse_numbers(flag, text):
    """Parse text such as "0..9" or "1,5,8..10" into a list of int.

    None stays None. Raise a UsageError if the text is invalid.
    """
    if text is None:
        return None
    numbers = []
    for piece in text.split(","):
        match = PIECE.fullmatch(piece.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < 2**63 or last - first >= MOST:
            raise UsageError(f"{flag} {text!r:.80}: expected numbers such as 0..9 or 1,5,8")
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"{flag} {text!r:.80}: expected each number once")
    return numbers


def summary(found, args, ranks):
    """Return the table of a Sweep, and the command that trains the best combination again.

    `ranks` are those of the launcher.
    """
    lines = [found.text()]
    config = found.best_config
    if found.varied and config is None:
        lines += ["", "no best combination: validation results are missing"]
    elif found.varied:
        lines += ["", "the best combination by validation, trained again:",
                  f"  {command(config, args, ranks)}"]
    return "\n".join(lines)


def command(config, args, ranks):
    """Return the command line that trains with a Config, on the seeds and splits of `args`."""
    from hpgcn.training.run_grid import REPEATS

    words = ["hpgcn", "train", args.graph]
    if ranks > 1:
        words[:0] = ["mpiexec", "-n", str(ranks)]
    once = {"graph", "out", "threads"}  # threads were chosen for this machine
    once |= {single for single, several in REPEATS.items() if getattr(args, several)}
    for name, entry in SETTINGS.items():
        value = getattr(config, name)
        implied = not config.shortcuts and NO_SHORTCUTS.get(name) == value
        if name in once or implied or (value == entry.default and name not in (args.sweep or ())):
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    for name in ("threads", "seeds", "splits", "nodes"):
        if getattr(args, name):
            words += [f"--{name}", str(getattr(args, name))]
    return shlex.join([*words, *(["--ranks", str(args.ranks)] if args.ranks > 1 else [])])

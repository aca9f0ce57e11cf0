"""Every flag and positional of every command says what it does, and names its default."""
import argparse
import dataclasses

import pytest

from hpgcn.cli.parser import parser
from hpgcn.config import Config


def commands_of(command, before=""):
    """Parsers of the commands of a parser, and of theirs, by their words."""
    choices = [action.choices for action in command._actions
               if isinstance(action, argparse._SubParsersAction)]
    return {before + name: one for group in choices for word, each in group.items()
            for name, one in {word: each, **commands_of(each, f"{word} ")}.items()}


COMMANDS = commands_of(parser())
ACTIONS = [pytest.param(name, action, id=f"{name} {'/'.join(action.option_strings) or action.dest}")
           for name, command in COMMANDS.items() for action in command._actions]
SETTINGS = {entry.name: entry.default for entry in dataclasses.fields(Config)}


@pytest.mark.parametrize("command, action", ACTIONS)
def test_it_is_explained(command, action):
    assert action.help and action.help.strip()
    assert action.dest != "file" or action.metavar  # a name that says what is meant
    if not action.option_strings or action.required or action.default is argparse.SUPPRESS:
        return
    flag = action.nargs == 0 and not isinstance(action, argparse.BooleanOptionalAction)
    default = None if flag else action.default
    if action.default is None and command in ("train", "plan", "bench accuracy"):
        default = SETTINGS.get(action.dest)
        default = {True: "on", False: "off"}[default] if isinstance(default, bool) else default
    assert flag or default is None or f"(default: {default}" in action.help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_printed(command, capsys):
    with pytest.raises(SystemExit) as end:
        parser().parse_args([*command.split(), "--help"])
    assert not end.value.code
    printed = capsys.readouterr().out
    assert COMMANDS[command].description.split()[0] in printed and "None" not in printed

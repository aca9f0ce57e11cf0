"""Every argument of every command has a help text that names its default."""
import argparse
import dataclasses
import re
import shlex

import pytest
from checkout import ROOT

from benchmarks import run as benchmarks
from hpgcn.cli.headings import COMMON, HEADINGS
from hpgcn.cli.parser import parser
from hpgcn.config import Config


def commands_of(command, before=""):
    """Return the parsers of all commands and subcommands by name."""
    choices = [action.choices for action in command._actions
               if isinstance(action, argparse._SubParsersAction)]
    return {before + name: one for group in choices for word, each in group.items()
            for name, one in {word: each, **commands_of(each, f"{word} ")}.items()}


SCRIPT = "scripts/benchmarks/run.py "
PARSERS = {"": parser, SCRIPT: benchmarks.parser}
COMMANDS = {name: one for before, make in PARSERS.items()
            for name, one in commands_of(make(), before).items()}
SETTINGS = {entry.name: entry.default for entry in dataclasses.fields(Config)}


def test_all_is_explained():
    """Each argument of each command has a help text, which states its default."""
    unclear = {(name, action.dest) for name, command in COMMANDS.items()
               for action in command._actions if not is_explained(name, action)}
    assert not unclear


def is_explained(command, action):
    if not (action.help and action.help.strip()):
        return False
    if action.dest == "file" and not action.metavar:  # its metavar must describe the file
        return False
    if not action.option_strings or action.required or action.default is argparse.SUPPRESS:
        return True
    flag = action.nargs == 0 and not isinstance(action, argparse.BooleanOptionalAction)
    default = None if flag else action.default
    if action.default is None and command in ("train", "plan", f"{SCRIPT}accuracy"):
        default = SETTINGS.get(action.dest)
        default = {True: "on", False: "off"}[default] if isinstance(default, bool) else default
    return flag or default is None or f"(default: {default}" in action.help


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_printed(command, capsys):
    before = SCRIPT if command.startswith(SCRIPT) else ""
    with pytest.raises(SystemExit) as end:
        PARSERS[before]().parse_args([*command.removeprefix(before).split(), "--help"])
    assert not end.value.code
    printed = capsys.readouterr().out
    assert COMMANDS[command].description.split()[0] in printed and "None" not in printed


def test_a_setting_has_one_heading():
    listed = [name for names in HEADINGS.values() for name in names]
    assert sorted(listed) == sorted(SETTINGS) and {*COMMON} < {*listed}


@pytest.mark.parametrize("command", [name for name in COMMANDS if not name.startswith(SCRIPT)])
def test_a_command_has_examples(command):
    examples = [line for line in COMMANDS[command].examples if f"hpgcn {command}" in line]
    for line in examples:
        parser().parse_args(shlex.split(line.split(" > ")[0].partition("hpgcn ")[2]))
    assert examples


@pytest.mark.parametrize("command", ["train", "plan"])
def test_help_shows_common_options_and_help_all_shows_all(command):
    short = parser()._subparsers._group_actions[0].choices[command].format_help()
    whole = COMMANDS[command]
    whole.hidden = ()
    flags = {action.option_strings[-1 if action.dest == "out" else 0]
             for action in whole._actions if action.option_strings}
    assert flags == {*re.findall(r"^  (?:-\w, )?(-k|--[a-z-]+)", whole.format_help(), re.MULTILINE),
                     "-h", "-v", "-q"} - {"--help", "--verbose", "--quiet"}
    assert f"hpgcn {command} --help-all" in short and "--attention-dropout" not in short
    assert command == "plan" or all(f"\n  --{name} " in short for name in COMMON)


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w-])")
FOREIGN = {  # flags of launchers, pip, scripts and python -m hpgcn.kernels
    "--allow-run-as-root", "--bind-to", "--cpu-bind", "--cpus", "--cpus-per-task",
    "--map-by", "--mpi", "--no-binary", "--oversubscribe",
    "--check", "--full", "--product", "--count", "--coverage", "--compile", "--jobs",
    "--ntasks-per-node",
    "--small", "--methods", "--limit", "--nodes", "--ranks-per-node", "--rate", "--delay", "--mca",
    "--shm-size", "--short", "--with-cuda", "--pty", "--index-url", "--no-execute"}
LINE = re.compile(r"^(?: {4,}|\$ )?(?:\$ )?(?:mpiexec (?:-\S+ \S+ )*|srun (?:\S+ )*?)?"
                  rf"(?:hpgcn|python) ((?:bench |{re.escape(SCRIPT)})?[a-z-]+) (.*)", re.MULTILINE)


def flags_of(command):
    return {flag for action in command._actions for flag in action.option_strings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_name_flags_that_exist(page):
    text = page.read_text()
    known = set().union(*map(flags_of, COMMANDS.values())) | FOREIGN | {"--version"}
    assert not {*FLAG.findall(text)} - known
    for words, rest in LINE.findall(text):
        command = COMMANDS.get(words) or COMMANDS.get(words.split()[0])
        if command:  # else one of several names, as in spmm|gather
            wrong = {*FLAG.findall(rest.split("    #")[0])} - flags_of(command)
            assert not wrong, (words, wrong)

"""Every argument of every command has a help text that names its default."""
import argparse
import re
import shlex

import pytest
from checkout import ROOT

from benchmarks import run as benchmarks
from hpgcn.cli.parser import parser
from hpgcn.config import SETTINGS
from hpgcn.errors import UsageError
from hpgcn.model.registry import models_that_read
from hpgcn.setting_field import HEADINGS
from hpgcn.setting_words import OF_STRATEGY
from hpgcn.strategies import STRATEGIES, strategies_that_read


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
COMMON = [name for name, entry in SETTINGS.items() if entry.metadata["common"]]


def test_all_is_explained():
    """Each argument of each command has a help text, which states its default."""
    unclear = {(name, action.dest) for name, command in COMMANDS.items()
               for action in command._actions if not is_explained(name, action)}
    assert not unclear


def is_explained(command, action):
    if not (action.help and action.help.strip()):
        return False
    if action.help == argparse.SUPPRESS:
        return True
    if action.dest == "file" and not action.metavar:  # its metavar must describe the file
        return False
    if not action.option_strings or action.required or action.default is argparse.SUPPRESS:
        return True
    flag = action.nargs == 0 and not isinstance(action, argparse.BooleanOptionalAction)
    default = None if flag else action.default
    if action.default is None and command in ("train", "plan", f"{SCRIPT}accuracy"):
        default = SETTINGS[action.dest].default if action.dest in SETTINGS else None
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


def test_a_setting_is_declared_once():
    """Lists, headings and the texts "X only" follow from the declaration of each setting."""
    assert {entry.metadata["heading"] for entry in SETTINGS.values()} == {*HEADINGS}
    readers = {"strategy": strategies_that_read, "model": models_that_read}
    for name, entry in SETTINGS.items():
        if entry.metadata["only"]:
            assert readers[entry.metadata["only"]](name)
    own = {name for strategy in STRATEGIES.values() for name in strategy.options}
    assert own - {*OF_STRATEGY} == {name for name, entry in SETTINGS.items()
                                    if entry.metadata["only"] == "strategy"}
    words = {strategy.word for strategy in STRATEGIES.values()}
    assert words == {"", *OF_STRATEGY} and words - {""} <= own


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
    flags = {next(flag for flag in action.option_strings if flag.startswith("--"))
             for action in whole._actions
             if action.option_strings and action.help != argparse.SUPPRESS}
    # Python 3.13 names the value of `-k N, --ranks N` once
    assert flags == {*re.findall(r"^  (?:-\w(?: \S+)?, )?(--[a-z-]+)", whole.format_help(),
                                 re.MULTILINE)}
    assert f"hpgcn {command} --help-all" in short and "--attention-dropout" not in short
    assert command == "plan" or all(f"\n  --{name} " in short for name in COMMON)


RANKED = ["train", "predict", "plan", "partition"]


@pytest.mark.parametrize("command", RANKED)
def test_the_number_of_ranks_has_one_name(command):
    flags = [action.option_strings for action in COMMANDS[command]._actions]
    assert ["-k", "--ranks"] in flags


@pytest.mark.parametrize("command", [name for name in COMMANDS
                                     if not name.startswith(SCRIPT) and name != "bench"])
def test_flags_are_written_whole_and_mistyped_ones_are_corrected(command):
    flags = [flag for flag in flags_of(COMMANDS[command]) if len(flag) > 7]
    known = [*command.split(), *{"convert": "ab", "generate": ["rmat", "b"], "predict": "a",
             "export": ["a", "b", "--to", "pyg"], "partition": ["a", "-k", "2"]}.get(command, "a")]
    for flag in flags:
        for wrong in (flag[:-1], f"{flag[:3]}{flag[4]}{flag[3]}{flag[5:]}"):
            if wrong in flags_of(COMMANDS[command]) or wrong == flag:
                continue
            with pytest.raises(UsageError, match=rf"^{wrong}: unknown; did you mean --"):
                parser().parse_args([*known, wrong])


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w-])")
FOREIGN = {  # flags of launchers, pip, scripts and containers
    "--allow-run-as-root", "--bind-to", "--cpu-bind", "--cpus", "--cpus-per-task",
    "--map-by", "--mpi", "--no-binary", "--oversubscribe",
    "--check", "--full", "--product", "--count", "--coverage", "--compile", "--jobs",
    "--ntasks-per-node",
    "--small", "--methods", "--limit", "--nodes", "--ranks-per-node", "--rate", "--delay", "--mca",
    "--shm-size", "--short", "--with-cuda", "--pty", "--index-url", "--no-execute",
    "--bind", "--build", "--build-arg", "--env", "--gpus", "--nv", "--rm"}
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

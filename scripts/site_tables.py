"""The tables of the documentation site that are generated from the code.

TABLES has them by name.
"""
import argparse
import importlib
import inspect
from collections import defaultdict

import hpgcn
from hpgcn import errors
from hpgcn.cli.parser import parser
from hpgcn.config import SHOWN
from hpgcn.kernels import reference
from hpgcn.kernels.specs import SPECS, parse, parse_results
from hpgcn.model.registry import MODELS, models_that_read
from hpgcn.setting_field import HEADINGS, values_of
from hpgcn.strategies import STRATEGIES, strategies_that_read

KINDS = {  # kinds of an array in SPECS, in the words of docs/kernels.md
    "index": "integers", "pointers": "integers", "classes": "integers", "once": "integers",
    "words": "uint32", "bits": "bits", "into_bits": "bits", "wide": "float64", "bool": "bool"}


def table(head, rows):
    """Return a Markdown table with the header `head` and rows of texts."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def code(text):
    return f"`{text}`"


def models():
    """Return the table of all models and their abilities."""
    exported = importlib.import_module("hpgcn.interop.torch.export").CODES
    rows = []
    for name, layer in MODELS.items():
        heads = [int(layer.uses_attention)]
        able = [strategy for strategy in STRATEGIES.values()
                if not strategy.unsupported_reason(heads, 1, layer.uses_edge_features)]
        batches = [each.name for each in able
                   if each.supports_minibatches and not layer.uses_edge_features]
        model, _, aggregator = name.partition("-")
        flags = f"--model {model}" + f" --aggregator {aggregator}" * bool(aggregator)
        rows.append([
            code(flags), "not read" if layer.uses_attention or layer.uses_edge_features else "yes",
            "yes",
            "yes" if layer.supports_bf16 else "no",
            "all" if len(able) == len(STRATEGIES) else ", ".join(code(each.name) for each in able),
            ", ".join(map(code, batches)) or "none", "to PyG" if layer in exported else "no"])
    return table(["model", "edge weights", "directed", "bf16", "strategies",
                  "mini-batches by", "export"], rows)


def strategies():
    """Return the table of all strategies and their abilities."""
    def answer(value):
        return "yes" if value else "no"

    return table(
        ["strategy", "owners from a partition", "leaves out unread rows", "attention",
         "edge features", "bf16", "mini-batches", "settings of its own"],
        [[code(name), answer(each.accepts_partition), answer(each.supports_pruning),
          answer(each.supports_attention), answer(each.supports_edge_features),
          answer(each.supports_bf16), answer(each.supports_minibatches),
          ", ".join(code(f"--{option.replace('_', '-')}") for option in each.options)]
         for name, each in STRATEGIES.items()])


def settings():
    """Return the list of settings: a heading for each group, an item for each field."""
    readers = {"strategy": strategies_that_read, "model": models_that_read}
    parts = []
    for heading in HEADINGS:
        parts.append(f"### {heading.capitalize()}")
        for entry in SHOWN:
            about = entry.metadata
            if about["heading"] == heading:
                names = about["only"] and readers[about["only"]](entry.name)
                only = f"{' and '.join(names)} only. " if names else ""
                values = values_of(entry).replace("''", "empty")
                parts.append(f"- `{entry.name}` ({values}): {only}{escaped(about['help'])}.")
    return "\n\n".join(parts)


def exit_codes():
    """Return the table of exit codes: those of error classes, and those of signals."""
    meaning = defaultdict(list)
    for kind in vars(errors).values():
        if inspect.isclass(kind) and issubclass(kind, errors.HpgcnError) and "code" in vars(kind):
            meaning[kind.code].append(kind)
    del meaning[errors.HpgcnError.code][0]  # the base class
    rows = [["0", "", "Success."]]
    for number, kinds in sorted(meaning.items()):
        texts = [inspect.getdoc(kind).splitlines()[0] for kind in kinds]
        rows.append([str(number), ", ".join(code(kind.__name__) for kind in kinds),
                     " ".join(texts)])
    return table(["code", "exception in Python", "meaning"], rows)


def api():
    """Return an autosummary directive with the public names of hpgcn."""
    kinds = {True: "Classes", False: "Functions"}
    groups = {title: [] for title in kinds.values()}
    for name in hpgcn.__all__:
        groups[kinds[inspect.isclass(getattr(hpgcn, name))]].append(f"hpgcn.{name}")
    return "\n\n".join(f"## {title}\n\n{autosummary(names)}" for title, names in groups.items())


def kernels():
    """Return the table of the kernels' arrays, and an autosummary directive of the kernels."""
    rows = [[code(name), "; ".join(map(array_text, parse(spec))) or "none",
             "; ".join(result_text(each, parse(spec)) for each in parse_results(spec)) or "none"]
            for name, spec in SPECS.items()]
    return "\n\n".join([table(["kernel", "arrays", "returns"], rows), autosummary(
        [f"hpgcn.kernels.reference.{name}" for name in reference.__all__])])


def array_text(array):
    """Return name, shape and kind of an array argument, in the words of docs/kernels.md."""
    if not array.shape:
        return code(array.name)
    kind = array.kind.removesuffix("16")
    words = [KINDS.get(kind, "floats")] + ["or 16 bits"] * array.kind.endswith("16")
    words += ["optional"] * array.optional + ["written"] * kind.startswith("into")
    shape = ", ".join(array.shape).replace("|", "\\|").replace("*", "\\*")
    return f"{code(array.name)} ({shape}{',' * (len(array.shape) == 1)}) {', '.join(words)}"


def result_text(result, arguments):
    """Return the text of a result: of an argument only the name."""
    return code(result.name) if result in arguments else array_text(result)


def autosummary(names):
    listed = "\n   ".join(names)
    return ("```{eval-rst}\n.. autosummary::\n   :toctree: generated\n   :nosignatures:\n\n"
            f"   {listed}\n```")


def commands():
    """Return the usage, arguments and flags of every command, as Markdown."""
    return "\n\n".join(f"## hpgcn {words}\n\n{each.description}\n\n{flags_of(each)}"
                       for words, each in commands_of(parser()))


def commands_of(command, before=""):
    """Return pairs (words of the command, parser).

    Parsers that only group commands are left out.
    """
    pairs = []
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, each in action.choices.items():
                pairs += commands_of(each, f"{before} {word}".strip()) or [
                    (f"{before} {word}".strip(), each)]
    return pairs


def flags_of(command):
    """Return a table of arguments and flags for each group of a command's parser."""
    parts = []
    for group in command._action_groups:
        rows = [[", ".join(map(code, words_of(action))), text_of(action, command)]
                for action in group._group_actions if action.help != argparse.SUPPRESS]
        if rows:
            parts.append(f"**{(group.title or 'options').capitalize()}**\n\n"
                         + table(["name", "meaning"], rows))
    return "\n\n".join(parts)


def words_of(action):
    value = action.metavar or action.dest
    if not action.option_strings:
        return [str(value)]
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return action.option_strings
    return [f"{flag} {value}" for flag in action.option_strings]


def text_of(action, command):
    """Return the help text and the choices of a flag, as Markdown for a table cell."""
    known = vars(action) | {"prog": command.prog}
    text = (action.help or "") % known
    if action.choices and not isinstance(action.choices, dict):
        text += f"; one of {', '.join(map(str, action.choices))}"
    return escaped(text)


def escaped(text):
    """Return text with backslashes before the letters that Markdown reads."""
    for letter in "\\|*_<>[]$":
        text = text.replace(letter, "\\" + letter)
    return text


TABLES = {"api": api, "commands": commands, "exit-codes": exit_codes, "kernels": kernels,
          "models": models, "settings": settings, "strategies": strategies}

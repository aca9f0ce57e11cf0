#!/usr/bin/env python3
"""Figures of the source code: lines, files, names, comments, parameters.

    python scripts/measure_code.py            # of this checkout
    python scripts/measure_code.py FOLDER     # of another one
    python scripts/measure_code.py --check    # compare rooms with scripts/code_budget.toml

A room is within its budget if its lines of code, without docstrings, comments and blank lines, are
at most those of the table. A commit that needs more raises the figure, and its message says why.
Tests do not judge the other figures, except where tests/structure/test_layering.py names a limit.
"""
import argparse
import ast
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

FOLDERS = ("hpgcn", "kernels", "datasets")
BUDGET = "scripts/code_budget.toml"
MOST_FILES = 20  # in a folder
LONG = 25  # lines of a function that should have a comment before each phase
BODY = 12  # lines without the docstring; a shorter body has one phase
SHORT = 50  # lines of a file that may be merged with its only importer
TWINS = {"reference", "cpu", "cuda"}  # folders whose files have the same names on purpose


def sources(root):
    """Return the Python files of the product (without tests), sorted."""
    return sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))


def functions(tree):
    return [node for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def docstring_of(node):
    """Return the statement that is the docstring of a module, class or function, or None."""
    first = next(iter(node.body), None)
    documented = (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
                  and isinstance(first.value.value, str))
    return first if documented else None


def body_lines(function, lines):
    """Return the source lines of a function after its docstring."""
    text = docstring_of(function)
    first = text.end_lineno if text else function.body[0].lineno - 1
    return lines[first:function.end_lineno]


def text_lines(tree, lines):
    """Return how many lines of a file are docstrings, comments and blank."""
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [text for node in ast.walk(tree) if isinstance(node, nodes)
             if (text := docstring_of(node))]
    rest = set(range(1, len(lines) + 1)).difference(
        *(range(text.lineno, text.end_lineno + 1) for text in found))
    code = [line for number in rest
            if (line := lines[number - 1].strip()) and not line.startswith("#")]
    return len(lines) - len(code)


def percentile(numbers, share):
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def repeated(names):
    """Return a dict of the names that occur more than once, with their counts."""
    return {name: count for name, count in Counter(names).items() if count > 1}


def module_of(path, root):
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts if parts[0] == "hpgcn" else ("hpgcn", *parts))


def importers(trees, root):
    """Return for each module, by its dotted name, the set of files that import it."""
    found = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            else:
                continue
            for name in names:
                found[name].add(path)
    return found


def measure(root):
    """Return the figures of a checkout: a dict of texts to numbers."""
    paths = sources(root)
    texts = {path: path.read_text().splitlines() for path in paths}
    trees = {path: ast.parse("\n".join(lines)) for path, lines in texts.items()}
    every_line = [line for lines in texts.values() for line in lines]
    every_function = [(path, each) for path, tree in trees.items() for each in functions(tree)]

    # rooms and names
    rooms = Counter(path.parent for path in paths)
    crowded = {str(room.relative_to(root)): count for room, count in rooms.items()
               if count > MOST_FILES}
    files = repeated(path.name for path in paths
                     if path.parent.name not in TWINS and not path.name.startswith("__"))
    classes = repeated(node.name for tree in trees.values() for node in ast.walk(tree)
                       if isinstance(node, ast.ClassDef))
    found = importers(trees, root)
    merged = [path for path, lines in texts.items()
              if len(lines) < SHORT and len(found[module_of(path, root)]) == 1
              and path.name != "__init__.py"]

    # air
    bodies = [body_lines(each, texts[path]) for path, each in every_function]
    in_bodies = [line for body in bodies for line in body]
    long = [(path, each) for path, each in every_function
            if each.end_lineno - each.lineno + 1 > LONG]
    bare = [each for path, each in long
            if len(body := body_lines(each, texts[path])) > BODY
            and not any(line.lstrip().startswith("#") for line in body)]
    lengths = [each.end_lineno - each.lineno + 1 for _, each in every_function]

    # the whole configuration as a parameter
    taking = [each for _, each in every_function
              if "config" in {arg.arg for arg in (*each.args.args, *each.args.kwonlyargs)}]
    return {
        "lines": len(every_line),
        "of these docstrings, comments and blank": sum(
            text_lines(tree, texts[path]) for path, tree in trees.items()),
        "files": len(paths),
        f"folders of more than {MOST_FILES} files": crowded or "none",
        "file names that occur twice": files or "none",
        "class names that occur twice": len(classes),
        f"files under {SHORT} lines with one importer": len(merged),
        "longest file": max(map(len, texts.values())),
        "90th percentile of widths": percentile([len(line) for line in every_line if line], 0.9),
        "own-line comments per 1,000 lines": round(
            1000 * sum(line.lstrip().startswith("#") for line in every_line) / len(every_line), 1),
        "blank lines in bodies, percent": round(
            100 * sum(not line for line in in_bodies) / len(in_bodies), 1),
        f"functions of more than {LONG} lines": len(long),
        f"of these without a comment, with a body of over {BODY} lines": len(bare),
        "longest function": max(lengths),
        "functions with a parameter config": len(taking),
        "most parameters": max(len(each.args.args) + len(each.args.kwonlyargs)
                               for _, each in every_function),
        'docstrings "See ..."': sum((ast.get_docstring(each) or "").startswith("See `")
                                   for _, each in every_function),
    }


def lines_by_room(root):
    """Return a dict of the lines of code of each room, and of docs all lines."""
    counts = Counter()
    beside = [path for folder in ("tests", "scripts") for path in (root / folder).rglob("*.py")]
    for path in (*sources(root), *beside):
        parts = path.relative_to(root).parts
        room = parts[0] if parts[0] != "hpgcn" else "/".join(parts[:2]) if parts[2:] else "hpgcn"
        text = path.read_text()
        lines = text.splitlines()
        counts[room] += len(lines) - text_lines(ast.parse(text), lines)
    counts["docs"] = sum(len(path.read_text().splitlines()) for path in root.glob("docs/**/*.md"))
    return counts


def check(root):
    """Print the lines of each room beside its budget; return the names of rooms above it."""
    budget = tomllib.loads((root / BUDGET).read_text())
    counts = lines_by_room(root)
    for room in sorted({*counts, *budget}):
        print(f"{room:20} {counts[room]:7,} of {budget.get(room, 0):7,}")
    product = sum(count for room, count in counts.items() if room.partition("/")[0] in FOLDERS)
    print(f"{'product':20} {product:7,}")
    return [room for room in counts if counts[room] > budget.get(room, 0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1],
                        help="another checkout")
    parser.add_argument("--check", action="store_true", help=f"compare rooms with {BUDGET}")
    args = parser.parse_args()
    if not args.check:
        for name, figure in measure(args.root.resolve()).items():
            print(f"{name:42} {figure}")
    elif above := check(args.root.resolve()):
        sys.exit(f"above the budget of {BUDGET}: {', '.join(above)}")


if __name__ == "__main__":
    main()

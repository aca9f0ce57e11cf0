"""The examples in CONTRIBUTING.md equal the code that tests/ranks/test_proof.py runs."""
import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def definitions(text):
    """Return a file's classes and functions as syntax trees by name, and its imported names."""
    body = ast.parse(text).body
    named = [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    trees = {node.name: ast.dump(node) for node in named}
    return trees, {each.name for node in imports for each in node.names}


@pytest.mark.parametrize("number", range(6))
def test_examples_are_proven(number):
    assert len(EXAMPLES) == 6
    proven, imported = definitions((TESTS / "ranks" / "test_proof.py").read_text())
    shown, needed = definitions(EXAMPLES[number])
    assert {name: proven.get(name) for name in shown} == shown and needed <= imported
    exec(EXAMPLES[number], {})  # what it imports is there


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_and_folders_that_a_page_names_exist(page):
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\((?!http)([\w./-]+)", text)
    assert links and all(((ROOT / page).parent / link).exists() for link in links), links
    rooms = "hpgcn|kernels|datasets|tests|docs|scripts"
    places = set(re.findall(rf"(?<![\w./{{-])((?:{rooms})/[\w./-]*\w)(?![\w{{*])", text))
    new = set(re.findall(r"^1\. `([\w./]+)`", text, re.MULTILINE))  # files of an example
    assert not [place for place in new if (ROOT / place).exists()]
    places = {Path(place).parent if "NAME" in place or place in new else Path(place)
              for place in places}
    assert len(places) > 20
    assert not [str(place) for place in places if not (ROOT / place).exists()]

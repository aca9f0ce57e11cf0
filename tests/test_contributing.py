"""The examples of CONTRIBUTING are the code that tests/ranks/test_proof.py runs."""
import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "CONTRIBUTING.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def definitions(text):
    """Syntax of the classes and functions of a file, by name; and the names that it imports."""
    body = ast.parse(text).body
    named = [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    trees = {node.name: ast.dump(node) for node in named}
    return trees, {each.name for node in imports for each in node.names}


@pytest.mark.parametrize("number", range(2))
def test_examples_are_proven(number):
    assert len(EXAMPLES) == 2
    proven, imported = definitions((TESTS / "ranks" / "test_proof.py").read_text())
    shown, needed = definitions(EXAMPLES[number])
    assert {name: proven.get(name) for name in shown} == shown and needed <= imported
    exec(EXAMPLES[number], {})  # what it imports is there

"""Assertions of arrays name the place at which they fail."""
import ast

from checkout import ROOT


def clauses(test):
    """Return the parts of an assertion that are joined by `and`, without `not`."""
    joined = isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)
    return [part.operand if isinstance(part, ast.UnaryOp) else part
            for part in (test.values if joined else [test])]


def test_no_assert_is_the_all_or_any_of_an_array():
    """Functions of arrays.py say how many numbers fail, and where; ruff bans array_equal."""
    found = [f"{path}:{node.lineno}" for path in sorted((ROOT / "tests").rglob("*.py"))
             for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Assert)
             for part in clauses(node.test) if isinstance(part, ast.Call)
             and isinstance(part.func, ast.Attribute) and part.func.attr in ("all", "any")
             and path.name != "arrays.py"]
    assert not found

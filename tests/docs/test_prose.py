"""scripts/check_prose.py detects each kind of fault, and finds none in the code and the pages."""
import importlib.util

import pytest
from checkout import ROOT

spec = importlib.util.spec_from_file_location(
    "check_prose", ROOT / "scripts" / "check_prose.py")
check_prose = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_prose)


@pytest.mark.parametrize("kind, text", [
    ("headless", 'def f():\n    """The sum of x."""\n'),
    ("headless", '"""What a rank sends."""\n'),
    ("what", 'def f():\n    """Return what a rank sends."""\n'),
    ("see", 'def f():\n    """See `g`."""\n'),
    ("of first", '"""Read a file. Of its lines the first."""\n'),
    ("of first", "n = 1  # of a row\n"),
    ("amount", '"""Read so many rows."""\n'),
    ("is none", '"""Read a number. None if there is none."""\n'),
    ("trailing", "# the columns are read, too\n"),
    ("person", '"""Read a file. A rank tells the others."""\n'),
    ("long", f'"""Read {"a word and " * 9}a word."""\n')])
def test_each_kind_is_found(kind, text):
    assert [found for _, found, _ in check_prose.findings(text)] == [kind]


def test_plain_words_pass():
    assert not [*check_prose.findings('def f():\n    """Return the sum of x."""  # known\n')]


@pytest.mark.parametrize("kinds, text", [
    ([], "# Title\n\nA line.\n"),
    (["wide"], f"| {'cell ' * 30}|\n"),
    (["long median", "long sentences"], "word " * 12 + "\n" + "word " * 17 + ".\n"),
    (["long sentences"], "One. Two. Three.\n" + 2 * ("- word\n" + "  word\n" * 28)),
    ([], f"    {'code ' * 20}\n\n| {'cell ' * 20}|\n")])
def test_each_kind_of_page_is_found(kinds, text):
    assert [kind for _, kind, _ in check_prose.page_findings(text)] == kinds


@pytest.mark.parametrize("path", check_prose.PAGES, ids=lambda path: path.name)
def test_pages_are_narrow_and_short(path):
    columns = check_prose.MOST_COLUMNS.get(path.name, 120)
    assert not [*check_prose.page_findings(path.read_text(), columns)]


@pytest.mark.long
def test_rooms_have_plain_words(capsys):
    counts = check_prose.main([])
    assert not counts, capsys.readouterr().out

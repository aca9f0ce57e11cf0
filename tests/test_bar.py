"""Progress bars: where they show, and what is said while kernels are compiled."""
import io
import logging
import sys

import numba
import pytest
from commands import python

from hpgcn.runtime.progress_bar import bar
from hpgcn.training.warmup import compiling

NOTEBOOK = """
import io, sys, types, warnings
warnings.simplefilter("error")
for name in ("IPython", "ipykernel", "ipykernel.iostream", "ipykernel.zmqshell"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["IPython"].get_ipython = object
OutStream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
sys.stderr = OutStream()
from hpgcn.runtime.progress_bar import bar
for _ in bar(range(3), shown=SHOWN):
    pass
print("3/3" in sys.stderr.getvalue())
"""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream, shown, text", [
    (Terminal, True, "3/3"), (Terminal, False, ""), (io.StringIO, True, "")])
def test_a_bar_shows_on_a_terminal(monkeypatch, stream, shown, text):
    monkeypatch.setattr(sys, "stderr", stream())
    for _ in bar(range(3), shown=shown):
        pass
    assert text in sys.stderr.getvalue()
    assert text or not sys.stderr.getvalue()


@pytest.mark.parametrize("shown", [True, False])
def test_a_bar_shows_in_a_notebook_without_widgets_and_without_a_warning(shown):
    done = python("-c", NOTEBOOK.replace("SHOWN", str(shown)))
    assert done.stdout.split() == [str(shown)], done.stderr


@pytest.mark.parametrize("stream, shown, rank, logged, drawn", [
    (Terminal, True, 0, 0, True), (Terminal, False, 0, 1, False), (io.StringIO, True, 0, 1, False),
    (Terminal, True, 1, 0, False)])
def test_compiling_is_said_once(monkeypatch, caplog, stream, shown, rank, logged, drawn):
    caplog.set_level(logging.INFO, "hpgcn")
    monkeypatch.setattr(sys, "stderr", stream())
    with compiling(shown, rank):
        assert not sys.stderr.getvalue()  # nothing is compiled yet
        assert [numba.njit(lambda x, k=k: x + k)(1) for k in (1, 2)] == [2, 3]
    assert caplog.messages == ["compiling kernels, once per machine and version"] * logged
    assert ("machine and version: 0 in" in sys.stderr.getvalue()) == drawn

"""Progress bars: terminals and files that show them, and the text during compilation."""
import io
import logging
import re
import sys

import numba
import pytest
from commands import python
from graphs import make

import hpgcn
from hpgcn.runtime import progress_bar
from hpgcn.runtime.progress_bar import ProgressLines, bar
from hpgcn.training.compile.warmup import compiling

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


def lines_of(seconds, **options):
    """Return the lines that `ProgressLines` prints if items finish at the times `seconds`."""
    times = iter([0, *seconds])
    shown = ProgressLines(clock=lambda: next(times), **options)
    with shown:
        for number in range(1, len(seconds) + 1):
            shown.set_postfix(loss=f"{1 / number:.4f}", val_acc=None if number < 3 else 0.75,
                              refresh=False)
            shown.update()


@pytest.mark.parametrize("seconds, options, expected", [
    ([3, 9.9], {"total": 2}, []),  # a short run
    ([6, 12, 18, 24], {"total": 200, "unit": "epoch", "initial": 30}, [
        "32 of 200 epochs, loss 0.5000, 6 s per epoch",
        "34 of 200 epochs, loss 0.2500, val_acc 0.75, 6 s per epoch"]),
    ([60], {"unit": "case", "desc": "p2p"}, ["p2p: 1 case, loss 1.0000, 60 s per case"])])
def test_a_line_every_ten_seconds_where_no_bar_shows(caplog, seconds, options, expected):
    caplog.set_level(logging.INFO, "hpgcn")
    lines_of(seconds, **options)
    assert caplog.messages == expected
    caplog.set_level(logging.WARNING, "hpgcn")  # with -q, and on ranks other than 0
    lines_of(seconds, **options)
    assert caplog.messages == expected


def test_lines_of_bytes_and_of_an_iterable(caplog):
    caplog.set_level(logging.INFO, "hpgcn")
    times = iter([0, 10, 20])
    shown = ProgressLines(total=3_000_000, unit="B", desc="e.txt", clock=lambda: next(times))
    shown.update(1_000_000)
    shown.update(2_000_000 - shown.n)
    times = iter([0, 10, 15])
    assert [*ProgressLines("ab", unit="run", clock=lambda: next(times))] == ["a", "b"]
    assert caplog.messages == ["e.txt: 1 of 3 MB, 0.1 MB per second",
                               "e.txt: 2 of 3 MB, 0.1 MB per second",
                               "1 of 2 runs, 10 s per run"]


@pytest.mark.parametrize("rank, written", [("0", "hpgcn: 1 of 2 its, loss 1.0000, 10 s per it\n"),
                                           ("1", "")])
def test_a_script_without_logging_gets_lines_on_rank_0(monkeypatch, rank, written):
    monkeypatch.setattr(progress_bar.log, "hasHandlers", lambda: False)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv("PMI_RANK", rank)
    lines_of([10], total=2)
    assert sys.stderr.getvalue() == written


def test_training_without_a_terminal_says_how_far_it_is(monkeypatch, caplog):
    caplog.set_level(logging.INFO, "hpgcn")
    monkeypatch.setattr(progress_bar, "EVERY", 0.0)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    result = hpgcn.train(make(n=40), hpgcn.Config(epochs=2), progress=True)
    found = [line for line in caplog.messages if " epochs, " in line]
    for epoch, (line, metrics) in enumerate(zip(found, result.history, strict=True), 1):
        assert re.fullmatch(rf"{epoch} of 2 epochs, loss {metrics['loss']:.4f}, "
                            rf"val_acc {metrics['val_acc']:.4g}, \S+ s per epoch", line)
    caplog.clear()
    hpgcn.train(make(n=40), hpgcn.Config(epochs=2))
    assert not [line for line in caplog.messages if " epochs, " in line]
    assert not sys.stderr.getvalue()


@pytest.mark.parametrize("stream, shown, rank, logged, drawn", [
    (Terminal, True, 0, 0, True), (Terminal, False, 0, 1, False), (io.StringIO, True, 0, 1, False),
    (Terminal, True, 1, 0, False)])
def test_compiling_is_said_once(monkeypatch, caplog, stream, shown, rank, logged, drawn):
    caplog.set_level(logging.INFO, "hpgcn")
    monkeypatch.setattr(sys, "stderr", stream())
    with compiling(shown, rank):
        assert not sys.stderr.getvalue()  # before the first compilation
        assert [numba.njit(lambda x, k=k: x + k)(1) for k in (1, 2)] == [2, 3]
    assert caplog.messages == ["compiling kernels, once per machine and version"] * logged
    assert ("machine and version: 0 in" in sys.stderr.getvalue()) == drawn

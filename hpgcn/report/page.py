"""`hpgcn report --html FILE`: one static page that refers to nothing outside itself, or one picture."""
from __future__ import annotations

import base64
import html
from pathlib import Path

from hpgcn.errors import DataError, UsageError, printable, require
from hpgcn.report import figures
from hpgcn.report.runs import read_trace
from hpgcn.report.table import HEADINGS, LEGEND, TEXTS, cells
from hpgcn.store import atomic_write, refuse_existing

SUFFIXES = (".html", ".htm", ".png")
CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 1150px; margin: 2em auto;
       padding: 0 1em; overflow-wrap: anywhere }
h1 { font-size: 1.5em } h2 { font-size: 1.2em; margin-top: 2.2em; border-top: 1px solid #ddd; padding-top: 1em }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 0.85em; font-variant-numeric: tabular-nums }
th, td { padding: 0.25em 0.6em; text-align: right; white-space: nowrap; border-bottom: 1px solid #e5e5e5 }
th { border-bottom: 2px solid #888; vertical-align: bottom; white-space: normal; overflow-wrap: normal }
.text { text-align: left } th:first-child, td:first-child { position: sticky; left: 0; background: #fff }
figure { margin: 1.2em 0 } img { max-width: 100%; height: auto } figcaption, .small { color: #555; font-size: 0.85em }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1em 1em; font-size: 0.9em }
dt { color: #555 } dd { margin: 0 }
.note { background: #fff6dd; border-left: 4px solid #e69f00; padding: 0.3em 0.8em }
pre { background: #f6f6f6; padding: 0.8em; overflow-x: auto; font-size: 0.85em; overflow-wrap: normal }
@media (max-width: 700px) {  /* letters in a picture as wide as a phone would be too small to read */
  body { margin: 0.8em auto } img { max-width: none; width: calc(0.7 * var(--width)) }
}
"""


def check_output(path):
    """Refuse an output of another suffix or in no folder, and a missing matplotlib, before any work is done.

    Raises
    ------
    UsageError, MissingError, OutputError
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UsageError(f"--html {path}: expected a name that ends in .html (a page) or .png (the curves alone)")
    require("matplotlib", "plot", "a report with pictures")
    refuse_existing(path, overwrite=True)


def write(runs, path):
    """Write the report of some runs; an older file of that name is replaced.

    Parameters
    ----------
    runs : list of hpgcn.report.Run
    path : str or path-like
        .html: table, curves, and for each run its times, communication matrix and timeline; .png: the curves.

    Raises
    ------
    UsageError, MissingError
        As `check_output`.
    DataError
        A trace is malformed, or a picture is asked for of runs without an epoch.
    OutputError, StorageError
        The file cannot be written.
    """
    check_output(path)
    with figures.style():
        if Path(path).suffix.lower() == ".png":
            drawing = figures.curves(runs)
            if drawing is None:
                raise DataError(f"{runs[0].path}: no epoch was recorded, so that there is no curve to draw")
            content = figures.png(drawing)
        else:
            content = page(runs)
    atomic_write(path, content, overwrite=True)


def page(runs):
    """The text of the page."""
    names = ", ".join(run.name for run in runs)
    body = [f"<h1>{_text('hpgcn report')}</h1>", _table(runs), f'<p class="small">{_text(LEGEND)}</p>',
            _picture(figures.curves(runs), "loss and accuracy against epochs",
                     "A ring marks the best epoch: highest validation accuracy, then lowest validation loss."),
            _picture(figures.comparison(runs), "median time of a training step of each run",
                     "Each kind of work is the maximum over ranks, so that a bar may reach past the step's own time.")]
    for run in runs:
        body += _section(run)
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>hpgcn report: {_text(names)}</title>\n<style>{CSS}</style></head>\n<body>\n"
            + "\n".join(part for part in body if part) + "\n</body></html>\n").encode("utf-8", "replace")


def _section(run):
    """A run's own part of the page."""
    yield f"<h2>{_text(run.name)}</h2>"
    yield _facts(run)
    for note in run.notes:
        yield f'<p class="note">{_text(note)}</p>'
    yield _picture(figures.seconds(run), f"time of each training step of {run.name}",
                   "Each kind of work is the maximum over ranks, so that the stack may reach past the step's own time.")
    yield _picture(figures.matrix(run), f"communication matrix of {run.name}",
                   "Payload from rank to rank; sums of gradients (allreduce) are not in it. Empty cells: none.")
    if (run.path / "trace.json").exists():
        trace, notes = read_trace(run.path / "trace.json")
        accuracy = notes.get("clock_accuracy_us")
        known = isinstance(accuracy, list) and accuracy and all(isinstance(each, int | float) for each in accuracy)
        yield _picture(figures.timeline(trace), f"timeline of {run.name}",
                       (f"Ranks are aligned to within {max(accuracy):.3g} µs. " if known else "")
                       + "The whole trace opens in ui.perfetto.dev.")
    if run.settings:
        lines = "\n".join(f"{key} = {value}" for key, value in run.settings.items())
        yield f"<details><summary>Settings</summary><pre>{_text(lines)}</pre></details>"


def _facts(run):
    """When and where the run took place, and with what, as far as its summary says."""
    versions, hosts = run.summary.get("versions"), run.summary.get("hosts")
    setup = run.number("setup_s")
    facts = {
        "folder": run.path,
        "started": str(run.summary.get("started_utc") or "").replace("T", " ").replace("+00:00", " UTC"),
        "hosts": ", ".join(map(str, hosts)) if isinstance(hosts, list) else "",
        "device": run.get("device"),
        "set-up": "" if setup is None else f"{setup:.3g} s",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items())
                    if isinstance(versions, dict) else ""}
    rows = (f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts.items() if value)
    return f"<dl>{''.join(rows)}</dl>"


def _table(runs):
    def row(tag, values):
        return "<tr>" + "".join(f'<{tag}{" class=text" if place < TEXTS else ""}>{_text(value)}</{tag}>'
                                for place, value in enumerate(values)) + "</tr>"

    return "\n".join(['<div class="wide"><table><thead>', row("th", HEADINGS), "</thead><tbody>",
                      *(row("td", cells(run)) for run in runs), "</tbody></table></div>"])


def _picture(drawing, text, caption):
    """An <img> with the picture inside; nothing for None."""
    if drawing is None:
        return ""
    data = base64.b64encode(figures.png(drawing)).decode()
    width = round(drawing.get_figwidth() * 100)
    image = (f'<img src="data:image/png;base64,{data}" width="{width}" style="--width: {width}px" '
             f'alt="{_text(text)}">')
    return f'<figure><div class="wide">{image}</div><figcaption>{_text(caption)}</figcaption></figure>'


def _text(value):
    """Escaped for any place in HTML; line breaks stay."""
    return html.escape("\n".join(map(printable, str(value).split("\n"))), quote=True)

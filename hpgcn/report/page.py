"""`hpgcn report --html FILE`: write a self-contained static page, or a picture."""

import base64
import html
from pathlib import Path

from hpgcn.errors import DataError, UsageError, printable, require
from hpgcn.report import figures, look
from hpgcn.report.recorded_runs import read_trace
from hpgcn.report.run_sweep import panels
from hpgcn.report.table import HEADINGS, LEGEND, TEXTS, cells
from hpgcn.runtime.text_table import join_first_names
from hpgcn.store import atomic_write, refuse_existing

SUFFIXES = (".html", ".htm", ".png")
CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 2em auto;
       max-width: 1150px; padding: 0 1em; overflow-wrap: anywhere }
h1 { font-size: 1.5em } figure { margin: 1.2em 0 } img { max-width: 100%; height: auto }
h2 { font-size: 1.2em; margin-top: 2.2em; border-top: 1px solid #ddd; padding-top: 1em }
table { border-collapse: collapse; font-size: 0.85em; font-variant-numeric: tabular-nums }
th, td { padding: 0.25em 0.6em; text-align: right; white-space: nowrap }
td { border-bottom: 1px solid #e5e5e5 }
th { border-bottom: 2px solid #888; vertical-align: bottom; white-space: normal }
th { overflow-wrap: normal } .wide { overflow-x: auto } .text { text-align: left }
th:first-child, td:first-child { position: sticky; left: 0; background: #fff }
figcaption, .small { color: #555; font-size: 0.85em } dt { color: #555 } dd { margin: 0 }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1em 1em; font-size: 0.9em }
.note { background: #fff6dd; border-left: 4px solid #e69f00; padding: 0.3em 0.8em }
pre { background: #f6f6f6; padding: 0.8em; overflow-x: auto; font-size: 0.85em }
pre { overflow-wrap: normal }
@media (max-width: 700px) {  /* letters in a picture as wide as a phone would be too small */
  body { margin: 0.8em auto } img { max-width: none; width: calc(0.7 * var(--width)) }
}
"""
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>hpgcn report: {names}</title>
<style>{css}</style></head>
<body>
<h1>hpgcn report</h1>
{body}
</body></html>
"""


def check_output(path):
    """Refuse an output with an invalid suffix or folder, and a missing matplotlib."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UsageError(f"--html {path}: expected a name that ends in .html (a page) or .png "
                         "(only the curves)")
    require("matplotlib", "plot", "a report with pictures")
    refuse_existing(path, overwrite=True)


def write(runs, path, sweep=None):
    """Write the report of some runs to `path`; an older file is replaced.

    .html: table, curves, and for each run its times, communication matrix and timeline,
    after the table and the picture of a Sweep; .png: the curves. DataError for a trace
    that is malformed, or a picture of runs without an epoch.
    """
    check_output(path)
    with look.style():
        if Path(path).suffix.lower() == ".png":
            drawing = figures.curves(runs)
            if drawing is None:
                raise DataError(f"{runs[0].path}: no epoch was recorded, so there is no curve to "
                                "draw")
            content = look.png(drawing)
        else:
            body = [*_combinations(sweep), *_overview(runs),
                    *(part for run in runs for part in _section(run))]
            names = _text(", ".join(run.name for run in runs))
            page = PAGE.format(names=names, css=CSS, body="\n".join(filter(None, body)))
            content = page.encode("utf-8", "replace")

    atomic_write(path, content, overwrite=True)


def _combinations(sweep):
    if not sweep:
        return
    yield f"<pre>{_text(sweep.text())}</pre>"
    yield _picture(
        panels(sweep), "validation results over the values of each setting",
        "A dot is a run, the line joins the means of values. The ring is the combination with the "
        "best mean over its seeds and splits.")


def _overview(runs):
    yield '<div class="wide"><table>'
    for tag, row in (("th", HEADINGS), *(("td", cells(run)) for run in runs)):
        texts = [f'<{tag}{" class=text" * (column in TEXTS)}>{_text(cell)}</{tag}>'
                 for column, cell in enumerate(row)]
        yield f"<tr>{''.join(texts)}</tr>"
    yield f'</table></div>\n<p class="small">{_text(LEGEND)}</p>'
    yield _picture(
        figures.curves(runs), "loss and metric against epochs",
        "A ring marks the best epoch: best metric on validation vertices or links (the lowest rmse "
        "or mae, the highest of all others), then lowest validation loss.")
    yield _picture(
        figures.comparison(runs), "median time of a training step of each run",
        "Each kind of work is the maximum over ranks, so bars may be longer than the step.")


def _section(run):
    yield f"<h2>{_text(run.name)}</h2>"
    facts = [f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in _facts(run) if value]
    yield f"<dl>{''.join(facts)}</dl>"

    for note in run.notes:
        yield f'<p class="note">{_text(note)}</p>'

    # times and traffic of a step
    yield _picture(
        figures.seconds(run), f"time of each training step of {run.name}",
        "Each kind of work is the maximum over ranks, so the stack may be higher than the time of "
        "the step.")
    yield _picture(
        figures.matrix(run), f"communication matrix of {run.name}",
        "Bytes that each rank sends to each other rank: rows that the receiver's products read, "
        "and partial sums of rows that the receiver owns. Allreduces of gradients are not "
        "included. Empty cells: no bytes.")

    # the timeline, if one was recorded
    if (run.path / "trace.json").exists():
        trace, notes = read_trace(run.path / "trace.json")
        caption = "Open the whole trace in ui.perfetto.dev."
        accuracy = notes.get("clock_accuracy_us")
        if isinstance(accuracy, list) and accuracy and {*map(type, accuracy)} <= {int, float}:
            caption = f"Ranks are aligned to within {max(accuracy):.3g} µs. {caption}"
        yield _picture(figures.timeline(trace), f"timeline of {run.name}", caption)

    if run.settings:
        lines = "\n".join(f"{key} = {value}" for key, value in run.settings.items())
        yield f"<details><summary>Settings</summary><pre>{_text(lines)}</pre></details>"


def _facts(run):
    yield "folder", run.path
    started = str(run.summary.get("started_utc") or "")
    yield "started", started.replace("T", " ").replace("+00:00", " UTC")
    hosts = run.summary.get("hosts")
    if isinstance(hosts, list):
        yield "hosts", ", ".join(map(str, hosts))
    yield "classes", join_first_names(run.class_names or ())
    yield "device", run.get("device")
    if run.number("setup_s") is not None:
        yield "set-up", f"{run.number('setup_s'):.3g} s"
    versions = run.summary.get("versions")
    if isinstance(versions, dict):
        yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())


def _picture(drawing, text, caption):
    """Return an <img> element that contains the picture; an empty text for None."""
    if drawing is None:
        return ""
    data = base64.b64encode(look.png(drawing)).decode()
    width = round(drawing.get_figwidth() * 100)
    image = (f'<img src="data:image/png;base64,{data}" width="{width}" '
             f'style="--width: {width}px" alt="{_text(text)}">')
    return (f'<figure><div class="wide">{image}</div>'
            f"<figcaption>{_text(caption)}</figcaption></figure>")


def _text(value):
    """Escape text for any place in HTML; keep line breaks."""
    return html.escape("\n".join(map(printable, str(value).split("\n"))), quote=True)

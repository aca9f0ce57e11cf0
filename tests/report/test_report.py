"""`hpgcn report`: the table of runs, the page and its pictures, and refusals."""
import io
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from commands import refused, succeed

import hpgcn
from hpgcn import report
from hpgcn.errors import DataError, InputNotFoundError, MissingError, OutputError, UsageError
from hpgcn.report import breakdown, figures, look
from hpgcn.report.recorded_runs import read_trace
from hpgcn.report.table import HEADINGS, cells, rows_of
from hpgcn.runtime.clock import PARTS

LINE = {"epoch": 1, "loss": 2.0, "train_acc": 0.5, "val_acc": 0.25, "test_acc": 0.5,
        "val_loss": 1.9, "epoch_s": 0.5, "eval_s": 0.1, "spmm_s": 0.2, "dense_s": 0.1,
        "comm_s": 0.05, "wait_s": 0.125, "sent_bytes": 2_500_000, "sent_messages": 4,
        "peak_rss_bytes": 3_000_000_000}
SUMMARY = {"graph": "cora", "metric": "macro-f1", "strategy": "p2p", "ranks": 2, "threads": 4,
           "epochs": 3, "best_epoch": 2}
SETTINGS = 'graph = "/data/cora.h5"\nstrategy = "p2p"\nthreads = 4\n'
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


def lines(*changes):
    return [{**LINE, "epoch": epoch, **change} for epoch, change in enumerate(changes, 1)]


def make(path, rows=None, summary=SUMMARY, settings=SETTINGS):
    """Write a run directory; by default with three epochs, of which the second is best."""
    path.mkdir(parents=True)
    if rows is None:
        rows = lines({}, {"val_acc": 0.75, "test_acc": 0.7, "epoch_s": 0.1}, {"epoch_s": 0.2})
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if summary is not None:
        (path / "summary.json").write_text(json.dumps(summary))
    if settings is not None:
        (path / "config.toml").write_text(settings)
    return path


def event(name="spmm", rank=0, epoch=1, ts=0.0, dur=10.0):
    return {"name": name, "ph": "X", "pid": rank, "tid": 0, "ts": ts, "dur": dur,
            "args": {"epoch": epoch}}


def add_trace(path, ranks=2, epochs=3):
    """Write a trace in which each epoch takes 100 microseconds on every rank, half of it SpMM."""
    events = [{"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "rank 0"}}]
    for rank in range(ranks):
        for epoch in range(1, epochs + 1):
            at = 200.0 * epoch
            events += [event(f"epoch {epoch}", rank, epoch, at, 100.0),
                       event("spmm", rank, epoch, at, 50.0),
                       event("reduce", rank, epoch, at + 60, 30.0),
                       event("dense", rank, epoch, at + 150, 10.0)]  # after the step: evaluation
    trace = {"traceEvents": events, "otherData": {"clock_accuracy_us": [0, 1.5]}}
    (path / "trace.json").write_text(json.dumps(trace))


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def size(data):
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def test_a_row_by_hand(tmp_path):
    settings = f'{SETTINGS}model = "sage"\nlayers = 3\nhidden = 128\n'
    run, = report.read_runs([make(tmp_path / "run", settings=settings)])
    assert dict(zip(HEADINGS, cells(run), strict=True)) == {
        "run": "run", "graph": "cora", "model": "sage", "layers x hidden": "3 x 128",
        "strategy": "p2p", "ranks": "2", "threads": "4",
        "epochs": "3", "best epoch": "2", "metric": "macro-f1", "val": "75.00%", "test": "70.00%",
        "s/epoch": "0.2", "spmm s": "0.2", "dense s": "0.1", "comm s": "0.05", "wait s": "0.125",
        "MB sent": "2.500", "peak GB": "3.00"}
    assert run.notes == []
    head, rule, *rows = report.table([run, *report.read_runs([make(tmp_path / "b")])]).splitlines()
    assert len(head) == len(rule) == len(rows[0]) == len(rows[1])
    assert [row.split()[0] for row in rows[:2]] == ["run", "b"]


def divided(spmm, wait):
    return {f"mean_{part}_s": 0.0 for part in PARTS} | {"mean_spmm_s": spmm, "mean_wait_s": wait}


def test_a_bar_is_as_long_as_the_epoch(tmp_path):
    """In the time breakdown a run's bar is the mean over the middle half of its epochs."""
    rows = lines({"epoch_s": 9.0, **divided(8, 0)}, {"epoch_s": 0.4, **divided(0.1, 0.2)},
                 {"epoch_s": 0.2, **divided(0.2, 0)}, {"epoch_s": 0.1, **divided(0, 0)})
    run, older = report.read_runs([make(tmp_path / "run", rows), make(tmp_path / "older")])
    parts = breakdown.parts_of(run)
    assert list(parts) == [*PARTS.values(), "other"]
    assert {label: round(seconds, 9) for label, seconds in parts.items() if seconds} == {
        "SpMM": 0.15, "wait": 0.1, "other": 0.05}
    with pytest.raises(DataError, match="older: no epoch says how its time divides"):
        breakdown.parts_of(older)

    header, *cells_of = rows_of([run, older], older)
    assert header == [*HEADINGS, "speed-up"]
    assert [row[-1] for row in cells_of] == ["0.67", "1.00"]  # medians .3 and .2


def test_the_time_of_real_epochs(tmp_path):
    A = np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3))
    graph = hpgcn.Graph.from_scipy(A, np.eye(6), [0, 0, 0, 1, 1, 1], ([0, 3], [1, 4], [2, 5]))
    for ranks in (1, 4):
        hpgcn.train(graph, hpgcn.Config(hidden=4, epochs=8, strategy="2d" if ranks > 1 else "p2p",
                                        out=str(tmp_path / str(ranks))), ranks=ranks)
    runs = report.read_runs([tmp_path / "1", tmp_path / "4"])
    for run, ranks in zip(runs, (1, 4)):
        parts = breakdown.parts_of(run)
        whole = np.sort(run.metrics["epoch_s"])[2:6].mean()
        assert sum(parts.values()) == pytest.approx(whole)
        assert min(parts[name] for name in ("SpMM", "GEMM", "activation", "loss", "optimizer")) > 0
        assert (parts["messages of dense work"] > 0) == (ranks > 1)
        assert parts["messages of gradients"] > 0
    succeed("report", "1", "4", "--breakdown", "b.svg", "--speedup", "1", cwd=tmp_path)
    assert "GEMM" in (tmp_path / "b.svg").read_text()
    assert "--breakdown b.txt" in refused(2, "report", "1", "--breakdown", "b.txt", cwd=tmp_path)


def test_a_run_that_goes_on(tmp_path):
    rows = lines({}, {"val_acc": 0.5, "val_loss": 1.5}, {"val_acc": 0.5, "val_loss": 1.2},
                 {"val_acc": None, "test_acc": None, "val_loss": None})
    path = make(tmp_path / "run", rows, summary=None)
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 5, "lo')
    run, = report.read_runs([path])
    row = dict(zip(HEADINGS, cells(run)))
    assert [row[name] for name in ("epochs", "best epoch", "ranks", "graph")] == [
        "4", "3", "-", "cora.h5"]
    assert run.notes == ["metrics.jsonl: line 5 is incomplete and skipped",
                         "not finished: no summary.json after 4 epochs"]
    assert f"run: {run.notes[0]}" in report.table([run])


@pytest.mark.long
def test_no_evaluation_and_no_epoch(tmp_path):
    nothing = {"train_acc": None, "val_acc": None, "test_acc": None, "val_loss": None}
    runs = report.read_runs([make(tmp_path / "a", lines(nothing)),
                             make(tmp_path / "b", [], None, None)])
    for run, epochs in zip(runs, ("1", "0")):
        row = dict(zip(HEADINGS, cells(run)))
        assert (row["epochs"], row["val"], row["test"]) == (epochs, "-", "-")
    assert [run.metric for run in runs] == ["macro-f1", "score"]
    report.write(runs, tmp_path / "report.html")


def test_runs_of_one_name_are_told_apart(tmp_path):
    paths = [make(tmp_path / name / "run") for name in "ab"]
    names = [run.name for run in report.read_runs([*paths, paths[0]])]
    assert names == [str(paths[0]), str(paths[1]), f"{paths[0]} (3)"]


def test_names_are_printed_without_control_characters(tmp_path):
    summary = {**SUMMARY, "graph": "a\tb\x07"}
    table = report.table(report.read_runs([make(tmp_path / "red\x1b[31m\nline", summary=summary)]))
    assert all(line.isprintable() for line in table.split("\n"))
    assert len(table.splitlines()) == 5


def changed(**values):
    return json.dumps({**LINE, **values}).encode()


def saved(matrix):
    file = io.BytesIO()
    np.save(file, matrix)
    return file.getvalue()


@pytest.mark.parametrize("name, content, words", [
    *(("metrics.jsonl", changed() + b"\n" + row + b"\n" + changed(epoch=9) + b"\n", words)
      for row, words in (
          (b"[1]", "line 2: list, expected one JSON object"), (b"{", "line 2: not JSON"),
          (changed(), "line 2: epoch 1 after epoch 1"), (b"\xff", "not UTF-8"),
          (b'{"epoch": 2}', "line 2: loss is None, expected a number"),
          (changed(epoch=2, wait_s="long"), "line 2: wait_s is 'long', expected"),
          (changed(epoch=True), "line 2: epoch is True"), (b"[" * 100_000, "line 2: not JSON"),
          (changed(epoch=10**400), "line 2: epoch is 1000"))),
    ("summary.json", b"[1]", "list, expected one JSON object"),
    ("config.toml", b"a = ", "Invalid value"), ("config.toml", b"\xff", "not UTF-8"),
    ("traffic.npy", b"nothing", "not a .npy file"), ("traffic.npy", b"", "not a .npy file"),
    *(("traffic.npy", saved(matrix), "expected a square matrix of integers")
      for matrix in (np.zeros((2, 3), int), np.zeros(4, int), np.full((2, 2), -1), np.eye(2),
                     np.zeros((0, 0), int))),
    ("sums.npy", saved(np.zeros((2, 2), int)), "does not match traffic.npy")],
    ids=lambda value: str(value)[:30])
def test_malformed_files_are_named(tmp_path, name, content, words):
    path = make(tmp_path / "run")
    (path / name).write_bytes(content)
    with pytest.raises(DataError, match=words) as caught:
        report.read_runs([path])
    assert str(path / name) in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize("trace", [
    [], {}, {"traceEvents": 1}, {"traceEvents": [{"ph": "X", "args": {"epoch": 1}}]},
    {"traceEvents": [{**event(), "ts": "x"}]}, {"traceEvents": [{**event(), "name": 1}]},
    {"traceEvents": [event(ts=float("nan"))]}], ids=str)
def test_a_trace_of_another_kind(tmp_path, trace):
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    with pytest.raises(DataError, match=r"trace\.json: (not a trace of|list, expected)"):
        read_trace(tmp_path / "trace.json")


def test_what_is_no_run(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for path, kind, words in (("none", InputNotFoundError, "no such run directory"),
                              ("file", DataError, "a file"), ("empty", DataError, "no metrics"),
                              ("a\0b", InputNotFoundError, "no such run")):
        with pytest.raises(kind, match=words):
            report.read_runs([tmp_path / path])


@pytest.mark.long
def test_the_page_stands_alone_and_escapes_what_it_is_given(tmp_path):
    evil = "<script>alert('&')<"
    path = make(tmp_path / evil, summary={**SUMMARY, "graph": evil, "strategy": '"><img src=x>'},
                settings=f'graph = "{evil}"\n')
    np.save(path / "traffic.npy", np.array([[0, 10], [2000, 0]]))
    add_trace(path)
    runs = report.read_runs([path, make(tmp_path / "$_{unclosed"), make(tmp_path / "_hidden")])
    report.write(runs, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "iframe", "object")]
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == 2 + 3 + 2  # comparisons; times of three runs; matrix, timeline of one
    assert all(image["alt"] for image in images)
    assert all(value.startswith("data:image/png;base64,") for _, attributes in page.tags
               for name, value in attributes.items() if name in ("src", "href"))
    assert not re.search(r"url\(|@import", (tmp_path / "report.html").read_text())
    assert page.text.count(evil) >= 3 and '"><img src=x>' in page.text
    assert "aligned to within 1.5 µs" in page.text and "75.00" in page.text


@pytest.mark.long
def test_the_page_says_when_and_where_a_run_took_place(tmp_path):
    known = {"started_utc": "2026-03-04T05:06:07+00:00", "hosts": ["node1", "node<2>"],
             "device": "cpu", "setup_s": 1.2345, "versions": {"python": "3.12", "hpgcn": "0.1.0"}}
    odd = {"started_utc": 3, "hosts": "node"}
    paths = [make(tmp_path / name, summary={**SUMMARY, **summary})
             for name, summary in (("run", known), ("odd", odd), ("none", {}))]
    report.write(report.read_runs(paths), tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text()).text
    for words in ("2026-03-04 05:06:07 UTC", "node1, node<2>", "1.23 s",
                  "python 3.12, hpgcn 0.1.0"):
        assert text.count(words) == 1
    assert text.count("set-up") == text.count("versions") == 1
    assert text.count("started") == 2


@pytest.mark.long
@pytest.mark.skipif(not BROWSER, reason="needs a Chromium on PATH")
@pytest.mark.parametrize("width, height", [
    pytest.param(390, 844, id="phone"), pytest.param(1280, 900, id="desktop")])
def test_a_browser_shows_the_page(tmp_path, width, height):
    path = make(tmp_path / ("long" * 40))
    np.save(path / "traffic.npy", np.array([[0, 10], [2000, 0]]))
    add_trace(path)
    file = tmp_path / "report.html"
    report.write(report.read_runs([path, make(tmp_path / "b")]), file)
    measure = """<script>onload = () => { document.title = JSON.stringify([
        [...document.images].map(image => image.complete && image.naturalWidth > 0
                                          && image.clientWidth),
        document.documentElement.scrollWidth, innerWidth]) }</script>"""
    file.write_text(file.read_text().replace("</body>", measure + "</body>"))
    run = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
         f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},{height}",
         "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=300, check=True)
    assert "CONSOLE" not in run.stderr
    pictures, scrolled, inner = json.loads(re.search("<title>(.*?)</title>", run.stdout)[1])
    assert len(pictures) == 6  # comparisons; times of two runs; matrix, timeline of one
    assert all(pictures)
    assert max(pictures) > 700  # letters stay large enough to read; wide parts scroll by themselves
    assert scrolled <= inner


def test_png_holds_the_curves(tmp_path):
    runs = report.read_runs([make(tmp_path / f"run{number}") for number in range(30)])
    report.write(runs, tmp_path / "curves.PNG")
    width, height = size((tmp_path / "curves.PNG").read_bytes())
    assert width > 1000 and height > 500
    with pytest.raises(DataError, match="no epoch"):
        report.write(report.read_runs([make(tmp_path / "none", [])]), tmp_path / "other.png")
    assert not (tmp_path / "other.png").exists()


def test_what_the_pictures_show(tmp_path):
    path = make(tmp_path / "run")
    np.save(path / "traffic.npy", np.array([[0, 10_000], [2_500_000, 0]]))
    add_trace(path)
    run, = report.read_runs([path])
    with look.style():
        loss, score = figures.curves([run]).axes
        assert score.get_title("left") == "Macro-f1: validation (thick), test (thin)"
        assert score.get_ylabel() == "macro-f1, %"
        assert loss.lines[0].get_xydata().tolist() == [[1, 2.0], [2, 2.0], [3, 2.0]]
        assert [25, 75, 25] in [line.get_ydata().tolist() for line in score.lines]
        points = [line.get_xydata().tolist() for line in score.lines]
        assert [[2.0, 75.0]] in points  # the ring marks the best epoch
        axis = figures.matrix(run).axes[0]
        assert {(*text.get_position(), text.get_text()) for text in axis.texts} == {
            (1, 0, "0.01"), (0, 1, "2.5")}
        np.save(path / "sums.npy", np.array([[0, 10_000], [500_000, 0]]))
        run, = report.read_runs([path])
        rows, sums, _ = figures.matrix(run).axes
        assert rows.get_title(loc="left") == "Rows sent in one training step"
        assert {(*text.get_position(), text.get_text()) for text in rows.texts} == {(0, 1, "2")}
        assert {(*text.get_position(), text.get_text()) for text in sums.texts} == {
            (1, 0, "0.01"), (0, 1, "0.5")}
        axis = figures.timeline(read_trace(path / "trace.json")[0]).axes[0]
    assert axis.get_title(loc="left") == "Timeline of epoch 2"
    boxes = {lines.get_label(): np.array(lines.get_segments()) for lines in axis.collections}
    assert set(boxes) == {"other", "SpMM", "wait (reduction)"}
    for label, interval in (("SpMM", [0, 50]), ("wait (reduction)", [60, 90])):
        np.testing.assert_allclose(boxes[label][:, :, 0], [interval] * 2, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("epochs", [1, 249, 1003])
def test_times_of_few_and_many_epochs(tmp_path, epochs):
    run, = report.read_runs([make(tmp_path / "run", lines(*[{}] * epochs))])
    with look.style():
        drawing = figures.seconds(run)
        spmm, *_, whole = (patch.get_data() for patch in drawing.axes[0].patches)
        assert size(look.png(drawing, dpi=40))[0] == 440
    assert len(spmm.values) == min(epochs, 250)
    assert set(spmm.values.round(9)) == {200.0}  # ms
    assert set(whole.values.round(9)) == {500.0}
    assert (spmm.edges[0], spmm.edges[-1]) == (0.5, epochs + 0.5)


def test_a_first_epoch_that_towers_is_cut_off(tmp_path):
    run, = report.read_runs([make(tmp_path / "run", lines({"epoch_s": 90.0}, *[{}] * 30))])
    axis = figures.seconds(run).axes[0]
    assert "the highest is 90 s" in axis.get_title(loc="left") + axis.get_title()
    assert axis.get_ylim()[1] < 1000  # ms


def test_output_is_refused_before_any_work(tmp_path, monkeypatch):
    for name in ("report.pdf", "report", ".html.gz"):
        with pytest.raises(UsageError, match=r"ends in \.html"):
            report.check_output(tmp_path / name)
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        report.check_output(tmp_path / "folder.html")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingError, match=r"\(extra plot\): pip install 'matplotlib>="):
        report.check_output(tmp_path / "report.html")
    assert "cora" in report.table(report.read_runs([make(tmp_path / "run")]))  # needs none


@pytest.mark.long
def test_the_command(tmp_path):
    for name in "ab":
        make(tmp_path / name)
    (tmp_path / "report.html").write_text("old")
    out = succeed("report", "a", "b", "--html", "report.html", cwd=tmp_path)
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["a", "b"]
    assert out.endswith("wrote report.html\n")
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    (tmp_path / "c").mkdir()
    for code, words, *args in ((66, "nowhere", "a", "nowhere"), (65, "no metrics.jsonl", "c"),
                               (2, "ends in .html", "a", "--html", "report.txt"),
                               (73, "no folder", "a", "--html", "no/report.html")):
        assert words in refused(code, "report", *args, cwd=tmp_path)


@pytest.mark.parametrize("value", [
    "-1", "1e400", "-1e400", "NaN", "9" * 4000, "9" * 5000, '"x"', "[]", "true", "[" * 100_000],
    ids=lambda text: text[:8])
def test_a_value_of_any_kind_in_any_field_is_one_line_or_a_table(tmp_path, value):
    """With an odd value in any field, `report` prints a table or an error naming the field."""
    def toml(row):
        return "\n".join(f"{key} = {json.dumps(entry)}" for key, entry in row.items())

    for name, row, fields, dump in (("metrics.jsonl", LINE, LINE, json.dumps),
                                    ("summary.json", SUMMARY, SUMMARY, json.dumps),
                                    ("config.toml", {}, ("graph", "threads"), toml)):
        for field in fields:
            path = make(tmp_path / f"{name}-{field}")
            (path / name).write_text(dump({**row, field: "@"}).replace('"@"', value) + "\n")
            try:
                assert report.table(report.read_runs([path])).count("\n") < 9
            except DataError as error:
                text = str(error)
                assert re.fullmatch(rf"{re.escape(str(path / name))}: [ -~]{{1,300}}", text), text
                named = (field, "nested too deeply", "config.toml")
                assert any(word in text for word in named), text

"""`hpgcn plan`: volumes by hand and as in training, the choice, the picture and refusals."""
import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from commands import refused, succeed
from graphs import make

from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import ConfigError, DataError, InputNotFoundError, UsageError
from hpgcn.graphs.graph import Graph
from hpgcn.partition import make_partition
from hpgcn.planning.answers.choice import _choose as choose_of_run
from hpgcn.planning.answers.goals import Goal
from hpgcn.planning.answers.options import Options, read_machine
from hpgcn.planning.answers.report import forecast, table
from hpgcn.planning.counts.footprint import PARTS
from hpgcn.planning.counts.plan_input import PlanInput
from hpgcn.planning.seconds.step_seconds import Machine
from hpgcn.report import look
from hpgcn.report.comparison import check_picture, forecast_figure, plot
from hpgcn.strategies import STRATEGIES

WHOLE = Config(prune=False)
FLOPS = {"gemm_float32_flops_per_s": 1e9, "gemm_float64_flops_per_s": 5e8}
MACHINE = {"limits": {"memory_bytes_per_s": 1e9, **FLOPS}}
NEEDY = [name for name, strategy in STRATEGIES.items() if strategy.requires_partition]
OWN_PARTS = [name for name, strategy in STRATEGIES.items() if strategy.accepts_partition]
OTHERS = [name for name in STRATEGIES if name not in OWN_PARTS]


def write(path, graph, k=None, **settings):
    if k is None:
        store.write_graph(path, graph)
    else:
        store.write_partitioned(path, graph, make_partition(graph, k, **settings))
    return path


@pytest.fixture(scope="module")
def path_of_four(tmp_path_factory):
    """Return the file of the undirected path 0-1-2-3 with 3 features and 2 classes."""
    A = np.diag(np.ones(3), 1)
    graph = Graph.from_scipy(A, np.ones((4, 3)), [0, 1, 0, 1], ([0], [1], [2]), symmetrize=True)
    return write(tmp_path_factory.mktemp("path") / "path.h5", graph)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write(tmp_path_factory.mktemp("made") / "made.h5", make(directed=True))


@pytest.fixture
def these_alone(monkeypatch):
    """Remove the strategies that this file's expected rows do not list."""
    for name in {*STRATEGIES} - {"p2p", "cover", "vertex-cut", "1d", "1.5d", "2d", "3d", "mop"}:
        monkeypatch.delitem(STRATEGIES, name)


def row_of(report, strategy, parts=None, ranks=None):
    row, = [row for row in report["rows"] if row["strategy"] == strategy
            and parts in (None, row["parts"]) and ranks in (None, row["ranks"])]
    return row


def numbers(row):
    return {key: row[key] for key in ("ranks", "grid", "bytes", "messages", "memory", "seconds")}


def test_by_hand(path_of_four):
    report = forecast(path_of_four, Options((2,), (3, 2, 2), config=WHOLE))
    row = row_of(report, "p2p", "block")
    # cut in the middle, each half sends one row: twice forward, twice backward, always of width 2
    assert row["bytes"]["aggregation"] == {"forward": 2 * 2 * 2 * 4, "backward": 2 * 2 * 2 * 4}
    assert row["messages"]["aggregation"] == {"forward": 4, "backward": 4}
    # 3 x 2 + 2 x 2 weights, 2 + 2 biases, reduced and spread again
    assert row["bytes"]["weights"] == {"forward": 0, "backward": 2 * 14 * 4}
    assert row["bytes"]["dense"] == {"forward": 0, "backward": 0}
    assert (row["bytes"]["total"], row["bytes"]["max"]) == (176, 88)
    assert (row["messages"]["total"], row["messages"]["max"]) == (12, 6)
    assert row["memory"]["max_bytes"] == row["memory"]["setup"] == 788
    assert sum(row["memory"][name] for name in PARTS) == 648
    # a broadcast sends both rows of each half
    assert row_of(report, "1d")["bytes"]["aggregation"] == {"forward": 64, "backward": 64}


def test_rows_that_no_loss_reads_by_hand(path_of_four):
    # layer 2 reads vertex 0, layer 1 vertices 0 and 1 (half of all), which read 0, 1 and 2
    report = forecast(path_of_four, Options((2,), (3, 2, 2)))
    assert report["rows_per_level"] == {"train": [3, 2, 1], "evaluated": [4, 4, 4]}
    row = row_of(report, "p2p", "block")
    # layer 1 reads row 2 of the other half, and returns its gradient: A[0:3, 0:2] by rows 0 and 1
    assert row["bytes"]["aggregation"] == {"forward": 8, "backward": 8}
    assert row["messages"]["aggregation"] == {"forward": 1, "backward": 1}
    # layer 1 broadcasts two rows of one half and one of the other, layer 2 two; back 2, then 1
    sent = row_of(report, "1d")["bytes"]["aggregation"]
    assert sent == {"forward": (3 + 2) * 8, "backward": (2 + 1) * 8}
    assert table(report).splitlines()[0].endswith("a training step of gcn on 3, 2, 1 rows")


def test_seconds_by_hand(path_of_four):
    unit = Machine(memory_bytes_per_s=1.0, gemm_float32_flops_per_s=0.25, latency_s=10.0,
                   network_bytes_per_s=2.0, call_s=100.0)
    report = forecast(path_of_four, Options((2,), (3, 2, 2), machine=unit, config=WHOLE))
    seconds = row_of(report, "p2p", "block")["seconds"]
    # four rows, and one exchange of 14 gradients for their sum
    assert seconds["communication"] == (4 + 1) * 10 + (32 + 56) / 2
    # each entry: column number, value, a row; results written
    products = 4 * (5 * (4 + 4 + 2 * 4) + 2 * 2 * 4)
    # X W, X^T G; H W, H^T G, G W^T: 2 m f f' at a quarter of a flop/s
    dense = (2 * (2 * 2 * 3 * 2) + 3 * (2 * 2 * 2 * 2)) * 4
    # X and its dropout; two activations and loss in place; two sums of columns
    passing = (2 * 2 * 3 + 3 * 2 * 2 * 2 + 2 * 2 * 2) * 4
    passing += 2 * 4 * (2 * 2 * 4) + 7 * 14 * 4  # buffers; Adam
    calls = 4 * (1 + 2) + 5 + 6
    assert seconds["compute"] == products + dense + passing + calls * 100
    assert seconds["epoch"] == seconds["compute"] + seconds["communication"]


@pytest.mark.parametrize("kind, rcm", [
    ({}, True), ({"directed": True}, False), ({"sparse": True}, True)])
def test_graph_and_partitioned_file_agree(tmp_path, kind, rcm):
    graph = make(**kind)
    whole = forecast(write(tmp_path / "whole.h5", graph), Options((5,)))
    parts = forecast(write(tmp_path / "parts.h5", graph, 5, method="block", rcm=rcm), Options())
    assert numbers(row_of(parts, "p2p", "block")) == numbers(row_of(whole, "p2p", "block"))
    assert numbers(row_of(parts, "1d", "block")) == numbers(row_of(whole, "1d", "stored"))
    if not rcm:  # the stored order is the same then
        for strategy in OTHERS:
            assert numbers(row_of(parts, strategy)) == numbers(row_of(whole, strategy))


@pytest.mark.parametrize("seed", [
    0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_covers_are_those_of_runs(tmp_path, seed):
    """The plan of strategy cover is the same for a graph and for its partitioned file."""
    graph = make(directed=True, seed=seed)
    method = STRATEGIES["cover"].method
    config = Config(layers=3, balance=0.01)
    options = Options((4,), config=config, methods=(method,))
    whole = forecast(write(tmp_path / "whole.h5", graph), options)
    path = write(tmp_path / "parts.h5", graph, 4, method=method)
    parts = forecast(path, Options(config=config))
    assert numbers(row_of(parts, "cover")) == numbers(row_of(whole, "cover"))


@pytest.mark.usefixtures("these_alone")
def test_defaults(made, tmp_path):
    report = forecast(made, Options())
    assert report["step"] == {
        "widths": [13, 16, 5], "itemsize": 4, "sparse_features": False, "constant": False,
        "directed": True, "model": "gcn", "multilabel": False, "norm": "none",
        "rows": [203, 203, 67], "drop_AX": False}
    assert report["rows_per_level"] == {"train": [203, 203, 67], "evaluated": [203, 203, 203]}
    cases = {(row["strategy"], row["parts"], row["ranks"]) for row in report["rows"]
             if "+" not in row["strategy"]}  # mixtures depend on the seconds
    ranks = [2, 4, 8, 16, 32, 64, 128]
    own = {k for *_, parts, k in cases if parts == "cover"}  # for which a run makes parts
    assert own and own < {*ranks}
    assert cases == {
        ("p2p", "whole", 1),
        *((name, parts, k) for k in ranks for parts in ("random", "block")
          for name in ("p2p", "cover")),
        *((name, "cover", k) for k in own for name in ("p2p", "cover", "vertex-cut")),
        *((name, "stored", k) for k in ranks for name in STRATEGIES if name not in NEEDY)}
    parts = write(tmp_path / "parts.h5", make(directed=True), 4, method="random")
    cases = {(row["strategy"], row["parts"]) for row in forecast(parts, Options((4,)))["rows"]}
    assert cases == {
        *((name, "random" if strategy.accepts_partition else "stored")
          for name, strategy in STRATEGIES.items() if not strategy.accepts_nonzero_owners)}
    elsewhere = forecast(parts, Options((3,)))  # without strategies that use the file's parts
    assert {row["strategy"] for row in elsewhere["rows"]} == {
        name for name, strategy in STRATEGIES.items() if not strategy.accepts_partition}


@pytest.mark.long
def test_settings_of_a_run(made):
    def grids(name, **settings):
        report = forecast(made, Options.parse("2,4,6", **settings))
        rows = [row for row in report["rows"] if row["strategy"] == name]
        return {row["ranks"]: row["grid"] for row in rows}, report["step"]

    changes = {"model": "sage", "layer_norm": True, "dtype": "float64", "input_dropout": 0.0}
    shapes, step = grids("2d", grid="3x2", **changes)
    assert shapes == {6: [3, 2]}  # the grid has 6 ranks
    assert grids("3d", grid="3x2")[0][4] == [2, 1, 2]
    assert (step["model"], step["norm"]) == ("sage-mean", "layer")
    assert (step["itemsize"], step["constant"]) == (8, True)
    shapes, step = grids("3d", grid="1x2x3", model="gin", prune=False)
    assert (shapes, step["rows"]) == ({6: [1, 2, 3]}, [203, 203, 203])
    assert grids("1.5d", replication=2)[0] == {2: [1, 2], 4: [2, 2], 6: [3, 2]}
    assert grids("1.5d", replication=4)[0] == {4: [1, 4]}
    for settings, words in (
            ({"grid": "2x4"}, "strategy = '2d:2x4' has 8 ranks, expected one of 2, 4, 6"),
            ({"grid": "2"}, "strategy 2d takes RxC"), ({"grid": "axb"}, "expected RxC or RxCxL"),
            ({"replication": 5}, "expected a divisor of one of 2, 4, 6"),
            ({"aggregator": "gcn"}, "only for model sage"),
            ({"model": "mlp"}, "expected one of gcn, sage, gin, gine, sgc, appnp, gat")):
        with pytest.raises(UsageError) as error:
            grids("", **settings)
        assert words in str(error.value)


def test_json(made):
    asked = "-k", "1,6", "--widths", "13,7,7,5", "--memory", "1G", "--json"
    report = json.loads(succeed("plan", made, *asked))
    assert set(report) == {"graph", "step", "settings", "rows_per_level", "machine",
                           "memory_limit_bytes", "rows", "choice", "goal", "training", "notes"}
    assert (report["graph"]["num_nodes"], report["graph"]["parts"]) == (203, None)
    assert report["machine"]["latency_s"] == Machine().latency_s
    for row in report["rows"]:
        assert set(row) == {"strategy", "parts", "ranks", "grid", "counted", "first_batches",
                            "fits", "rows_moved", "bytes", "messages", "memory", "seconds",
                            "train"}
        assert np.prod(row["grid"]) == row["ranks"]
        for counts in (row["bytes"], row["messages"]):
            kinds = {"aggregation", "dense", "weights"}
            assert set(counts) == {"total", "max", *kinds}
            assert counts["total"] == sum(sum(counts[kind].values()) for kind in kinds)
            assert counts["max"] <= counts["total"] <= counts["max"] * row["ranks"]
            assert (counts["total"] > 0) == (row["ranks"] > 1)
        memory, seconds = row["memory"], row["seconds"]
        assert memory["max_bytes"] == max(memory["setup"], sum(memory[name] for name in PARTS))
        assert seconds["epoch"] == pytest.approx(seconds["compute"] + seconds["communication"])


def test_choice_weighs_time_against_ranks(made):
    free = Machine(latency_s=1e-15, network_bytes_per_s=1e20, call_s=1e-15)
    dear = Machine(latency_s=10.0)
    assert forecast(made, Options((1, 2, 8), machine=dear))["choice"]["ranks"] == 1
    report = forecast(made, Options((1, 2, 8), machine=free))
    choice = report["choice"]
    assert choice["ranks"] == 8 and report["rows"][choice["index"]]["ranks"] == 8
    assert choice["text"].startswith(f"8 ranks, {choice['strategy']}")
    lines = table(report, every=True).splitlines()
    assert lines[1] == f"choice: {choice['text']}"
    pointed, = [line.split() for line in lines if line.endswith("choice")]
    assert pointed[:3] == [choice["strategy"], choice["parts"], "8"]
    assert sum(line.startswith("p2p ") for line in lines) == 7
    assert "network assumed" in table(report)


def test_rows_of_runs_come_first_and_twelve_are_printed(made):
    """Runs make these partitions, and take these strategies, as their dry runs say."""
    report = forecast(made, Options((1, 2, 4, 8), config=Config(epochs=1000)))
    lines = table(report).splitlines()
    assert f"12 of {len(report['rows'])} cases; --all prints all of them" in lines
    rows = [line.split() for line in lines[lines.index("") + 2:]]
    assert len(rows) == 12 and [row[2] for row in rows[:4]] == ["1", "2", "4", "8"]
    assert any(row[-1] == "choice" for row in rows)
    assert len(table(report, every=True).splitlines()) == len(lines) - 13 + len(report["rows"])
    for row in rows[1:4]:
        assert row[-2:] == ["hpgcn", "train"] or "hpgcn train, choice" in " ".join(row)
        dry = json.loads(succeed("train", made, "--ranks", row[2], "--epochs", 1000, "--dry-run",
                                 "--json"))
        assert dry["strategy"] == row[0]

    training = report["training"]
    seconds = report["rows"][report["choice"]["index"]]["seconds"]["epoch"]
    assert training["hours"] == pytest.approx(1000 * seconds / 3600)
    assert training["node_hours"] == training["hours"] * training["nodes"]


def test_partitions_that_take_long_are_left_to_runs(made, monkeypatch):
    monkeypatch.setattr("hpgcn.planning.answers.automatic.PATIENCE", 0.0)
    report = forecast(made, Options((1, 2)))
    assert {row["parts"] for row in report["rows"]} == {"whole", "random", "block", "stored"}
    assert [row["ranks"] for row in report["rows"] if row["train"]] == [1]


def test_cases_that_cannot_be_chosen_have_lower_bounds(made, monkeypatch):
    asked = Options((2, 32), machine=Machine(call_s=1e-12, latency_s=1e-9))
    exact = forecast(made, asked)
    monkeypatch.setattr("hpgcn.planning.counts.plan_input.LARGE", 0)
    found = forecast(made, asked)
    first, second = (report["rows"][report["choice"]["index"]] for report in (found, exact))
    assert first == second and found["choice"]["text"] == exact["choice"]["text"]

    # all other rows are the same; mixtures that cannot be chosen are left out
    others = [row for row in exact["rows"]
              if row["rows_moved"] is not None or row in found["rows"]]
    bounded = [pair for pair in zip(found["rows"], others) if not pair[0]["counted"]]
    assert {(row["strategy"], row["ranks"]) for row, _ in bounded} == {("cover", 2)}
    assert [row for row in found["rows"] if row["counted"]] == [
        row for row in others if row not in [other for _, other in bounded]]
    for row, other in bounded:
        assert row["messages"] == other["messages"]
        for name in ("total", "max"):
            assert row["bytes"][name] <= other["bytes"][name]
        assert row["seconds"]["epoch"] <= other["seconds"]["epoch"]
        assert row["memory"]["max_bytes"] <= other["memory"]["max_bytes"]
    lines = table(found).splitlines()
    assert sum(line.endswith("  at least") for line in lines) == len(bounded)
    assert any(line.startswith("at least: lower bounds of 2 of") for line in lines)

    # with a goal all cases are counted
    assert forecast(made, replace(asked, goal=Goal.parse("2ranks")))["rows"] == exact["rows"]


@pytest.mark.long
def test_memory_limit_leaves_cases_out_or_names_ranks_that_fit(made):
    rows = forecast(made, Options())["rows"]
    needs = {row["ranks"]: row["memory"]["max_bytes"] for row in rows
             if row["strategy"] == "p2p" and row["parts"] in ("whole", "block")}
    some = forecast(made, Options((1, 4, 32), memory=needs[4]))
    assert not row_of(some, "p2p", "whole")["fits"]
    assert row_of(some, "p2p", "block", 4)["fits"] and some["choice"]["ranks"] > 1
    assert "! more than --memory" in table(some)
    with pytest.raises(ConfigError, match=f"at least {needs[1]:,} are needed on 1 rank") as error:
        forecast(made, Options((1,), memory=needs[1] // 5))
    named = int(re.search(r"; (\d+) ranks are enough", str(error.value))[1])
    assert named & (named - 1) == 0
    rows = forecast(made, Options((named,), memory=needs[1] // 5))["rows"]
    assert any(row["fits"] for row in rows)
    line = refused(78, "plan", made, "-k", "1,2", "--memory", 1)
    assert "no power of two up to 203 is enough" in line


@pytest.mark.long
@pytest.mark.parametrize("suffix, magic", [
    ("PNG", b"\x89PNG"), *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("svg", b"<?xml"), ("pdf", b"%P")))])
def test_picture(made, tmp_path, suffix, magic):
    pytest.importorskip("matplotlib", reason="needs pip install '.[plot]'")
    file = tmp_path / f"plan.{suffix}"
    report = forecast(made, Options((1, 2, 4)))
    plot(report, file, forecast_figure)
    assert file.read_bytes().startswith(magic)
    plot(report, file, forecast_figure)  # a second run replaces the picture
    plot(forecast(made, Options((1,))), file, forecast_figure)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.long
@pytest.mark.usefixtures("these_alone")
def test_picture_is_labeled_with_plain_numbers(made, path_of_four):
    pytest.importorskip("matplotlib", reason="needs pip install '.[plot]'")
    ranks = (1, 2, 3, 4, 7, 8, 63, 64, 65)
    drawing = forecast_figure(forecast(made, Options(ranks, methods=("random", "block"))))
    look.plain_ticks(drawing)
    drawing.canvas.draw()
    for axis in drawing.axes:
        low, high = axis.get_ylim()
        ticks = [label for place, label in zip(axis.get_yticks(), axis.get_yticklabels())
                 if low <= place <= high]
        assert len(ticks) >= 2
        assert all(re.fullmatch(r"[0-9.]+", label.get_text()) for label in ticks)
        shown = [label for label in axis.get_xticklabels() if label.get_text()]
        boxes = [label.get_window_extent() for label in shown]
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
        assert [label.get_text() for label in shown][:3] == ["1", "2", "3"]
    named = [text.get_text() for text in drawing.legends[0].get_texts()]
    others = [name for name in STRATEGIES if name not in NEEDY]
    single = [name for name in named if "+" not in name]  # a pair has a strategy for each layer
    assert single == [*(f"{name}, {parts} parts" for name in ("p2p", "cover")
                       for parts in ("random", "block")), *others, "choice"]
    report = forecast(path_of_four, Options((2,)))
    rows = [label.get_text() for label in forecast_figure(report).axes[0].get_yticklabels()]
    assert sum(row.endswith("(choice)") for row in rows) == 1
    assert len(rows) == len(report["rows"]) >= 9


def test_picture_of_an_unknown_kind():
    with pytest.raises(UsageError, match=r"plan.gif: expected a name that ends in .png, .svg"):
        check_picture("plan.gif")


@pytest.mark.long
@pytest.mark.parametrize("ranks, settings, parts, said", [
    ((4, 8), {}, 2, "p2p, cover, vertex-cut and 1d keep to the 2 parts of this file and are "
                    "left out for 4 and 8 ranks: `hpgcn partition -k 4` of the graph"),
    ((1, 2, 8), {}, 2, "left out for 8 ranks: `hpgcn partition -k 8` of the graph"),
    ((2,), {}, 2, None),
    ((1, 2), {}, None, None),
    ((2, 4), {"grid": "2x2"}, None, "2d is shown only on the grid 2x2: omit it in strategy= for"),
    ((2, 3, 5), {"replication": 2}, None,
     "1.5d is left out for 3 and 5 ranks, which 2 copies of rows do not divide")])
def test_what_is_left_out_is_said(tmp_path, ranks, settings, parts, said):
    path = write(tmp_path / "g.h5", make(n=40, f=4), parts, method="random")
    report = forecast(path, Options(ranks, config=Config(**settings)))
    lines = [line for line in report["notes"] if "left out" in line or "omit" in line]
    assert len(lines) == (said is not None)
    assert not said or said in lines[0]
    assert not said or lines[0] in table(report)


@pytest.mark.usefixtures("these_alone")
@pytest.mark.parametrize("ranks, differs", [(4, True), (3, False)])
def test_what_a_run_takes_by_itself_is_said(tmp_path, ranks, differs):
    path = write(tmp_path / "g.h5", make(n=400, degree=3), ranks, method="block")
    report = forecast(path, Options((ranks,)))
    taken, _, why = choose_of_run(PlanInput(store.load(path), Config()), ranks)
    choice = report["choice"]["strategy"]
    notes = [note for note in report["notes"] if note.startswith("`hpgcn train` on ")]
    assert (taken != choice) == differs == bool(notes) == (f"--strategy {choice}" in "".join(notes))
    assert not differs or f"on 4 ranks uses {taken}, the fastest single" in notes[0]
    assert (f"; {choice} would take " in why and "sends more rows" in why) == differs


def test_a_run_knows_no_other_machine(tmp_path):
    path = write(tmp_path / "g.h5", make(n=400, degree=3), 3, method="block")
    report = forecast(path, Options((3,), machine=Machine(latency_s=1.0)))
    choice = report["choice"]["strategy"]
    assert (f"by the seconds of the default machine; use --strategy {choice} for the choice"
            in report["notes"][-1])


def test_a_plan_says_that_a_run_partitions_first(made, monkeypatch):
    def notes(ranks, *methods):
        report = forecast(made, Options(ranks, methods=methods or None))
        return [note for note in report["notes"] if note.startswith("`hpgcn train` on several")]

    assert not notes((1,)) and not notes((2,), "cover") and not notes((1, 2))
    assert "plan with --method cover" in notes((2,), "block")[0]
    monkeypatch.setattr("hpgcn.planning.answers.automatic.PATIENCE", 0.0)
    assert "by cover first" in notes((1, 2))[0] and "plan with --method cover" in notes((2,))[0]


@pytest.mark.parametrize("given, said", [
    ({"ranks": "0"}, "-k 0: '0'"), ({"ranks": "2,"}, "-k 2,: ''"), ({"ranks": "-3"}, "'-3'"),
    ({"ranks": "2,x"}, "'x' is not a whole number"), ({"ranks": "1e3"}, "'1e3'"),
    ({"ranks": "99999"}, "1 to 8192"), ({"ranks": "9" * 30}, "1 to 8192"),
    ({"widths": ""}, "'' is not"), ({"widths": "16"}, "expected features, hidden widths and"),
    ({"widths": "16,0"}, "'0' is not"), ({"widths": "16,1.5"}, "'1.5' is not"),
    ({"methods": "random,nothing"}, "'nothing' is unknown")])
def test_refused_words(given, said):
    with pytest.raises(UsageError) as error:
        Options.parse(**given)
    assert said in str(error.value)


def test_refused_files(made, tmp_path):
    with pytest.raises(InputNotFoundError):
        forecast(tmp_path / "none.h5", Options())
    with pytest.raises(DataError, match=r"256 ranks for 203 vertices, expected 1\.\.203"):
        forecast(made, Options((2, 256)))
    bare = write(tmp_path / "bare.h5", Graph.from_scipy(sp.eye_array(3)))
    assert forecast(bare, Options(widths=(4, 2)))["choice"]["ranks"] == 1
    parts = write(tmp_path / "parts.h5", make(), 2, method="block")
    with pytest.raises(UsageError, match="already partitioned; use --method with the graph"):
        forecast(parts, Options(methods=("random",)))


def test_machine_file(tmp_path):
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(MACHINE))
    assert read_machine(file) == (Machine(1e9, 1e9, 5e8), False)
    network = {"latency_s": 1, "bytes_per_s": 7}
    file.write_text(json.dumps({**MACHINE, "machine": {"cores": 2}, "network": network}))
    machine = Machine(1e9, 1e9, 5e8, latency_s=1, network_bytes_per_s=7, cores=2)
    assert read_machine(file) == (machine, True)


def changed(group, **values):
    return json.dumps({**MACHINE, group: {**MACHINE.get(group, {}), **values}})


@pytest.mark.parametrize("text, said", [
    ("{", "not JSON"), ("[]", "list, expected one JSON object"), ("{}", "no 'limits'"),
    ('{"limits": 3}', "limits is 3, expected an object"),
    ('{"limits": {}}', "limits.memory_bytes_per_s is missing"), ("[" * 100_000, "not JSON"),
    ("\udcff", "not UTF-8"),
    (changed("limits", memory_bytes_per_s=-1), "memory_bytes_per_s is -1, expected a number"),
    (changed("limits", gemm_float32_flops_per_s=float("nan")), "gemm_float32_flops_per_s is nan"),
    (changed("network", latency=1), "network.latency is unknown, expected network.latency_s and"),
    (changed("network", latency_s=1), "network.bytes_per_s is missing"),
    (changed("network", latency_s=0, bytes_per_s=1), "network.latency_s is 0"),
    (changed("network", latency_s=1, bytes_per_s=1, hidden_share=2), "network.hidden_share is 2"),
    (changed("machine", cores=0.5), "machine.cores is 0.5, expected an integer"),
    ('{"limits": {}, "limits": {}}', "key 'limits' occurs twice")])
def test_refused_machine_files(tmp_path, text, said):
    file = tmp_path / "machine.json"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataError) as error:
        Options.parse(machine=str(file))
    assert str(file) in str(error.value) and said in str(error.value)
    with pytest.raises(InputNotFoundError):
        read_machine(tmp_path / "none.json")

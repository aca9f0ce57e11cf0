"""`hpgcn plan --sweep`: each model has the numbers of its own plan; the picture; refusals."""
import json

import pytest
from commands import refused, succeed
from graphs import make

from hpgcn import store
from hpgcn.config import Config
from hpgcn.errors import UsageError
from hpgcn.planning.answers import report
from hpgcn.planning.answers.model_sweep import ModelSweep, best_of, forecast, table
from hpgcn.planning.answers.options import Options
from hpgcn.planning.counts import plan_input
from hpgcn.report import look
from hpgcn.report.sweep_plot import sweep_figure


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("sweep") / "g.h5"
    store.write_graph(path, make(train=30))
    return path


@pytest.mark.long
def test_each_model_is_as_planned_alone(made, monkeypatch):
    parts = []

    def counted(*args, **settings):
        parts.append(settings["method"])
        return make_partition(*args, **settings)

    make_partition = plan_input.make_partition
    monkeypatch.setattr(plan_input, "make_partition", counted)
    options = Options((1, 4), methods=("random",), config=Config(model="sage"))
    found = forecast(made, options, ModelSweep.parse("24,8,8:3,1"))
    assert parts == ["random"]  # once for all models
    assert [(one["layers"], one["hidden"]) for one in found["models"]] == [
        (1, 8), (1, 24), (3, 8), (3, 24)]
    for one in found["models"]:
        widths = (13, *[one["hidden"]] * (one["layers"] - 1), 5)
        config = options.config.replace(hidden=one["hidden"], layers=one["layers"])
        alone = report.forecast(made, Options((1, 4), widths, ("random",), config=config))
        rows = [{key: row[key] for key in row if key != "train"} for row in alone["rows"]]
        assert (one["rows"], one["choice"]) == (rows, alone["choice"])
        assert one["step"] == alone["step"]
        single, four = best_of(one)
        assert (single["ranks"], four["ranks"]) == (1, 4)
        assert four["seconds"]["epoch"] == min(
            row["seconds"]["epoch"] for row in alone["rows"] if row["ranks"] == 4)
    assert set(found) == {"graph", "settings", "machine", "memory_limit_bytes", "models", "notes"}
    assert found["graph"] == alone["graph"]
    assert table(found).count("<- choice") == 4


def test_widths_give_the_ends(made):
    found = forecast(made, Options((1,), (7, 9, 3)), ModelSweep.parse("4,6"))
    assert [one["step"]["widths"] for one in found["models"]] == [[7, 4, 3], [7, 6, 3]]


def test_memory(made):
    needs = [best_of(one)[0]["memory"]["max_bytes"] for one in
             forecast(made, Options((1,)), ModelSweep.parse("4,512"))["models"]]
    found = forecast(made, Options((1,), memory=needs[0]), ModelSweep.parse("4,512"))
    assert [one["choice"] is None for one in found["models"]] == [False, True]
    lines = table(found).splitlines()
    assert "! more than --memory" in lines and lines[-1].count(" !") == 1
    line = refused(78, "plan", made, "-k", "1", "--sweep", "4,512", "--memory", "10")
    assert f"every model needs at least {needs[0]:,}" in line


@pytest.mark.long
@pytest.mark.parametrize("ranks, panels, along", [((1, 2, 4), 2, "ranks"),
                                                  ((2,), 1, "hidden width")])
def test_picture(made, ranks, panels, along):
    pytest.importorskip("matplotlib", reason="needs pip install '.[plot]'")
    found = forecast(made, Options(ranks), ModelSweep.parse("4,16,64:1,2"))
    with look.style():
        drawing = sweep_figure(found)
        drawing.canvas.draw()
    assert [axis.get_xlabel() for axis in drawing.axes] == [along] * panels
    named = [text.get_text() for text in drawing.legends[0].get_texts()]
    lines = ["hidden 4", "hidden 16", "hidden 64"] if panels == 2 else ["1 layer", "2 layers"]
    taken = {row["strategy"] for one in found["models"] for row in best_of(one)}
    assert named[:len(lines)] == lines and set(named[len(lines):]) == taken
    assert "203 vertices" in drawing.get_suptitle()
    box = drawing._suptitle.get_window_extent()
    assert box.x0 >= 0 and box.x1 <= drawing.bbox.width
    unit = drawing.axes[0].get_ylabel().partition(" ")[0]
    scale = {"s": 1, "ms": 1e3, "µs": 1e6}[unit]
    for axis, layers in zip(drawing.axes, (1, 2)):
        line = axis.get_lines()[0]
        models = [one for one in found["models"] if one["layers"] == layers]
        shown = best_of(models[0]) if panels == 2 else [best_of(one)[0] for one in models]
        assert list(line.get_xdata()) == (list(ranks) if panels == 2 else [4, 16, 64])
        times = [row["seconds"]["epoch"] for row in shown]
        ratio = [value / time for value, time in zip(line.get_ydata(), times)]
        assert ratio == pytest.approx([scale] * len(ratio))


@pytest.mark.parametrize("text", ["", "0", "16:", ":2", "16:0", "16:2:3", "a", "16;2", "-4", "1e3",
                                  "16777217"])
def test_refused_words(text):
    with pytest.raises(UsageError, match=r"--sweep .*is not a whole number from 1 to"):
        ModelSweep.parse(text)


@pytest.mark.long
def test_command(made, tmp_path):
    pytest.importorskip("matplotlib", reason="needs pip install '.[plot]'")
    asked = "plan", made, "-k", "1,2", "--sweep", "8,16"
    out = succeed(*asked, "--plot", tmp_path / "s.png")
    assert out.count("<- choice") == 2
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
    assert len(json.loads(succeed(*asked, "--json"))["models"]) == 2
    assert "works with one model" in refused(2, *asked, "--goal", "10s")
    assert "not forecast" in refused(2, *asked, "--batch", "vertices:20")

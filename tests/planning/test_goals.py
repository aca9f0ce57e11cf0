"""`hpgcn plan --goal`: answers checked by hand, and refusals."""
import itertools
import json

import pytest
from commands import refused, succeed
from graphs import make

from hpgcn import store
from hpgcn.errors import UsageError
from hpgcn.planning.answers.goals import Goal
from hpgcn.planning.answers.options import Options
from hpgcn.planning.answers.report import forecast, table
from hpgcn.planning.seconds.step_seconds import Machine


def case(strategy, ranks, seconds, fits=True):
    return {"strategy": strategy, "ranks": ranks, "fits": fits, "seconds": {"epoch": seconds}}


ROWS = [case("p2p", 1, 10.0), case("mop", 2, 4.0), case("cover", 4, 1.0, fits=False),
        case("1d", 4, 3.0), case("2d", 4, 2.5), case("p2p", 64, 2.0)]


@pytest.mark.parametrize("goal, met, best, following", [
    ("cheapest", True, ("mop", 2), ("p2p", 1)),  # 8 rank-seconds, then 10 on 1 rank and 10 on 4
    ("4s", True, ("mop", 2), ("2d", 4)),
    ("3999 ms", True, ("2d", 4), ("1d", 4)),
    (".05min", True, ("2d", 4), ("1d", 4)),
    ("1h", True, ("p2p", 1), ("mop", 2)),
    ("1s", False, ("p2p", 64), ("2d", 4)),  # strategy cover needs too much memory
    ("64ranks", True, ("p2p", 64), ("2d", 4)),
    ("63 ranks", True, ("2d", 4), ("1d", 4)),
    ("1rank", True, ("p2p", 1), None)])
@pytest.mark.parametrize("order", [*itertools.permutations(range(6))][::119])
def test_by_hand(goal, met, best, following, order):
    rows = [ROWS[at] for at in order]
    found = Goal.parse(goal).answer(rows, lambda row: f"[{row['strategy']} {row['ranks']}]")
    named = [at if at is None else (rows[at]["strategy"], rows[at]["ranks"])
             for at in (found["index"], found["next"])]
    assert (found["asked"], found["met"], *named) == (goal, met, best, following)
    places = [found["text"].find(f"[{strategy} {ranks}]")
              for strategy, ranks in filter(None, (best, following))]
    assert min(places) >= 0 and sorted(places) == places
    assert ("no case" in found["text"]) is not met


def test_more_ranks_than_asked_for_are_no_answer():
    found = Goal.parse("3ranks").answer(ROWS[3:], lambda row: row["strategy"])
    assert not found["met"] and found["index"] == 1  # 2d, the faster of those on 4
    assert found["text"].startswith("no case on 3; the nearest is 2d")


@pytest.mark.parametrize("text", ["", "10", "0s", "-1s", "s", "ranks", "0ranks", "8193ranks",
                                  "1.5ranks", "nan s", "infs", "1e3s", "10S", "fastest", "10s\n",
                                  "\u0661s", "1..5s", "9999999999ranks"])
def test_refused_words(text):
    with pytest.raises(UsageError, match=r"--goal .*: expected seconds of an epoch, such as 10s"):
        Goal.parse(text)


def test_of_a_plan(tmp_path):
    store.write_graph(tmp_path / "g.h5", make())
    fast = Machine(latency_s=1e-9, network_bytes_per_s=1e15)  # so that more ranks are faster
    options = Options(machine=fast, goal=Goal.parse("6ranks"))
    report = forecast(tmp_path / "g.h5", options)
    rows, goal = report["rows"], report["goal"]
    assert {row["ranks"] for row in rows} == {1, 2, 4, 6}
    taken, other = rows[goal["index"]], rows[goal["next"]]
    assert taken["seconds"]["epoch"] == min(row["seconds"]["epoch"] for row in rows)
    assert taken["seconds"]["epoch"] <= other["seconds"]["epoch"]
    lines = table(report).splitlines()
    assert lines[3] == f"6ranks: {goal['text']}"
    assert [line for line in lines if line.endswith("6ranks")]
    most = forecast(tmp_path / "g.h5", Options((2, 3), goal=Goal.parse("6ranks")))
    assert {row["ranks"] for row in most["rows"]} == {2, 3}  # -k goes before
    assert forecast(tmp_path / "g.h5", Options((2,)))["goal"] is None


def test_command(tmp_path):
    store.write_graph(tmp_path / "g.h5", make())
    out = succeed("plan", tmp_path / "g.h5", "-k", "1,2", "--goal", "cheapest")
    assert "\ncheapest: 1 rank" in out
    found = json.loads(succeed("plan", tmp_path / "g.h5", "--goal", "2ranks", "--json"))
    assert found["goal"]["asked"] == "2ranks" and found["goal"]["met"]
    assert "such as 10s" in refused(2, "plan", tmp_path / "g.h5", "--goal", "soon")
    assert "not forecast" in refused(2, "plan", tmp_path / "g.h5", "--goal", "10s", "--batch",
                                     "vertices:20")

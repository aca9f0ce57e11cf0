"""Bytes of ranks in turns on a GPU, with and without a file below it, are those of the plan."""
from itertools import product

import pytest
from cuda_ranks import cuda
from gpu_bytes import move_small_arrays, moved_and_planned, pinned_and_planned, write_parts

from hpgcn.strategies import STRATEGIES

__all__ = ["cuda"]
SETTINGS = "one GPU", "a file", "a file for some"  # a file: homes of all ranks are in it
QUICK = {("p2p", "gcn", "one GPU"), ("cover", "gin", "one GPU"), ("1d", "gcn", "a file"),
         ("vertex-cut", "gcn", "a file for some"), ("mop", "gin", "one GPU"),
         ("1.5d", "gcn", "one GPU"), ("2d", "gcn", "one GPU"), ("3d", "gcn", "one GPU")}
CASES = [*product(("p2p", "cover", "vertex-cut", "1d"), ("gcn", "gat", "gin"), SETTINGS),
         *product(("mop", "1.5d", "2d", "3d"), ("gcn", "gin"), SETTINGS),
         *product(("mop",), ("gat",), SETTINGS)]


def marks(model, setting, *, quick):
    """Return the mark of a case: long for one of each strategy with a file, else of releases."""
    if quick:
        return []
    return pytest.mark.long if setting == SETTINGS[0] or (model, setting) == (
        "gin", SETTINGS[2]) else pytest.mark.release


@pytest.mark.parametrize("strategy, model, setting", [
    pytest.param(*case, marks=marks(*case[1:], quick=case in QUICK)) for case in CASES])
def test_bytes_are_those_of_the_plan(cuda, strategy, model, setting, monkeypatch, tmp_path):
    """Those of an epoch with an evaluation are within 3%, both ways."""
    path, on_disk = str(tmp_path / "p.h5"), setting != SETTINGS[0]
    ranks = (5 if strategy == "1d" else 8) if on_disk else 4  # files are read in whole pages
    move_small_arrays(monkeypatch, 1 << (14 if on_disk else 11))
    # small arrays that are summed within a layer weigh more on ranks that share rows
    vertices = 6001 * (1 + on_disk) * (1 + STRATEGIES[strategy].sends_own_rows)
    write_parts(path, strategy, vertices, ranks)
    moved, planned = moved_and_planned(
        monkeypatch, path, strategy, model, ranks, scratch=str(tmp_path) * on_disk,
        kept=2 * (setting == SETTINGS[2]))
    assert moved == pytest.approx(planned, rel=0.03)


@pytest.mark.parametrize("strategy, model, directed", [
    pytest.param(*case, marks=[] if case in (("p2p", "gcn", False), ("1d", "gcn", True))
                 else pytest.mark.long)
    for case in (*product(("p2p", "cover", "vertex-cut", "1d"), ("gcn", "gat", "gin"),
                          (False, True)),
                 *product(("mop", "1.5d", "2d", "3d"), ("gcn", "gin"), (False, True)),
                 ("mop", "gat", True))])
def test_pinned_memory_is_that_of_the_plan(cuda, strategy, model, directed, monkeypatch, tmp_path):
    """It is never more. The plan counts arrays that end with their turn, many in attention."""
    path = str(tmp_path / "p.h5")
    move_small_arrays(monkeypatch, 1 << 14)
    write_parts(path, strategy, 8001, 4, directed=directed)
    pinned, planned = pinned_and_planned(path, strategy, model, 4)
    least = {"gcn": 0.94, "gin": 0.9, "gat": 0.35}[model]
    if STRATEGIES[strategy].sends_own_rows:
        least = 0.55
    assert least * planned <= pinned <= planned

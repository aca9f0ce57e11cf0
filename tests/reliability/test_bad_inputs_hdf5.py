"""Invalid HDF5 files, by the rows of docs/reliability.md, are refused by all commands."""
from pathlib import Path

import numpy as np
import pytest
from damages import ENTRIES, PARTITION, STRUCTURE, attribute, change, replace, swap
from in_process import refused, succeed
from stored_graphs import edit, make_graph, make_partition

from hpgcn import store
from hpgcn.graphs.graph import Graph

TRAIN = ("train", "g.h5", "--epochs", "1", "--out", "run")
PARTITION_IT = ("partition", "g.h5", "-k", "3", "--method", "block", "-o", "parts.h5")
INSPECT = ("inspect", "g.h5", "--verify")
PLAN = ("plan", "g.h5")
READ = (TRAIN, PARTITION_IT)
ALL = (TRAIN, PARTITION_IT, INSPECT, PLAN)


@pytest.fixture
def folder(tmp_path):
    """Write g.h5 into the working folder, and return this folder."""
    store.write_graph("g.h5", make_graph())
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize("case, command", [
    pytest.param(case, command, id=f"{case}-{command[0]}")
    for table, commands in ((STRUCTURE, ALL), (ENTRIES, READ))
    for case in table if case[0].isdigit() for command in commands])
def test_damages_are_refused(folder, case, command):
    damage, message = (STRUCTURE | ENTRIES)[case]
    edit("g.h5", damage, readable=False)
    refused(65, message, *command)


@pytest.mark.parametrize("damage, message, commands", [
    (change("adjacency/indices_1", 9, 60), r"adjacency.* 60, expected 0\.\.59", (INSPECT, PLAN)),
    (change("adjacency/pointers_to_1", 5, 2**40), "decrease", (INSPECT, PLAN)),
    (change("labels", 11, 4), r"labels.* is 4, expected 0\.\.3", (INSPECT,))],
    ids=["12", "13", "16"])
def test_commands_that_read_less_say_it_in_their_words(folder, damage, message, commands):
    edit("g.h5", damage)
    for command in commands:
        refused(65, message, *command)


def undirected(weighted):
    """Return an undirected graph in memory, with or without edge weights."""
    graph = make_graph(weighted=weighted)
    return Graph.from_scipy(graph.adjacency, graph.features, graph.labels, graph.masks,
                            symmetrize=True)


def moved(file):
    """Move an entry of the first row to column 59; the mirror entry no longer matches."""
    end = file["adjacency/indptr"][1] - 1
    assert file["adjacency/indices"][end] < 59
    file["adjacency/indices"][end] = 59


def heavier(file):
    """Change the weight of the first entry, and the stored sum of its row accordingly."""
    file["adjacency/values"][0] = 77
    first_row = file["adjacency/values"][:file["adjacency/indptr"][1]]
    file["degree/row"][0] = first_row.sum(dtype=float)


GRAPHS = {"directed": lambda: make_graph(weighted=False), "weights": make_graph,
          "undirected": lambda: undirected(False), "both": lambda: undirected(True)}
ASYMMETRIC = r"/: attribute directed is 0, but the adjacency is not symmetric: the entry at \(\d+, "
CONTRADICTIONS = {  # row: graph, damage, expected message
    "26-directed": ("directed", attribute("directed", 0), ASYMMETRIC + r"\d+\) is missing, at"),
    "26-directed-weights": ("weights", attribute("directed", 0), ASYMMETRIC),
    "26-entry": ("undirected", moved, ASYMMETRIC + r"\d+\) is \w+, at \(\d+, \d+\) "),
    "26-weight": ("both", heavier, ASYMMETRIC),
    "27-row": ("directed", change("degree/row", 3, 99), r"degree/row\[3\] is 99, but the weights"),
    "27-row-weights": ("weights", change("degree/row", 3, .5), r"degree/row\[3\] is 0\.5, but the"),
    "27-loop": ("directed", change("degree/loop", 3, 1), r"degree/loop\[3\] is 1, but the weight"),
    "27-column": ("directed", change("degree/column", 3, 99), r"degree/column\[3\] is 99, but .*"),
    "27-columns": ("directed", swap("degree/column", 3, 8), r"degree/column\[3\] is 6, but .*"),
    "27-column-undirected": ("undirected", change("degree/column", 3, 9),
                             r"degree/column\[3\] is 9, but .* sum to 16"),
    "27-column-weights": ("weights", change("degree/column", 3, .01), r"column\[3\] is 0\.01, but"),
    "28-ones": ("directed", change("adjacency/values", 9, 2), r"adjacency/values\[9\] is 2, but")}


@pytest.mark.long
@pytest.mark.parametrize("command", [*READ, INSPECT], ids=lambda command: command[0])
@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_refused(folder, case, command):
    graph, damage, message = CONTRADICTIONS[case]
    store.write_graph("g.h5", GRAPHS[graph](), overwrite=True)
    edit("g.h5", damage)
    refused(65, message, *command)


def part_of_one(case):
    """Return whether the damage `case` is also an error in a file with one part."""
    return case not in ("29 part", "29 other part", "29 end", "29 rise")


PARTITIONS = {
    **{case: PARTITION[case] for case in PARTITION if case.startswith("29") and part_of_one(case)},
    "part": (change("partition/part", 5, 1), r"partition/part\[5\] is outside 0\.\.0"),
    "offsets": (change("partition/offsets", 1, 59),
                r"partition/offsets\[1\] is 59, expected offsets that")}


@pytest.mark.long
@pytest.mark.parametrize("command", [
    *(each for each in ALL if each[0] != "partition"), (*TRAIN, "--strategy", "2d"),
    (*TRAIN, "--no-verify"), (*TRAIN, "--dry-run"),
    ("partition", "g.h5", "-k", 3, "--method", "block", "-o", "parts.npy"),
    ("predict", "RUN", "g.h5", "-o", "p.h5")], ids=lambda words: " ".join(map(str, words)))
@pytest.mark.parametrize("case", PARTITIONS)
def test_partitions_that_contradict_themselves_are_refused(folder, trained, case, command):
    """Commands refuse a file of one part whose partition arrays contradict each other."""
    damage, message = PARTITIONS[case]
    store.write_partitioned("g.h5", make_graph(), make_partition(k=1), overwrite=True)
    edit("g.h5", damage)
    refused(65, message, *(trained if word == "RUN" else word for word in command))


def test_20_truncated_empty_or_another_file(folder):
    path = Path("g.h5")
    raw = path.read_bytes()
    for content, message in [(b"", r"g\.h5: is empty \(0 bytes\), expected an HDF5 file"),
                             (b"0 1\n", r"g\.h5: is not an HDF5 file; `hpgcn convert`"),
                             (raw[:-1], r"g\.h5: is truncated")]:
        path.write_bytes(content)
        for command in (*ALL, ("predict", "g.h5")):
            refused(65, message, *command)
    refused(65, "neither a run directory", "inspect", ".")
    refused(66, "No such file", "train", "none.h5")
    path.write_bytes(raw)
    refused(65, "is an HDF5 file, .* directly to hpgcn partition", "convert", "g.h5", "out.h5")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the directory of a finished run, whose training graph is in the parent folder."""
    path = tmp_path_factory.mktemp("trained")
    store.write_graph(path / "g.h5", make_graph())
    succeed("train", path / "g.h5", "--epochs", 1, "--out", path / "run")
    return path / "run"


def settings(text):
    return attribute("config_toml", text)


MODELS = {
    "24-no-toml": (settings("= ="), "attribute config_toml: "),
    "24-key": (settings("hiden = 3"), r"did you mean hidden\?"),
    "24-nested": (settings("a=" + "[" * 3000), "too deep"),
    "22-layers": (settings("layers = 1000000000"), "attribute layers = 1000000000: expected 1 to"),
    "24-layers": (settings("layers = 3"), "weights/W2 is missing"),
    "24-model": (settings("model = 'gin'"), "weights/W0_a is missing"),
    "05-weight": (change("weights/W0", (0, 1), np.nan), r"weights/W0\[0, 1\] is nan"),
    "24-shape": (replace("weights/b0", np.zeros(3, "f4")), "weights/b0")}


@pytest.mark.parametrize("damage, message", MODELS.values(), ids=MODELS)
def test_model_is_refused(tmp_path, trained, damage, message):
    path = tmp_path / "model.h5"
    path.write_bytes((trained / "model.h5").read_bytes())
    edit(path, damage)
    refused(65, message, "predict", tmp_path, trained.with_name("g.h5"))

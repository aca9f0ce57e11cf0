"""Bad HDF5 files, row by row of the table in docs/reliability.md, through every command that reads them."""
from pathlib import Path

import h5py
import numpy as np
import pytest
from in_process import refused, run, succeed
from stored_graphs import external_storage, link, make_graph, make_partition, restamp, virtual

from hpgcn import store
from hpgcn.graph import Graph

TRAIN = ("train", "g.h5", "--epochs", "1", "--out", "run")
PARTITION = ("partition", "g.h5", "-k", "3", "--method", "block", "-o", "parts.h5")
INSPECT, PLAN = ("inspect", "g.h5", "--verify"), ("plan", "g.h5")
READ = (TRAIN, PARTITION)
ALL = (TRAIN, PARTITION, INSPECT, PLAN)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with a graph in it."""
    monkeypatch.chdir(tmp_path)
    store.write_graph("g.h5", make_graph())
    return tmp_path


def put(name, index, value):
    """A change of elements."""
    def apply(file):
        file[name][index] = value
    return apply


def attribute(name, value, group="/"):
    """A change of an attribute, None to remove it; its text is of a fixed length, as the writer's."""
    def apply(file):
        attributes = file[group].attrs
        del attributes[name]
        if isinstance(value, str):
            attributes.create(name, np.bytes_(value.encode()), dtype=h5py.string_dtype("utf-8", len(value)))
        elif value is not None:
            attributes[name] = value
    return apply


def dtype(name, kind):
    """A dataset stored as another dtype."""
    def apply(file):
        array = file[name][()].astype(kind)
        del file[name]
        file[name] = array
    return apply


def remove(name):
    def apply(file):
        del file[name]
    return apply


def first_row_with_two(file):
    return int(file["adjacency/indptr"][np.flatnonzero(np.diff(file["adjacency/indptr"][()]) > 1)[0]])


def unsorted(file):
    k = first_row_with_two(file)
    file["adjacency/indices"][k:k + 2] = file["adjacency/indices"][k:k + 2][::-1]


def duplicate(file):
    k = first_row_with_two(file)
    file["adjacency/indices"][k + 1] = file["adjacency/indices"][k]


def overlap(file):
    for key in ("train", "val"):
        file[f"masks/{key}"][21] = 1


CONTENT = {  # row: change, what the line says, commands: checksums are right again, so that they refuse nothing
    "05-weight": (put("adjacency/values", 7, np.nan), r"adjacency: the value at \(\d+, \d+\) is nan", READ),
    "05-feature": (put("features", (13, 2), np.inf), r"features\[13, 2\] is not a finite number", READ),
    "05-degree": (put("degree/row", 3, np.nan), r"degree/row\[3\] is not a finite number", READ),
    "12-past": (put("adjacency/indices_1", 9, 60), r"adjacency.* 60, expected 0\.\.59", ALL),
    "12-negative": (put("adjacency/indices_1", 9, -1), r"adjacency.* -1, expected 0\.\.59", ALL),
    "13-fall": (put("adjacency/pointers_to_1", 5, 2**40), r"adjacency.*(fall|below the one before)", ALL),
    "13-start": (put("adjacency/pointers_to_1", 0, 1), r"adjacency: row pointers start at 1, expected 0", READ),
    "13-past": (put("adjacency/pointers_to_1", 60, 361), r"row pointers end at 361, but there are 360", READ),
    "14-unsorted": (unsorted, r"adjacency: row \d+ has column \d+ after \d+: columns must increase", READ),
    "14-duplicate": (duplicate, r"columns must increase, without duplicates", READ),
    "16-label": (put("labels", 11, 4), r"labels.* (outside 0\.\.3|is 4, expected 0\.\.3)", (*READ, INSPECT)),
    "16-empty-train": (put("masks/train", slice(None), 0), r"train.* is empty", READ),
    "16-overlap": (overlap, r"masks/train\[21\] is set, and in masks/val too", READ),
    "16-unknown": (put("labels", slice(None), -1), r"is set, but the vertex has no label", READ),
    "24-version": (attribute("format_version", "2.0"), r"format_version is '2\.0', expected '1\.0'", ALL),
    "24-format": (attribute("format", "hpgcn-model"), r"format is 'hpgcn-model', expected|weights/", READ),
    "24-incomplete": (attribute("complete", None), r"attribute complete is None, expected 1", ALL),
    "24-no-field": (attribute("num_edges", None), r"attribute num_edges is missing", ALL),
    "24-no-dataset": (remove("labels"), r"dataset labels is missing", ALL),
    "24-float16": (dtype("features", np.float16), r"features has dtype float16, expected float32", ALL),
    "24-big-endian": (dtype("features", ">f4"), r"features has dtype float32 \(big-endian\)", ALL),
    "24-int32-labels": (dtype("labels", np.int32), r"labels has dtype int32, expected int64", ALL),
    "22-width": (attribute("num_features", 2**50), r"num_features is 1125899906842624, expected at most", ALL),
    "22-classes": (attribute("num_classes", 2**50), r"num_classes is 1125899906842624, expected at most", ALL),
}


@pytest.mark.parametrize("case", CONTENT)
def test_content_is_refused(folder, case):
    change, message, commands = CONTENT[case]
    with h5py.File("g.h5", "r+") as file:
        change(file)
    restamp("g.h5")
    for command in commands:
        refused(65, message, *command, folder=folder)


def swapped(name, i, j):
    """A change of two elements, each to the other."""
    def apply(file):
        file[name][[i, j]] = file[name][[i, j]][::-1]
    return apply


def mirrored(weighted):
    """An undirected graph without a loop at vertex 3."""
    graph = make_graph(weighted=weighted)
    return Graph.from_scipy(graph.adjacency, graph.features, graph.labels, graph.masks, symmetrize=True)


def moved(file):
    """One entry in another column: its row sums to what it did, its mirror image is alone."""
    end = file["adjacency/indptr"][1] - 1
    assert file["adjacency/indices"][end] < 59
    file["adjacency/indices"][end] = 59


GRAPHS = {"directed": lambda: make_graph(weighted=False), "weights": make_graph, "undirected": lambda: mirrored(False),
          "undirected weights": lambda: mirrored(True)}
ASYMMETRIC = r"/: attribute directed is 0, but the adjacency is not symmetric: the entry at \(\d+, \d+\) is "
CONTRADICTIONS = {  # row: graph, change, what the line says
    "26-directed": ("directed", attribute("directed", 0), ASYMMETRIC + "missing, at"),
    "26-directed-weights": ("weights", attribute("directed", 0), ASYMMETRIC),
    "26-entry": ("undirected", moved, ASYMMETRIC + r"\w+, at \(\d+, \d+\) "),
    "26-weight": ("undirected weights", lambda file: [put("adjacency/values", 0, 77)(file), put(
        "degree/row", 0, file["adjacency/values"][:file["adjacency/indptr"][1]].sum(dtype=float))(file)], ASYMMETRIC),
    "27-row": ("directed", put("degree/row", 3, 99), r"degree/row\[3\] is 99, but the weights of row 3 sum to 11"),
    "27-row-weights": ("weights", put("degree/row", 3, .5), r"degree/row\[3\] is 0\.5, but the weights of row 3"),
    "27-loop": ("directed", put("degree/loop", 3, 1), r"degree/loop\[3\] is 1, but the weight at \(3, 3\) is 0"),
    "27-column": ("directed", put("degree/column", 3, 99), r"degree/column\[3\] is 99, but .* column 3 sum to 5"),
    "27-columns": ("directed", swapped("degree/column", 3, 8), r"degree/column\[3\] is 6, but .* column 3 sum to 5"),
    "27-column-undirected": ("undirected", put("degree/column", 3, 9), r"degree/column\[3\] is 9, but .* sum to 16"),
    "27-column-weights": ("weights", put("degree/column", 3, .01), r"degree/column\[3\] is 0\.01, but"),
    "28-ones": ("directed", put("adjacency/values", 9, 2), r"adjacency/values\[9\] is 2, but attribute all_ones is 1"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_contradictions_are_refused(folder, case):
    graph, change, message = CONTRADICTIONS[case]
    store.write_graph("g.h5", GRAPHS[graph](), overwrite=True)
    with h5py.File("g.h5", "r+") as file:
        change(file)
    restamp("g.h5")
    for command in (*READ, INSPECT):
        refused(65, message, *command, folder=folder)


def twice(file):
    file["partition/perm"][4] = file["partition/perm"][5]


PARTITIONS = {  # row: change, what the line says
    "29-twice": (twice, r"partition/perm\[\d\] is not undone by iperm"),
    "29-swapped": (swapped("partition/perm", 3, 4), r"partition/perm\[3\] is not undone by iperm"),
    "29-past": (put("partition/perm", 5, 60), r"partition/perm\[5\] is outside 0\.\.59"),
    "29-inverse": (swapped("partition/iperm", 3, 4), r"partition/perm\[\d+\] is not undone by iperm"),
    "29-inverse-past": (put("partition/iperm", 5, -1), r"partition/iperm\[5\] is outside 0\.\.59"),
    "29-part": (put("partition/part", 5, 1), r"partition/part\[5\] is outside 0\.\.0"),
    "29-end": (put("partition/offsets", 1, 59), r"partition/offsets\[1\] is 59, expected offsets that rise from 0"),
    "29-start": (put("partition/offsets", 0, 1), r"partition/offsets\[0\] is 1, expected offsets that rise"),
}


@pytest.mark.parametrize("case", PARTITIONS)
def test_partitions_that_contradict_themselves_are_refused(folder, trained, case):
    change, message = PARTITIONS[case]
    store.write_partitioned("g.h5", make_graph(), make_partition(k=1), overwrite=True)
    with h5py.File("g.h5", "r+") as file:
        change(file)
    restamp("g.h5")
    predict = ("predict", trained, "g.h5", "-o", "p.h5")
    for command in (*ALL, (*TRAIN, "--dry-run"), (*TRAIN, "--strategy", "2d"), predict, (*TRAIN, "--no-verify")):
        refused(65, message, *command, folder=folder)


def claims(**options):
    """2^45 doubles that take no room."""
    def apply(file):
        del file["features"]
        file.create_dataset("features", (2**42, 8), np.float64, **options)
    return apply


STRUCTURE = {
    "21-external-storage": (external_storage, r"features: is stored in external files, which is refused"),
    "21-external-link": (link(h5py.ExternalLink, "/etc/passwd", "/x"), r"labels: is an external link, which is"),
    "21-soft-link": (link(h5py.SoftLink, "/masks/train"), r"labels: is a soft link, which is refused"),
    "21-virtual": (virtual, r"features: is a virtual dataset, which is refused"),
    "22-claims": (claims(), r"features: claims 281474976710656 bytes in shape \(4398046511104, 8\), but has 0 of"),
    "22-claims-packed": (claims(chunks=(1000, 8), compression="gzip"), r"features: claims 281474976710656 bytes"),
}


@pytest.mark.parametrize("case", STRUCTURE)
def test_structure_is_refused(folder, case):
    change, message = STRUCTURE[case]
    with h5py.File("g.h5", "r+") as file:
        change(file)
    for command in ALL:
        refused(65, message, *command, folder=folder)


def test_20_truncated_empty_or_another_file(folder):
    raw = Path("g.h5").read_bytes()
    for content, message in [(b"", r"g\.h5: is empty \(0 bytes\), expected an HDF5 file"),
                             (b"0 1\n", r"g\.h5: is not an HDF5 file; `hpgcn convert`"),
                             (raw[:8], r"g\.h5: is truncated"),
                             (raw[:-1], r"g\.h5: is truncated"), (raw[:len(raw) // 2], r"g\.h5: is truncated")]:
        Path("g.h5").write_bytes(content)
        for command in (*ALL, ("predict", "g.h5")):
            refused(65, message, *command, folder=folder)
    refused(65, "is a folder", "inspect", ".", folder=folder)
    refused(66, "No such file", "train", "none.h5", folder=folder)
    refused(65, "is an HDF5 file, .* goes to hpgcn partition", "convert", write(raw), "out.h5", folder=folder)


def write(raw):
    Path("g.h5").write_bytes(raw)
    return "g.h5"


@pytest.mark.parametrize("compress", ["none", "gzip"], ids=["23-plain", "23-packed"])
def test_one_flipped_bit_in_any_dataset(folder, compress):
    graph = make_graph(features="sparse", ids=True)
    store.write_partitioned("g.h5", graph, make_partition(k=1, edges=graph.indices.size), overwrite=True,
                            compress=compress)
    raw, places = Path("g.h5").read_bytes(), {}
    with h5py.File("g.h5") as file:
        file["manifest"].visititems(lambda name, item: places.update({name: offset(file[name])})
                                    if isinstance(item, h5py.Dataset) else None)
    assert len(places) == 19
    for name, place in places.items():
        Path("g.h5").write_bytes(raw[:place] + bytes([raw[place] ^ 4]) + raw[place + 1:])
        refused(74, rf"g\.h5: {name}( |:)", *INSPECT, folder=folder)
    Path("g.h5").write_bytes(raw[:places["features/values"]] + b"\xff" + raw[places["features/values"] + 1:])
    refused(74, r"g\.h5: features/values", *TRAIN, folder=folder)


def offset(dataset):
    """Place in the file of a byte of a dataset's first or only piece."""
    if dataset.chunks:
        piece = dataset.id.get_chunk_info(0)
        return piece.byte_offset + piece.size // 2
    return dataset.id.get_offset() + dataset.nbytes // 2


def test_23_a_changed_attribute(folder):
    with h5py.File("g.h5", "r+") as file:
        file.attrs["directed"] = 1 - file.attrs["directed"]
    for command in ALL:
        refused(74, "the checksum of the attributes does not match", *command, folder=folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run directory, and the graph that it was trained on beside it."""
    path = tmp_path_factory.mktemp("trained")
    store.write_graph(path / "g.h5", make_graph())
    succeed("train", path / "g.h5", "--epochs", 1, "--out", path / "run")
    return path / "run"


SETTINGS = {
    "24-no-toml": ("= =", "attribute config_toml: "), "24-key": ("hiden = 3", r"did you mean hidden\?"),
    "24-value": ("hidden = 'x'", "attribute hidden = 'x': expected int"), "24-nested": ("a=" + "[" * 3000, "too deep"),
    "22-layers": ("layers = 1000000000", "attribute layers = 1000000000: expected 1 to 1000"),
    "24-layers": ("layers = 3", "weights/W2 is missing"), "24-model": ("model = 'gin'", "weights/W0_a is missing")}


@pytest.mark.parametrize("case", SETTINGS)
def test_model_with_other_settings_is_refused(tmp_path, trained, case):
    text, message = SETTINGS[case]
    (tmp_path / "model.h5").write_bytes((trained / "model.h5").read_bytes())
    with h5py.File(tmp_path / "model.h5", "r+") as file:
        attribute("config_toml", text)(file)
    restamp(tmp_path / "model.h5")
    refused(65, message, "predict", tmp_path, trained.with_name("g.h5"), folder=tmp_path)


MODELS = {"05-weight": (put("weights/W0", (0, 1), np.nan), 65, r"weights/W0\[0, 1\] is nan"),
          "24-missing": (remove("weights/W1"), 65, r"weights/W1 is missing"),
          "24-shape": (lambda file: [remove("weights/b0")(file), file.__setitem__("weights/b0", np.zeros(3, "f4"))], 65,
                       r"weights/b0")}


@pytest.mark.parametrize("case", MODELS)
def test_model_is_refused(tmp_path, trained, case):
    change, code, message = MODELS[case]
    (tmp_path / "model.h5").write_bytes((trained / "model.h5").read_bytes())
    with h5py.File(tmp_path / "model.h5", "r+") as file:
        change(file)
    restamp(tmp_path / "model.h5")
    refused(code, message, "predict", tmp_path, trained.with_name("g.h5"), folder=tmp_path)


def test_names_inside_a_file_are_no_paths(folder):
    with h5py.File("g.h5", "r+") as file:
        attribute("source_name", "../../escaped/\x1b[31m\nname")(file)
    restamp("g.h5")
    code, errors, output = run("train", "g.h5", "--epochs", "1")
    assert (code, errors) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == ["g.h5", "run-.._.._escaped__[31m_name-1"]
    assert "\x1b" not in output
    assert "\x1b" not in succeed("inspect", "g.h5")

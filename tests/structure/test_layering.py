"""Rules of the architecture, checked by syntax trees: imports, names and lengths of files."""
import ast
import functools
import re
import sys
from collections import Counter
from dataclasses import fields

import pytest
from checkout import ROOT
from commands import python

import hpgcn
from hpgcn.config import Config
from hpgcn.model import MODELS
from hpgcn.partition import METHODS
from hpgcn.strategies import STRATEGIES

FLOORS = [  # from the lowest: each imports from those below, or from the same
    "kernels",
    "errors config setting_field setting_words graphs runtime",
    "comm store",
    "parallel",
    "partition strategies",
    "model sampling",
    "planning",
    "training datasets interop",
    "__init__ __main__ cli report doctor bench"]
LAYERS = {name: floor for floor, names in enumerate(FLOORS) for name in names.split()}
OUTSIDE = {  # rooms that may import each package, besides NumPy, SciPy and the standard library
    "numba": {"kernels", "training", "datasets", "partition", "doctor"},
    "llvmlite": {"kernels"},
    "cupy": {"kernels", "runtime", "comm", "doctor"}, "h5py": {"store", "doctor"},
    "mpi4py": {"comm", "doctor"},
    "mtkahypar": {"partition"},
    "kahypar": {"partition"}, "kaminpar": {"partition"},
    "pymetis": {"partition"}, "sklearn": {"datasets"},
    "tqdm": {"runtime"}, "pandas": {"report"}, "torch": {"interop"},
    "torch_geometric": {"interop"}, "onnx": {"interop"},
    "dgl": {"interop"}, "networkx": {"interop", "datasets"}}
SOURCES = sorted(path for folder in ("hpgcn", "kernels", "datasets")
                 for path in (ROOT / folder).rglob("*.py"))


def room(path):
    """Return the top-level component of a file: kernels, datasets, or a folder of hpgcn."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0] if parts[0] != "hpgcn" else parts[1]


@functools.cache
def nodes_of(path):
    """Return all nodes of a file's syntax tree."""
    return [*ast.walk(ast.parse(path.read_text()))]


def is_module(name):
    """Return whether hpgcn has a module or package of this name."""
    top, *inner = name.split(".")
    folder = ROOT if inner and inner[0] in ("kernels", "datasets") else ROOT / top
    path = folder.joinpath(*inner)
    return top == "hpgcn" and (path.is_dir() or path.with_suffix(".py").exists())


def imports(path):
    """Yield (line, module) of every import of a file, except those for type checking."""
    of_types = {node for test in nodes_of(path) if isinstance(test, ast.If)
                and ast.unparse(test.test) == "TYPE_CHECKING"
                for line in test.body for node in ast.walk(line)}
    for node in nodes_of(path):
        if node in of_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = inner if node.module == "hpgcn" else [node.module, *filter(is_module, inner)]
            yield from ((node.lineno, name) for name in names)


def test_files_are_short_and_imports_go_down():
    for path in SOURCES:
        assert len(path.read_text().splitlines()) <= 500, path
        here = room(path)
        assert here in LAYERS, f"{path} is in no layer"
        for line, name in imports(path):
            first, *rest = name.split(".")
            if first == "hpgcn":
                there = rest[0] if rest and rest[0] in LAYERS else "__init__"
                if there == "__init__" and rest in ([], ["__version__"]):
                    continue
                said = f"{path}:{line}: {here} imports {there}, which lies higher"
                assert LAYERS[there] <= LAYERS[here], said
            elif first in OUTSIDE:
                assert here in OUTSIDE[first], f"{path}:{line}: {here} may not import {first}"
            else:
                known = sys.stdlib_module_names | {"numpy", "scipy"}
                assert first in known, f"{path}:{line}: {first} is no dependency"


def test_the_loop_asks_no_planning():
    """The training loop imports nothing from hpgcn.planning: its RunPlan has all that it needs."""
    training = ROOT / "hpgcn/training"
    for path in (training / "trainer.py", *(training / "steps").glob("*.py"),
                 *(training / "saved").glob("*.py")):
        asked = [name for _, name in imports(path) if name.startswith("hpgcn.planning")]
        assert not asked, f"{path} imports {asked}"


FLOORS_INSIDE = {  # floors of files and folders of a room, like FLOORS
    "kernels": ["host", "bits16 masks scan specs", "content_checks", "checks packages", "reference",
                "cpu/chunks cpu/tuning", "cpu/emit", "cpu", "cuda", "disk entries orders", "ahead"],
    "datasets": [
        "packing", "source", "text raw_graph convert_options unsupported_formats split",
        "vertex_numbers", "edges", "readers", "tables collections sorting",
        "formats random_contents vertex_changes", "edge_feature_files held_out_links", "convert",
        "generators"],
    "store": ["objects manifest json_fields text_rows", "writer", "reader", "csr_arrays schema",
              "row_arrays link_arrays", "row_order", "blocks/window_rows", "blocks/reordered",
              "blocks/structure", "stored", "graph_files model_files",
              "prediction_files learned_row_files"],
    "planning": ["counts", "seconds", "answers"],
    "training": ["files", "steps", "setup", "saved", "compile", "trainer scratch_run gpu_run",
                 "compile_child link_scores", "run inference propagator", "run_grid", "sweep_table",
                 "sweep"],
    "model": ["spec model_features targets metrics batch_loss target_scale keyed_values",
              "target_loss link_metrics links", "loss embedding",
              "layers/layer", "row_pipeline stages", "layers", "registry", "model_parts",
              "layers/norms parameters masked_results", "model"]}


@pytest.mark.parametrize("room", FLOORS_INSIDE)
def test_imports_go_down_inside_rooms(room):
    floors = {name: floor for floor, names in enumerate(FLOORS_INSIDE[room])
              for name in names.split()}

    def floor_of(module):
        """Return the floor of a file, or of the folder that holds it."""
        paths = ("/".join(module[:count]) for count in range(len(module), 0, -1))
        return next(floors[path] for path in paths if path in floors)

    folder = ROOT / room if room in ("kernels", "datasets") else ROOT / "hpgcn" / room
    package = f"hpgcn.{room}."
    for path in folder.rglob("*.py"):
        here = path.relative_to(folder).with_suffix("").parts
        if here[-1] in ("__init__", "__main__"):
            continue
        for line, name in imports(path):
            if name.startswith(package) and is_module(name):
                there = name.removeprefix(package).split(".")
                said = f"{path}:{line} imports {name}, which lies higher"
                assert floor_of(there) <= floor_of(here), said


def test_layers_and_simple_strategies_know_no_optimization_around_them():
    """Neither batches of rows, nor the page cache, nor faults that tests inject."""
    optimizations = re.compile(r"in_batches|rows_done|batch(?:es)? of rows|cached=|page cache|"
                               r"\bfaults?\b")
    strategies = (ROOT / f"hpgcn/strategies/{name}.py" for name in ("p2p", "one_d"))
    for path in (*(ROOT / "hpgcn/model/layers").glob("*.py"), *strategies):
        assert not (found := optimizations.findall(path.read_text())), f"{path}: {found}"


@functools.cache
def words(path):
    """Return the lines of each string constant in a file, by text."""
    found = {}
    for node in nodes_of(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.setdefault(node.value, []).append(node.lineno)
    return found


@pytest.mark.parametrize("registry, home", [(STRATEGIES, "hpgcn/strategies"),
                                            (MODELS, "hpgcn/model")])
def test_no_entry_of_a_registry_is_named_outside_its_room(registry, home):
    """Strategies, models and samplers are named only in their own folder.

    Others use the registry.
    """
    settings = {entry.name for entry in fields(Config)}  # such as hops
    names = {*registry, *(name.partition("-")[0] for name in registry)} - {"vertex"} - settings
    methods = {ROOT / "hpgcn/partition/method_table.py": {*METHODS}}  # some have a strategy's name
    found = {path: sorted((names & words(path).keys()) - methods.get(path, set()))
             for path in SOURCES if not path.is_relative_to(ROOT / home)}
    config = found.pop(ROOT / "hpgcn" / "config.py")
    assert set(config) <= {Config.strategy, Config.model}
    assert not any(found.values()), {str(path): each for path, each in found.items() if each}


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = [ROOT, ROOT / "hpgcn", ROOT / "tests"]


def test_files_that_pages_name_exist():
    named = re.compile(r"(?<![\w./{}-])(?:[a-z_0-9]+/)+[a-z_0-9]+\.(?:py|cu|sh)\b")
    missing = {(page.name, path) for page in PAGES for path in named.findall(page.read_text())
               if not any((folder / path).exists() for folder in FOLDERS)}
    assert not missing


def test_folders_are_small_and_files_have_names_of_their_own():
    """A folder has at most 20 files; file names are unique, except those of kernels' versions."""
    for folder in {path.parent for path in SOURCES}:
        assert len([*folder.glob("*.py")]) <= 20, folder
    versions = {ROOT / "kernels" / name for name in ("cpu", "cuda")}
    names = Counter(path.name for path in SOURCES if "__" not in path.name
                    and not (path.parent in versions and is_version(path)))
    assert not {name for name, count in names.items() if count > 1}


def is_version(path):
    """Return whether the reference has a file of this name."""
    return (ROOT / "kernels/reference" / path.name).exists()


def test_class_names_are_unique():
    """Each class name occurs once in the package."""
    names = Counter(node.name for path in SOURCES for node in nodes_of(path)
                    if isinstance(node, ast.ClassDef))
    assert not {name for name, count in names.items() if count > 1}


OLD_NAMES = (
    "Arrangement Deal Draw Drawn Half Held Induced Leg Parcels Pinned Reading Relay "
    "RowShares Survey Told TogetherExchange Traveling _Around _Now _Team arrivals attends "
    "besides clones cutting_bytes factor_bytes filling_bytes go_on in_words jsons lasting_bytes "
    "look_of needs_parts no_busier of_others own_arrangement prunes reading_bytes settle "
    "some_drawn stop_before streamed_seconds takes_holders takes_parts to_go_on told_to_stop "
    "unrounded where_of with_clones")


def test_old_names_do_not_return():
    """The code uses none of OLD_NAMES, which have been replaced by one name each."""
    old = set(OLD_NAMES.split())
    found = {f"{path}:{node.lineno}: {text}" for path in SOURCES for node in nodes_of(path)
             for field in ("id", "attr", "arg", "name")
             if isinstance(text := getattr(node, field, None), str) and text in old}
    assert not found


def test_no_caller_tests_whether_a_graph_lies_in_memory_or_in_a_file():
    """Code treats all graphs as GraphSource: it never tests for StoredGraph, `path` or `reader`."""
    tests = [f"{path}:{node.lineno}" for path in SOURCES
             for node in nodes_of(path) if isinstance(node, ast.Call)
             and ast.unparse(node.func) in ("hasattr", "isinstance", "getattr")
             and ast.unparse(node.args[1]).endswith(("StoredGraph", "'path'", "'reader'"))]
    assert not tests, tests


@pytest.mark.long
def test_import_is_light():
    """Import, `hpgcn.load` and `hpgcn.train` each load only the heavy packages that they need."""
    top = "print(*(name for name in sys.modules if '.' not in name or name == 'scipy.stats'))"
    steps = {
        "import hpgcn, hpgcn.__main__": {"numpy", "scipy", "numba", "h5py", "mpi4py", "mtkahypar",
                                         "sklearn", "cupy", "torch"},
        "hpgcn.load": {"numba", "mpi4py", "mtkahypar"},
        "hpgcn.train": {"mpi4py", "mtkahypar", "kahypar", "pymetis", "sklearn", "scipy.stats"}}
    done = python("-c", "; ".join(["import sys", *(f"{step}; {top}" for step in steps)]))
    assert not done.returncode, done.stderr
    for (step, heavy), loaded in zip(steps.items(), done.stdout.splitlines(), strict=True):
        assert not heavy & set(loaded.split()), step


def test_public_names():
    assert callable(hpgcn.train) and callable(hpgcn.load) and hpgcn.Graph.from_scipy
    assert set(hpgcn.__all__) <= set(dir(hpgcn))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hpgcn.nothing

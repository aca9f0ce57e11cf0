"""What setup.cfg says is what the tree holds."""
import configparser
import importlib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def setup_cfg():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_every_package_is_listed():
    listed = set(setup_cfg()["options"]["packages"].split())
    found = {"hpgcn." + ".".join(path.parent.relative_to(ROOT).parts) if path.parent.parts[len(ROOT.parts)] != "hpgcn"
             else ".".join(path.parent.relative_to(ROOT).parts)
             for folder in ("hpgcn", "kernels", "datasets") for path in (ROOT / folder).rglob("__init__.py")}
    assert listed == found
    for name in listed:
        importlib.import_module(name)


def test_extras():
    extras = dict(setup_cfg()["options.extras_require"])
    assert set(extras) == {"mpi", "mpich", "openmpi", "partition", "kahypar", "cuda12", "cuda13", "io", "plot", "demo",
                           "test", "dev"}
    core = setup_cfg()["options"]["install_requires"]
    assert {line.split(">=")[0] for line in core.split()} == {"numpy", "scipy", "numba", "h5py", "tqdm"}


def test_version_is_said_once_in_each_place():
    import hpgcn

    assert setup_cfg()["metadata"]["version"] == hpgcn.__version__


def test_kernels_are_the_tree_they_are_mapped_to():
    import hpgcn.datasets
    import hpgcn.kernels

    assert Path(hpgcn.kernels.__file__).parent.name == "kernels"
    assert Path(hpgcn.datasets.__file__).parent.name == "datasets"

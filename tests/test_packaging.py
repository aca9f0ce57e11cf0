"""What setup.cfg says is what the tree holds."""
import configparser
import email
import importlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import hpgcn

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
    assert setup_cfg()["metadata"]["version"] == hpgcn.__version__


def test_kernels_are_the_tree_they_are_mapped_to():
    import hpgcn.datasets
    import hpgcn.kernels

    assert Path(hpgcn.kernels.__file__).parent.name == "kernels"
    assert Path(hpgcn.datasets.__file__).parent.name == "datasets"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist, built from a copy of the tree: no folder of a build is left in it."""
    tree = tmp_path_factory.mktemp("build") / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv*", "build", "*.egg-info", "__pycache__"))
    code = "from setuptools import build_meta; build_meta.build_wheel('dist'); build_meta.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, capture_output=True, timeout=300)
    wheel, = (tree / "dist").glob("*.whl")
    sdist, = (tree / "dist").glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_says_who_made_it_and_where_to_read_on(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = wheel.namelist()
        path, = (name for name in names if name.endswith("dist-info/METADATA"))
        metadata = email.message_from_bytes(wheel.read(path))
    assert {"hpgcn/py.typed", "hpgcn/kernels/cuda/spmm.cu", "hpgcn/datasets/convert.py"} <= set(names)
    assert metadata["Author"] == "The hpgcn developers"
    urls = [line.split(", ")[1] for line in metadata.get_all("Project-URL")]
    assert metadata["Home-page"] or len(urls) > 3
    text = metadata.get_payload()
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 10
    assert all(link.startswith(("https://", "#")) for link in links)
    for link in links:
        name = link.partition("/blob/main/")[2]
        assert not name or (ROOT / name).exists(), link


def test_the_sdist_holds_what_a_reader_needs(built):
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    tracked = [path.relative_to(ROOT).as_posix() for folder in ("docs", "scripts", "tests", "kernels", "datasets")
               for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix not in (".pyc", ".h5")]
    assert set(tracked) | {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "setup.cfg"} <= names


@pytest.fixture
def beside_a_clone(tmp_path):
    """A folder with a clone under its usual name, as far as Python looks into it."""
    clone = tmp_path / "hpgcn"
    clone.mkdir()
    shutil.copy(ROOT / "__init__.py", clone)
    shutil.copytree(ROOT / "hpgcn", clone / "hpgcn", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("words", [
    ["-c", "import hpgcn; print(hpgcn.train and hpgcn.__file__)"],
    ["-c", "from hpgcn.kernels import cpu; import hpgcn; print(hpgcn.__file__)"],
    ["-m", "hpgcn", "--version"]], ids=["import", "subpackage", "module"])
def test_beside_a_clone_python_finds_what_is_installed(beside_a_clone, words):
    found = subprocess.run([sys.executable, *words], cwd=beside_a_clone, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == (f"hpgcn {hpgcn.__version__}" if words[0] == "-m" else hpgcn.__file__)


def test_beside_a_clone_python_says_that_nothing_is_installed(beside_a_clone):
    found = subprocess.run([sys.executable, "-S", "-c", "import hpgcn"], cwd=beside_a_clone, check=False,
                           capture_output=True, text=True)
    clone = beside_a_clone / "hpgcn"
    assert f"ImportError: hpgcn is not installed, and {clone} is its source: pip install -e {clone}" in found.stderr


def test_within_a_clone_python_says_that_it_is_not_installed(beside_a_clone):
    code = f"import sys; sys.path.append({sysconfig.get_path('purelib')!r}); import hpgcn; hpgcn.train"
    found = subprocess.run([sys.executable, "-S", "-c", code], cwd=beside_a_clone / "hpgcn", check=False,
                           capture_output=True, text=True)
    assert "ImportError: hpgcn is not installed, this is its source: pip install -e ." in found.stderr

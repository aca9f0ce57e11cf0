"""Wheels and sdists hold the modules of the source tree, and say who made them."""
import email
import re
import shlex
import shutil
import sysconfig
import tarfile
import zipfile

import pytest
from checkout import NOT_TRACKED, ROOT, SETUP
from commands import python

import hpgcn
from hpgcn.errors import MissingError, require
from hpgcn.kernels import cpu
from hpgcn.runtime import advice
from hpgcn.runtime.advice import install_command

CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


def test_metadata():
    assert set(SETUP["options.extras_require"]) == {
        "mpi", "mpich", "openmpi", "partition", "kahypar", "kaminpar", "cuda12", "cuda13", "io",
        "torch", "pyg", "dgl", "onnx", "plot", "demo", "test", "docs", "dev"}
    core = SETUP["options"]["install_requires"].split()
    assert {line.split(">=")[0] for line in core} == {"numpy", "scipy", "numba", "h5py", "tqdm"}
    assert re.search(rf"^## \[?{re.escape(hpgcn.__version__)}\b", CHANGELOG, re.MULTILINE)
    assert f"version: {hpgcn.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_advice_names_the_packages_of_an_extra(monkeypatch):
    for extra, packages in SETUP["options.extras_require"].items():
        names = [line.partition(";")[0] for line in packages.strip().splitlines()]
        of_cpus = any(name.startswith("torch") for name in names)
        for driver, index in ((__file__, []), ("/none", [
                "--extra-index-url", "https://download.pytorch.org/whl/cpu"] * of_cpus)):
            monkeypatch.setattr(advice, "DRIVER", driver)
            assert shlex.split(install_command(extra)) == ["pip", "install", *names, *index]
    assert install_command("mpi,mpich") == "pip install 'mpi4py>=4.0' 'mpich>=4.2'"

    def none(_):
        raise advice.PackageNotFoundError

    monkeypatch.setattr(advice, "requires", none)
    assert install_command("mpi,mpich") == "pip install '.[mpi,mpich]'"


def test_errors_name_the_extra():
    with pytest.raises(MissingError, match=r"^MPI needs nowhere \(extra mpi,mpich\): pip install"):
        require("nowhere.MPI", "mpi,mpich", "MPI")


@pytest.mark.long
def test_convert_is_a_module():
    """`python -m hpgcn.datasets.convert` is the command `hpgcn convert`."""
    done = python("-m", "hpgcn.datasets.convert", "--help")
    assert done.returncode == 0 and "usage: hpgcn convert [options] source out" in done.stdout
    done = python("-m", "hpgcn.datasets.convert", "no-such-file", "g.h5")
    assert done.returncode == 66 and done.stderr.startswith("hpgcn: no-such-file")


def test_no_text_names_a_package_index_that_lacks_hpgcn():
    """No text has a command that installs hpgcn by name: no package index has it."""
    paths = [path for folder in ("hpgcn", "kernels", "datasets", "docs", "scripts", "tests")
             for path in (ROOT / folder).rglob("*")
             if path.suffix in (".py", ".md", ".ipynb", ".sh")]
    wrong = re.compile(r"pip install [\"']?hpgcn\b")
    assert not [path for path in [*paths, ROOT / "README.md"] if wrong.search(path.read_text())]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the wheel and the sdist from a copy of the source; return their paths."""
    tree = tmp_path_factory.mktemp("build") / "tree"
    shutil.copytree(ROOT, tree, ignore=NOT_TRACKED)
    code = ("from setuptools import build_meta; "
            "build_meta.build_wheel('dist'); build_meta.build_sdist('dist')")
    done = python("-c", code, cwd=tree, timeout=300)
    assert not done.returncode, done.stderr
    (wheel,), (sdist,) = map((tree / "dist").glob, ("*.whl", "*.tar.gz"))
    return wheel, sdist


@pytest.mark.long
def test_the_wheel_holds_every_module_and_nothing_else(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = {name for name in wheel.namelist() if name.endswith(".py")}
    places = {"hpgcn": "hpgcn", "kernels": "hpgcn/kernels", "datasets": "hpgcn/datasets"}
    assert names == {f"{place}/{path.relative_to(ROOT / folder).as_posix()}"
                     for folder, place in places.items()
                     for path in (ROOT / folder).rglob("*.py")}


@pytest.mark.long
def test_the_wheel_says_who_made_it_and_where_to_read_on(built):
    with zipfile.ZipFile(built[0]) as wheel:
        names = wheel.namelist()
        path, = (name for name in names if name.endswith("dist-info/METADATA"))
        metadata = email.message_from_bytes(wheel.read(path))
    assert {"hpgcn/py.typed", "hpgcn/kernels/cuda/spmm.cu",
            "hpgcn/planning/machines/mixgcn-sparse-unit.json", "hpgcn/datasets/convert.py"} \
        <= set(names)

    assert metadata["Author"] == "The hpgcn developers"
    assert metadata["Home-page"] or len(metadata.get_all("Project-URL")) > 3
    assert metadata["Version"] == hpgcn.__version__
    text = metadata.get_payload()
    release = f"/v{hpgcn.__version__}/"
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 10
    for link in links:
        assert link.startswith(("https://", "#"))
        name = link.partition(release)[2].partition("#")[0]
        assert name and (ROOT / name).exists(), link
    for picture in re.findall(r"!\[[^]]*\]\(([^)]*)\)", text):
        assert picture.startswith("https://raw.githubusercontent.com/")


@pytest.mark.long
def test_the_sdist_holds_what_a_reader_needs(built):
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    tracked = [path.relative_to(ROOT).as_posix()
               for folder in ("docs", "scripts", "tests", "kernels", "datasets")
               for path in (ROOT / folder).rglob("*")
               if path.is_file() and path.suffix not in (".pyc", ".h5")
               and ".ruff_cache" not in path.parts]
    assert {*tracked, "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "setup.cfg"} \
        <= names


@pytest.fixture
def beside_a_clone(tmp_path):
    """Return a folder that contains a clone of the source under the name hpgcn."""
    clone = tmp_path / "hpgcn"
    for folder in ("hpgcn", "kernels", "datasets"):
        shutil.copytree(ROOT / folder, clone / folder, ignore=NOT_TRACKED)
    return tmp_path


@pytest.mark.long
@pytest.mark.parametrize(("words", "printed"), [
    (["-c", "import hpgcn; print(hpgcn.train and hpgcn.__path__[0])"], hpgcn.__path__[0]),
    (["-c", "from hpgcn.kernels import cpu; print(cpu.__path__[0])"], cpu.__path__[0]),
    (["-m", "hpgcn", "--version"], f"hpgcn {hpgcn.__version__}"),
], ids=["import", "subpackage", "module"])
def test_beside_a_clone_python_finds_what_is_installed(beside_a_clone, words, printed):
    assert python(*words, cwd=beside_a_clone).stdout.strip() == printed


@pytest.mark.long
def test_in_a_clone_python_finds_the_source_with_nothing_installed(beside_a_clone):
    clone = beside_a_clone / "hpgcn"
    code = (f"import sys; sys.path.append({sysconfig.get_path('purelib')!r}); import hpgcn; "
            "from hpgcn import datasets, kernels; hpgcn.train; import hpgcn.kernels.cpu.spmm; "
            "print(*(each.__path__[0] for each in (hpgcn, kernels, datasets)))")
    done = python("-S", "-c", code, cwd=clone)
    assert done.stdout.split() == [str(clone / name) for name in ("hpgcn", "kernels", "datasets")]
    done = python("-S", "-c", "import hpgcn.setup", cwd=clone)  # beside it, but not a part of it
    assert "No module named 'hpgcn.setup'" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("editable", [False, True], ids=["wheel", "editable"])
def test_python_finds_the_package_wherever_it_starts(built, tmp_path, editable):
    """Python imports the installed hpgcn when started in the clone, beside it or elsewhere."""
    clone, site, elsewhere = (tmp_path / name for name in ("hpgcn", "site", "elsewhere"))
    shutil.copytree(ROOT, clone, ignore=NOT_TRACKED)
    elsewhere.mkdir()
    path = built[0]
    if editable:
        done = python("-c", "from setuptools import build_meta; build_meta.build_editable('dist')",
                      cwd=clone, timeout=300)
        assert not done.returncode, done.stderr
        path = next(clone.glob("dist/*.whl"))
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(site)

    start = (f"import site, sys; site.addsitedir({str(site)!r}); "
             f"sys.path.append({sysconfig.get_path('purelib')!r}); ")
    show = "from hpgcn import datasets, kernels; print(kernels.__path__[0], datasets.__path__[0])"
    source = {clone: clone, tmp_path: site / "hpgcn", elsewhere: site / "hpgcn"}
    for folder, expected in source.items():
        home = clone if editable else expected
        done = python("-S", "-c", start + show, cwd=folder)
        assert done.stdout.split() == [f"{home}/kernels", f"{home}/datasets"], done.stderr
        run = ("import runpy; sys.argv = ['hpgcn', '--version']; "
               "runpy.run_module('hpgcn', run_name='__main__', alter_sys=True)")
        done = python("-S", "-c", start + run, cwd=folder)
        assert done.stdout.strip() == f"hpgcn {hpgcn.__version__}", done.stderr
    for name in ("kernels", "setup", "scripts"):
        done = python("-S", "-c", f"{start}import {name}; print({name}.__path__)", cwd=elsewhere)
        assert str(clone) not in done.stdout  # no other name is taken


def test_a_clone_is_no_package():
    """The root has no __init__.py, with which mypy would treat tests as part of hpgcn."""
    assert not (ROOT / "__init__.py").exists()

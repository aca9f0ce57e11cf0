"""Adds to setup.cfg what it cannot say.

These are the packages of three folders, whole links in README.md, and the path of `pip install -e`.
"""
import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
INIT = (ROOT / "hpgcn" / "__init__.py").read_text(encoding="utf-8")
VERSION = re.search(r'^__version__ = "(.+)"$', INIT, re.MULTILINE)[1]
# a package index shows pictures, and no page of a forge around them
PICTURES = f"https://raw.githubusercontent.com/hpgcn/hpgcn/v{VERSION}/"
TREE = f"https://github.com/hpgcn/hpgcn/blob/v{VERSION}/"


class Editable(editable_wheel):
    """Puts a folder on Python's path that holds a link to hpgcn and nothing else.

    A package on the path precedes a folder of its name where Python starts, such as a clone. The
    finder of setuptools would come behind that folder.
    """

    def finalize_options(self):
        link = ROOT / ".editable" / "hpgcn"
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(Path("..", "hpgcn"))
        self.distribution.package_dir = {"": link.parent.name}
        self.distribution.packages = ["hpgcn"]  # which finds hpgcn.kernels and hpgcn.datasets
        super().finalize_options()


def packages():
    """Return the packages of the folder hpgcn, and those of kernels and datasets within hpgcn."""
    found = [name for folder in ("hpgcn", "kernels", "datasets")
             for name in find_packages(str(ROOT), include=[folder, f"{folder}.*"])]
    return [name if name.split(".")[0] == "hpgcn" else f"hpgcn.{name}" for name in found]


def description():
    """Return README.md with links that lead to the forge from anywhere."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^]]*)\]\((?![a-z]+:)", rf"\1]({PICTURES}", text)
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({TREE}", text)


setup(packages=packages(), long_description=description(), cmdclass={"editable_wheel": Editable})

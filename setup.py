"""Adds to setup.cfg whole links in README.md, and the path of `pip install -e`."""
import re
from pathlib import Path

from setuptools import setup
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).resolve().parent
TREE = "https://github.com/hpgcn/hpgcn/blob/main/"


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


readme = (ROOT / "README.md").read_text(encoding="utf-8")
setup(long_description=re.sub(r"\]\((?![a-z]+:|#)", f"]({TREE}", readme),
      cmdclass={"editable_wheel": Editable})

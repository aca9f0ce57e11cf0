"""setup.cfg says all, but for the links of README.md: away from the repository they are whole."""
import re
from pathlib import Path

from setuptools import setup

TREE = "https://github.com/hpgcn/hpgcn/blob/main/"
readme = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
setup(long_description=re.sub(r"\]\((?![a-z]+:|#)", f"]({TREE}", readme))

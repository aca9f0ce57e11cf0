"""The source tree that the tests belong to."""
import configparser
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
IGNORED = (ROOT / ".gitignore").read_text().replace("/", "").split()
NOT_TRACKED = shutil.ignore_patterns(".git", *IGNORED)
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")

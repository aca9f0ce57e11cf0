"""Build the documentation site: copy docs/, insert tables generated from the code, and run Sphinx.

Called by scripts/docs.sh. Pages lie in docs/. A line `<!-- table: NAME -->` of a page is
replaced by the table of that name in `site_tables`, so no table repeats the code by hand.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from site_tables import TABLES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TREE = "https://github.com/hpgcn/hpgcn/blob/main/"
MARKER = re.compile(r"^<!-- table: ([a-z-]+) -->$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
# pages of the site that lie outside docs/
COPIED = {"CONTRIBUTING.md": "development/contributing.md",
          "CHANGELOG.md": "development/changelog.md"}


def main(argv=None):
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("out", nargs="?", type=Path, default=ROOT / "build" / "site")
    options.add_argument("--no-execute", action="store_true", help="do not run the notebooks")
    options = options.parse_args(argv)

    source = prepare(options.out.resolve().parent / "docs")
    return build(source, options.out, execute=not options.no_execute)


def prepare(source):
    """Write the folder that Sphinx reads.

    Pages with filled tables and with links that fit the site; return it.
    """
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(DOCS, source)
    for name, page in COPIED.items():
        shutil.copyfile(ROOT / name, source / page)

    homes = {source / page: ROOT / name for name, page in COPIED.items()}
    for page in sorted(source.rglob("*.md")):
        home = homes.get(page, DOCS / page.relative_to(source))
        text = MARKER.sub(lambda match: TABLES[match[1]](), page.read_text())
        page.write_text(redirect(text, page, home, source))
    return source


def redirect(text, page, home, source):
    """Return the text of a page with links that fit the site.

    Links to files outside docs/ go to GitHub.
    """
    def new(match):
        target, anchor = match[1], match[2] or ""
        path = Path(os.path.normpath(home.parent / target))
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
        if name in COPIED:
            path = source / COPIED[name]
        elif path.is_relative_to(DOCS):
            path = source / path.relative_to(DOCS)
        elif path.exists():
            return f"]({TREE}{name}{anchor})"
        return f"]({os.path.relpath(path, page.parent)}{anchor})"

    return LINK.sub(new, text)


def build(source, out, *, execute=True):
    """Run Sphinx, with warnings as errors; return its exit status."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q",
               "-c", DOCS, "-d", out.resolve().parent / "doctrees"]
    if not execute:
        command += ["-D", "nb_execution_mode=off"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = os.environ | {"PATH": path, "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}
    status = subprocess.run([*command, source, out], env=environment, check=False).returncode
    if not status:
        print(f"open {out}/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())

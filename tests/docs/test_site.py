"""The documentation site builds without warnings, and its links have targets."""
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import build_site
import pytest
from checkout import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
         *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


class Page(HTMLParser):
    """A parser that collects the links and anchors of an HTML page."""

    def __init__(self, path):
        super().__init__()
        self.links = []
        self.anchors = {""}
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given.get("id"), given.get("name")}
        self.links += [given[key] for key in ("href", "src") if given.get(key)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_pages_lead_to_files(page):
    targets = [link for link in LINK.findall(page.read_text()) if ":" not in link]
    assert not [link for link in targets if not (page.parent / link).exists()]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for module in ("sphinx", "myst_nb", "pydata_sphinx_theme"):
        pytest.importorskip(module, reason="needs Sphinx: pip install '.[docs]'")
    pytest.importorskip("torch", reason="needs PyTorch: pip install '.[torch]'")
    out = tmp_path_factory.mktemp("built") / "site"
    # test_notebooks.py runs the notebooks
    assert build_site.main([str(out), "--no-execute"]) == 0, "Sphinx warns, see above"
    return out


@pytest.mark.long
def test_no_link_of_the_site_is_broken(site):
    paths = {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    assert len(paths) > 100
    broken = set()
    for path, page in paths.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchors = paths[target].anchors if target in paths else {"", parts.fragment}
            if not target.exists() or unquote(parts.fragment) not in anchors:
                broken.add((path.name, link))
    assert not broken


@pytest.mark.long
def test_the_site_has_what_the_code_says(site):
    for page, words in {"reference/api": "run_on_ranks", "reference/commands": "--dry-run",
                        "kernels": "sspmm", "models": "to PyG",
                        "reference/exit-codes": "DivergedError",
                        "development/contributing": "strategy"}.items():
        assert words in (site / f"{page}.html").read_text(), page
    assert "run_on_ranks" in (site / "searchindex.js").read_text()


@pytest.mark.long
def test_names_of_other_projects_are_links(site):
    page = (site / "reference" / "api.html").read_text()
    for address in ("numpy.org/doc/stable/reference/generated/numpy.ndarray.html",
                    "mpi4py.readthedocs.io/en/stable/reference/mpi4py.MPI.Comm.html"):
        assert f'href="https://{address}"' in page

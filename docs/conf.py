"""Sphinx's settings of the documentation site, which scripts/docs.sh builds."""
import re
import sys
from pathlib import Path

import hpgcn

sys.path.insert(0, str(Path(__file__).parent))
from inventories import write_inventories

project = "hpgcn"
author = copyright = "The hpgcn developers"
version = release = hpgcn.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary",
              "sphinx.ext.intersphinx", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["conf.py", "inventories.py"]
smartquotes = False  # else --flag loses a hyphen
default_role = "code"  # single backquotes in docstrings
highlight_language = "none"  # indented blocks are commands or output
nitpicky = False

# Markdown and notebooks
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True
suppress_warnings = ["misc.highlighting_failure"]  # a shell command that goes on in a second line

# docstrings
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # attributes are a list

# appearance
html_theme = "pydata_sphinx_theme"
html_title = "hpgcn"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["hpgcn.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 5,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


def plain(app, what, name, obj, options, lines):
    """Escape what reStructuredText would take for markup: docstrings are plain text."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "**")):  # examples, and `**options`
            continue
        pieces = re.split(r"(`[^`]*`)", line)
        pieces[::2] = [re.sub(r"([*|]|(?<=\w)_(?=\W|$))", r"\\\1", each) for each in pieces[::2]]
        lines[number] = "".join(pieces)


def add_inventories(app, config):
    """Let intersphinx read the inventories that come with the pages."""
    config.intersphinx_mapping = write_inventories(Path(app.doctreedir) / "inventories")


def setup(app):
    app.connect("config-inited", add_inventories)
    app.connect("autodoc-process-docstring", plain, priority=400)  # before napoleon

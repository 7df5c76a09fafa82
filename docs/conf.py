"""How the documentation is built (``make docs``).

The source folder is the root of the repository, so that links in README, CONTRIBUTING and the notebooks work as they
stand; what is listed in ``include_patterns`` becomes a page.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]  # from_code.py, and this tree's bounds

import bounds

project = "trm-bounds"
author = "The trm-bounds developers"
release = version = bounds.__version__

extensions = [
    "sphinx.ext.autodoc",
    "numpydoc",
    "myst_nb",
    "from_code",
    "mathml",
]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "lab/README.md",
    "docs/*.md",
    "docs/api/*.md",
    "notebooks/*.ipynb",
]
exclude_patterns = [".*", "docs/_build", "**/.ipynb_checkpoints"]

# docstrings state types and shapes; the annotations of arrays and of lazily imported packages would only repeat them
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"inherited-members": "object, BaseException, int, str, Enum, Protocol"}
numpydoc_show_class_members = False  # autodoc shows them
numpydoc_validation_checks = {"PR02", "GL06", "GL07"}  # parameters and sections that do not exist, or stand elsewhere
default_role = "code"
nitpicky = True

nb_execution_mode = "off"  # `make docs` executes them
nb_execution_timeout = 300
nb_execution_raise_on_error = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_update_mathjax = False

html_theme = "furo"
html_math_renderer = "mathml"
html_title = "trm-bounds"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_additional_pages = {"index": "redirect.html"}
templates_path = ["_templates"]
html_show_copyright = False
html_copy_source = False


def setup(app):
    """Copy the pictures that README shows by HTML, for light and for dark pages, to where it says."""
    app.connect("build-finished", _copy_figures)


def _copy_figures(app, error):
    if error is None and app.builder.format == "html":
        (Path(app.outdir) / "figures").mkdir(exist_ok=True)
        for path in Path(app.srcdir).glob("figures/*.png"):
            shutil.copy(path, Path(app.outdir) / "figures" / path.name)

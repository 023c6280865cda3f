"""Sphinx's configuration: `make docs` builds the site into docs/_build/html and fails on any warning."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from pygments.lexers.c_cpp import CLexer
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

project = "tnplan"
author = "the tnplan authors"
version = release = installed_version("tnplan")
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "extensions.addresses",
    "extensions.api_pages",
    "extensions.formulas",
    "extensions.prose",
]
exclude_patterns = ["_build", "jupyter_execute"]
html_theme = "furo"
html_title = f"tnplan {version}"
html_math_renderer = "formulas"
copyright = "2026 the tnplan authors. Licence: Apache-2.0"
html_static_path: list[str] = []

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_execution_in_temp = True

default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True

_OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./){2}(?!how-to|explanation|reference|tutorials)([^)#\s]+)[^)]*\)"
)


def _name_files_of_the_repository(app: Sphinx, name: str, source: list[str]) -> None:
    """A link to a file that is in the repository and not in the site becomes the name of that file."""
    source[0] = _OUTSIDE.sub(r"\1 (`\2` in the repository)", source[0])


def _escape_bars(app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """A bar of a docstring, as in |psi>, is a bar, and not the start of a substitution."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = line.split("`")
            parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
            lines[number] = "`".join(parts)


def setup(app: Sphinx) -> None:
    """Register what this file adds."""
    app.add_lexer("qasm", CLexer)
    app.connect("source-read", _name_files_of_the_repository)
    app.connect("autodoc-process-docstring", _escape_bars)

"""Sphinx configuration: ``make docs`` builds with warnings as errors and runs the examples."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
# Pages that show stock behaviour must not be changed by a switch in the builder's shell.
for switch in ("SCALARINTERN", "SCALARINTERN_LAUNCH", "SCALARINTERN_AUDIT"):
    os.environ.pop(switch, None)

project = "scalarintern"
author = "The scalarintern developers"
project_copyright = "The scalarintern developers, Apache-2.0"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
default_role = "literal"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_use_ivar = True
doctest_test_doctest_blocks = ""
# Each page starts from the same state, whatever the one before did.
doctest_global_setup = """
import cutlass
import scalarintern
scalarintern.install()
scalarintern.configure(retain=4096, count_hits=False)
scalarintern.clear()
"""

html_theme = "furo"
html_title = "scalarintern"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "source_repository": "https://github.com/scalarintern/scalarintern/",
    "source_branch": "main",
    "source_directory": "docs/",
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"

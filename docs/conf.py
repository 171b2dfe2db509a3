"""The site: `make docs` builds it from the pages in this folder, the examples, and the docstrings of the package."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]

import reference  # noqa: E402

import weft  # noqa: E402

project = "weft"
author = "the weft developers"
copyright = author
version = release = weft.__version__
extensions = ["myst_parser"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]
default_role = "code"
highlight_language = "python"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
smartquotes = False
nitpicky = False

html_theme = "furo"
html_title = f"weft {release}"
html_theme_options = {
    "source_repository": "https://github.com/weft-dev/weft/",
    "source_branch": "main",
    "source_directory": "docs/",
}

#: a link to a file, by a path that leaves the page's folder
UPWARD = re.compile(r"\]\((\.\./[^)#]*)")
WEB = "https://github.com/weft-dev/weft/blob/main/"


#: what lists the notes for the sidebar, where a page links to them already
NOTES = "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"


def _adapt(app, name: str, source: list[str]) -> None:
    """Links that lead out of the site, to a file of the repository, lead to its place on the web."""

    def to_the_web(found: re.Match) -> str:
        target = ((HERE / name).parent / found[1]).resolve()
        return found[0] if target.is_relative_to(HERE) else f"]({WEB}{target.relative_to(ROOT)}"

    source[0] = UPWARD.sub(to_the_web, source[0]) + (NOTES if name == "design/README" else "")


def setup(app) -> None:
    """Write the pages that are made from the package, then let Sphinx read all of them."""
    app.connect("builder-inited", lambda app: reference.write(ROOT, HERE))
    app.connect("source-read", _adapt)

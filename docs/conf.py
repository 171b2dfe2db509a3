"""The site: `make docs` builds it from the pages in this folder, the examples, and the docstrings of the package."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]

import gallery  # noqa: E402
import reference  # noqa: E402
from sphinx.builders.html import StandaloneHTMLBuilder  # noqa: E402

import weft  # noqa: E402

project = "weft"
author = "the weft developers"
copyright = author
version = release = weft.__version__
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design"]
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
html_static_path = ["static"]
html_css_files = ["weft.css"]
html_use_index = False  # one page of all names; the search finds names
html_copy_source = False
html_theme_options = {
    "source_repository": "https://github.com/weft-dev/weft/",
    "source_branch": "main",
    "source_directory": "docs/",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

#: a link to a file, by a path that leaves the page's folder
UPWARD = re.compile(r"\]\((\.\./[^)#]*)")
WORD = re.compile(r'<span class="pre">([^<]*)</span>')
WEB = "https://github.com/weft-dev/weft/blob/main/"
#: the first page for contributors; the pages below it are for contributors too
CONTRIBUTORS = "contributing"

#: lists the notes for the sidebar, where a page links to them already
NOTES = "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"


class SiteBuilder(StandaloneHTMLBuilder):
    """Builds HTML with a search of the users' pages."""

    def index_page(self, pagename: str, doctree, title: str) -> None:
        """Add a page to the search index unless it is for contributors."""
        if pagename not in pages_below(self.env.toctree_includes, CONTRIBUTORS):
            super().index_page(pagename, doctree, title)


def pages_below(contents: dict[str, list[str]], page: str) -> set[str]:
    """Return a page and the pages that its tables of contents reach."""
    inner = (pages_below(contents, below) for below in contents.get(page, ()))
    return {page}.union(*inner)


def _adapt(app, name: str, source: list[str]) -> None:
    """Links that lead out of the site, to a file of the repository, lead to its place on the web."""

    def to_the_web(found: re.Match) -> str:
        target = ((HERE / name).parent / found[1]).resolve()
        return found[0] if target.is_relative_to(HERE) else f"]({WEB}{target.relative_to(ROOT)}"

    source[0] = UPWARD.sub(to_the_web, source[0]) + (NOTES if name == "design/README" else "")


def _write_pages(app) -> None:
    """Write the pages that are made from the package and its examples."""
    reference.write(HERE)
    gallery.write(ROOT, HERE)


def _slim_page(app, pagename, templatename, context, doctree) -> None:
    """Keep pages small: the sidebar shows the pages of the current group only, and words have no elements of their own."""
    for part in ("body", "toc"):
        if part in context:
            context[part] = WORD.sub(r"\1", context[part])
    toctree = context.get("toctree")
    if toctree is not None:
        context["toctree"] = lambda **options: toctree(**(options | {"collapse": True}))


def setup(app) -> None:
    """Register the pages that are written before Sphinx reads, and the builder."""
    app.add_builder(SiteBuilder, override=True)
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _adapt)
    app.connect("html-page-context", _slim_page, priority=400)

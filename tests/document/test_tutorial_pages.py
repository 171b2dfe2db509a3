"""The examples of the tutorial on automatic sharding run, and its pictures are those that they draw."""

import doctest
from typing import Any

from tests.harness.pages import needs_pages, run_examples
from tests.harness.scripts import load_script


def run_page(name: str) -> dict[str, Any]:
    """Run the examples of a page; return its variables."""
    session: dict[str, Any] = {}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert run_examples(name, flags, session) >= 30
    return session


@needs_pages
def test_examples_run_and_draw_the_pictures():
    pictures = load_script("docs/make_pictures.py")
    drawn = pictures.draw(run_page(pictures.PAGE))
    stored = {path.name: path.read_text() for path in pictures.PICTURES.glob("tutorial-*.svg")}
    assert stored == drawn

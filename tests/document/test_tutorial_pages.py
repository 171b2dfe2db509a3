"""The examples of the tutorial on automatic sharding run and draw its pictures."""

import doctest
from typing import Any

from tests.harness.pages import blocks, needs_pages, run_examples
from tests.harness.scripts import load_script
from weft.tools.plan_command import PlanOptions, print_plans


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


@needs_pages
def test_page_shows_plans_of_the_command(capsys):
    page = load_script("docs/make_pictures.py").PAGE
    print_plans(PlanOptions(model="llama3-70b", cluster="h100:64", top=3))
    printed = capsys.readouterr().out
    shown = blocks(page, "text")
    assert len(shown) == 2
    assert all(block.strip() and block in printed for block in shown)

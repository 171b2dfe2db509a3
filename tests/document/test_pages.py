"""The examples on pages of the documentation run as they stand there."""

import doctest

import pytest

from tests.harness.pages import ROOT, needs_pages, page, run_examples

#: page -> the fewest examples that are on it
PAGES = {
    "collectives.md": 16,
    "explain.md": 11,
    "explicit-sharding.md": 11,
    "getting-started.md": 37,
    "looking-inside.md": 11,
    "partitioning.md": 11,
    "shard-map.md": 16,
}


@needs_pages
@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_run(name):
    loose = name in ("partitioning.md", "getting-started.md")
    assert run_examples(name, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE if loose else 0) >= PAGES[name]


@needs_pages
def test_every_strategy_has_its_row():
    rows = page("strategies.md").read_text()
    assert all(f"| `{path.name}` |" in rows for path in (ROOT / "examples" / "strategies").glob("*.py") if path.stem != "strategy")

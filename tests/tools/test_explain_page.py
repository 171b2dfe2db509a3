"""The page on explain says what happens: its examples run; the page on strategies names every program."""

import doctest
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parents[1]


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="weft is installed without its documentation")
def test_the_examples_of_the_page():
    failed, tried = doctest.testfile(str(ROOT / "docs" / "explain.md"), module_relative=False)
    assert tried > 10 and not failed


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="weft is installed without its documentation")
def test_every_strategy_has_its_row():
    rows = (ROOT / "docs" / "strategies.md").read_text()
    assert all(f"| `{path.name}` |" in rows for path in (ROOT / "examples" / "strategies").glob("*.py") if path.stem != "strategy")

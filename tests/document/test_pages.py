"""The examples on pages of the documentation run as printed."""

import doctest
import re

import pytest

import weft
from tests.harness.pages import needs_pages, page, run_examples
from tests.harness.processes import ROOT

#: page -> the minimum number of its examples
PAGES = {
    "asynchronous-dispatch.md": 12,
    "automatic-sharding.md": 24,
    "collectives.md": 16,
    "explain.md": 11,
    "explicit-sharding.md": 11,
    "export.md": 11,
    "getting-started.md": 37,
    "looking-inside.md": 12,
    "memory-layouts.md": 10,
    "partitioning.md": 11,
    "planning.md": 10,
    "profiling.md": 16,
    "shard-map.md": 16,
    "tiny-weft.md": 36,
}


@needs_pages
@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_run(name, monkeypatch):
    if name == "profiling.md" and weft.devices()[0].platform != "cpu":
        pytest.skip("it shows steps within programs, which plugins do not record")
    monkeypatch.syspath_prepend(ROOT / "docs")
    loose = name in (
        "partitioning.md",
        "getting-started.md",
        "export.md",
        "planning.md",
        "automatic-sharding.md",
    )
    assert (
        run_examples(name, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE if loose else 0)
        >= PAGES[name]
    )


@needs_pages
def test_every_strategy_has_its_row():
    rows = page("strategies.md").read_text()
    assert all(
        f"| `{path.name}` |" in rows
        for path in (ROOT / "examples" / "strategies").glob("*.py")
        if path.stem != "strategy"
    )


@needs_pages
def test_the_tour_lists_every_package_and_what_to_read_in_it():
    rows = re.findall(r"^\| (`.*?) \|.*\| (`[^|]*) \|$", page("tour.md").read_text(), re.MULTILINE)
    listed = {
        name: files.replace("`", "").split(", ")
        for names, files in rows
        for name in re.findall(r"`([^`]+)`", names)
    }
    engine = ROOT / "weft" / "_engine"
    packages = {
        str(folder.parent.relative_to(engine))
        for top in ("", "compiler", "codegen")
        for folder in (engine / top).glob("*/__init__.py")
    }
    assert packages - set(listed) == set()
    for name, files in listed.items():
        folder = engine / name if "/" in name else engine
        folder = ROOT if name.startswith("weft.") else folder
        assert [file for file in files if not (folder / file).exists()] == [], name

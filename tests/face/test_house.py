"""What the documents say of the house is so: the files that they name are there, and none is too long to be one room."""

import ast
import re
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
DOCUMENTS = sorted([*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md"), *HOUSE.glob("benchmarks/*.md")])
SOURCES = sorted(HOUSE.glob("weft/**/*.py"))
MODULES = {".".join(path.relative_to(HOUSE).with_suffix("").parts).removesuffix(".__init__") for path in SOURCES}
#: a file or a folder of this repository, as text names it: from the root, or from the package
NAMED = re.compile(r"`((?:\w+/)+[\w.]+\.(?:py|pyi|ll|txt|md))`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
MOST_LINES = 800


def missing(text: str, folder: Path) -> list[str]:
    """The files that a document in `folder` names or links to and that are not there."""
    named = [name for name in NAMED.findall(text) if not any((root / name).exists() for root in (HOUSE, HOUSE / "weft", folder))]
    return named + [link for link in LINK.findall(text) if not (folder / link).exists()]


def test_a_file_that_is_not_there_is_found_missing():
    text = "`weft/numpy/ufuncs.py`, `ops/halo.py`, `ops/hallo.py`, [a note](docs/tour.md#top), [none](docs/detour.md)"
    assert missing(text, HOUSE) == ["ops/hallo.py", "docs/detour.md"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(HOUSE)))
def test_documents_name_files_that_are_there(path):
    assert missing(path.read_text().replace("docs/design/NNNN-title.md", "docs/tour.md"), path.parent) == []


def test_what_to_read_next_is_there():
    found = {}
    for path in SOURCES:
        said = ast.get_docstring(ast.parse(path.read_text())) or ""
        for name in re.findall(r"`([a-z_][\w.]*)`", said.partition("\nNext:")[2]):
            found[path.name, name] = any(module == f"weft.{name}" or module.endswith(f".{name}") for module in MODULES)
    assert found and [key for key, there in found.items() if not there] == []


def test_a_file_is_one_room():
    lengths = {str(path.relative_to(HOUSE)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}

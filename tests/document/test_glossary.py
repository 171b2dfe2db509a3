"""The glossary: its terms, the modules it names, and the retired words."""

import re
from collections.abc import Iterator

from tests.harness.pages import needs_pages, page
from tests.harness.processes import ROOT

SEARCHED = ("weft", "tests", "docs", "examples", "benchmarks")
SUFFIXES = {".py", ".pyi", ".md"}
#: the parts of an identifier, and the words of a text
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
RETIRED_HEADING = "## Retired words\n"

pytestmark = needs_pages


def table(text: str) -> list[list[str]]:
    """Return the cells of the rows of the only table in a text, without its head."""
    rows = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    return [row.split(" | ") for row in rows[1:]]


def sections() -> tuple[str, str]:
    """Return the text of the glossary before and after the heading of the retired words."""
    terms, retired = page("glossary.md").read_text().split(RETIRED_HEADING)
    return terms, retired


def words(text: str) -> str:
    """Return the words of a text in lower case, with identifiers split at underscores and capitals."""
    return " ".join(WORD.findall(text)).lower()


def used(retired: list[str], text: str) -> list[str]:
    """Return which of the retired names, in code type, and words a text uses."""
    text_words = f" {words(text)} "
    return [
        entry
        for entry in retired
        if (
            re.search(rf"(?<!\w)_*{entry.strip('`')}(?!\w)", text)
            if entry.startswith("`")
            else f" {entry} " in text_words
        )
    ]


def searched_files() -> Iterator[tuple[str, str]]:
    """Yield the path, and the text preceded by the path, of each file to search for retired words."""
    for folder in SEARCHED:
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in SUFFIXES and name != "docs/glossary.md":
                yield name, f"{name}\n{path.read_text()}"


def is_module(path: str) -> bool:
    """Return whether a module that the glossary names exists."""
    folder = ROOT if path.startswith("weft/") else ROOT / "weft" / "_engine"
    return (folder / path).is_file()


def test_terms_are_sorted_and_their_modules_exist():
    rows = table(sections()[0])
    assert all(len(row) == 4 and all(row) for row in rows)
    terms = [row[0] for row in rows]
    assert 80 <= len(terms) <= 120
    assert terms == sorted(set(terms), key=str.casefold)
    assert [row[3] for row in rows if not is_module(row[3].strip("`"))] == []


def test_definitions_have_at_most_two_sentences():
    long = [row[0] for row in table(sections()[0]) if len(re.findall(r"\.(?= |$)", row[1])) > 2]
    assert long == []


def test_retired_words_are_found_in_names_and_texts():
    retired = ["`RedBarn`", "barn", "red barn", "barns"]
    assert used(retired, "class _RedBarn:") == ["`RedBarn`", "barn", "red barn"]
    assert used(retired, "big_red_barn = 1") == ["barn", "red barn"]
    assert used(retired, "# Red\n# barns") == ["barns"]
    assert used(retired, "redbarn = REDBARN = RedBarnacle") == []


def test_retired_words_are_not_used():
    retired = [row[0] for row in table(sections()[1])]
    assert len(retired) >= 10
    assert retired == sorted(set(retired), key=lambda word: word.strip("`").casefold())
    uses = {name: used(retired, text) for name, text in searched_files()}
    assert {name: entries for name, entries in uses.items() if entries} == {}

"""The form of the design notes: status, question, decision, evidence, at most one page."""

import re

import pytest

from tests.harness.pages import needs_pages
from tests.harness.processes import ROOT

pytestmark = needs_pages
NOTES = sorted((ROOT / "docs" / "design").glob("0*.md"))
STATUS = re.compile(r"\n\*\*Status:\*\* (accepted|superseded by \[\d{4}\]\(\d{4}-[\w-]+\.md\))[;.]")


@pytest.mark.parametrize("path", NOTES, ids=lambda path: path.stem[:4])
def test_a_note_states_its_status_and_fits_a_page(path):
    text = path.read_text()
    assert STATUS.search(text)
    for title in ("Question", "Decision", "Evidence"):
        assert f"\n## {title}\n" in text
    assert len(text.splitlines()) <= 60


def test_the_index_lists_every_note():
    index = (ROOT / "docs" / "design" / "README.md").read_text()
    assert [path.name for path in NOTES if f"]({path.name})" not in index] == []

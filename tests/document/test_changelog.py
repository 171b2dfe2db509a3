"""The changelog: its fragments have a known kind and a text for users, and releases can be put in front."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
KINDS = {kind["directory"] for kind in SETTINGS["type"]}


def test_fragments_have_a_known_kind_and_a_short_text():
    fragments = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    wrong = [
        path.name
        for path in fragments
        if not re.fullmatch(rf"\+?[a-z0-9-]+\.({'|'.join(KINDS)})\.md", path.name)
        or not 20 <= len(path.read_text().strip()) <= 500
    ]
    assert wrong == []


def test_changelog_has_the_mark_of_new_releases():
    assert (ROOT / "CHANGELOG.md").read_text().count(SETTINGS["start_string"]) == 1

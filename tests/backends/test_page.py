"""docs/adding-a-backend.md, followed exactly: its file is written and used, and no other file
changes."""

import doctest
import sys

import pytest

from tests.harness.pages import blocks, needs_pages, page
from weft._engine.backends import base


@pytest.fixture
def counting(tmp_path, monkeypatch):
    """Write the page's file to a folder on the import path."""
    text = blocks("adding-a-backend.md")[0]
    name = text.partition("\n")[0].removeprefix("# ")
    (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(base, "_factories", dict(base._factories))
    monkeypatch.setattr(base, "_backends", dict(base._backends))
    yield
    sys.modules.pop(name.removesuffix(".py"), None)


@needs_pages
def test_a_backend_is_one_file(counting):
    _, *sessions = blocks("adding-a-backend.md")
    examples = doctest.DocTestParser().get_doctest(
        "".join(sessions), {}, "page", str(page("adding-a-backend.md")), 0
    )
    results = doctest.DocTestRunner(verbose=False).run(examples)
    assert results.attempted >= 10 and not results.failed

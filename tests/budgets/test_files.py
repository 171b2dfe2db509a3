"""Style limits of the source files, by counts: their first words, and forbidden marks."""

import ast
import re
from pathlib import Path

import pytest

import weft

PACKAGE = Path(weft.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
MARKS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(work|root|home|opt|tmp)/\w")


def relative(path):
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_a_file_is_explained_and_finished(path):
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text)), (
        "a module begins with what it is for"
    )
    assert not MARKS.search(text), "unfinished work is finished or named in an error, not marked"
    assert not MACHINE_PATHS.search(text), "no paths of one machine"
